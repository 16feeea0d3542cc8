"""The errors of reading and writing snapshots."""

from __future__ import annotations

__all__ = []

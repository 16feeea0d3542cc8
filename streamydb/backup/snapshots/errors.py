"""What reading and writing snapshots refuses."""

from __future__ import annotations

__all__ = []



"""Disks that are full."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

__all__ = ["full_disk"]

_FULL_BYTES: Final = 16_000_000
"""A disk with less is full: what fails to be written has some megabytes, and is then removed."""


def full_disk(folder: Path) -> str | None:
    """Say that the disk of a folder is full; None if it has room, or there is no such folder."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= _FULL_BYTES:
        return None
    return f"the disk of {folder} is full ({free:,} bytes are left)"

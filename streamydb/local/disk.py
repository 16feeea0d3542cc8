"""Disks that are full, and files that cannot be read or written."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Final

_FULL_BYTES: Final = 16_000_000
"""A disk with less is full: what fails to be written has some megabytes, and is then removed."""

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


def said_of(error: OSError) -> str | None:
    """A line about a file, a folder or a disk that failed; None if the error names none."""
    if error.filename is None and error.errno not in _FULL:
        return None
    where = "" if error.filename is None else f"{error.filename}: "
    more = "; make room, and run the command again" if error.errno in _FULL else ""
    return f"{where}{error.strerror}{more}"


def full_disk(folder: Path) -> str | None:
    """Say that the disk of a folder is full; None if it has room, or there is no such folder."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    if free >= _FULL_BYTES:
        return None
    return f"the disk of {folder} is full ({free:,} bytes are left)"

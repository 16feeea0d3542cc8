"""Folders for temporary files that the next process removes if their own was killed.

Spark keeps copies of its state among its temporary files. It removes them when it has the time to
end by itself. A process that is killed removes nothing, so each crash would leave a copy behind.

A folder belongs to a process as long as that holds its lock, whatever the process's id is. What
cleans the folder for temporary files by age (systemd-tmpfiles) passes locked folders over.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["scratch_folder", "sweep"]

_PREFIX: Final = "streamydb-scratch-"

_HELD: Final[list[int]] = []
"""The locked folders of this process; the locks end with it, and its children inherit none."""


def scratch_folder(base: Path | None = None) -> Path:
    """Make a folder that is this process's own, and is removed when it ends.

    Args:
        base: where; by default the folder for temporary files.

    Raises:
        OSError: it cannot be made.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        with suppress(FileNotFoundError):  # somebody has swept it in this moment, here or below
            handle = _locked(folder)
            if handle is not None and folder.exists():
                _HELD.append(handle)
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                return folder
            if handle is not None:
                os.close(handle)


def sweep(base: Path | None = None) -> None:
    """Remove the folders of this user's processes that have ended."""
    for folder in (base or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else removes it
            if folder.lstat().st_uid != os.getuid() or (handle := _locked(folder)) is None:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)


def _locked(folder: Path) -> int | None:
    """Lock a folder; None if somebody else has."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return handle

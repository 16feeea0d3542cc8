"""Folders for temporary files that the next process removes if their own was killed.

Spark keeps copies of its state among its temporary files. It removes them when it has the time to
end by itself. A process that is killed removes nothing, so each crash would leave a copy behind.

A folder belongs to a process as long as that holds its lock, whatever the process's id is. What
cleans the folder for temporary files by age (systemd-tmpfiles) passes locked folders over.
"""

from __future__ import annotations

import atexit
import fcntl
import glob
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "streamydb-scratch-"

_PRIVATE: Final = 0o700

_HELD: Final[list[int]] = []
"""The locked folders of this process; the locks end with it, and its children inherit none."""


def scratch_folder(base: Path | None = None) -> Path:
    """Make a folder that is this process's own, and is removed when it ends.

    Args:
        base: where; by default the folder for temporary files.

    Raises:
        OSError: it cannot be made.
    """
    folder, handle = _made(base, _PREFIX, _PRIVATE)
    _HELD.append(handle)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def scratch(
    base: Path | None = None, prefix: str = _PREFIX, mode: int = _PRIVATE
) -> Iterator[Path]:
    """Make a folder for a block; what killed processes have left of its kind is removed before.

    Args:
        base: where; by default the folder for temporary files.
        prefix: how the names of its kind begin.
        mode: its permissions, before the process's mask.

    Raises:
        OSError: it cannot be made.
    """
    sweep(base, prefix)
    folder, handle = _made(base, prefix, mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _made(base: Path | None, prefix: str, mode: int) -> tuple[Path, int]:
    while True:
        folder = (base or Path(tempfile.gettempdir())) / f"{prefix}{uuid.uuid4().hex[:8]}"
        folder.mkdir(mode)
        with suppress(FileNotFoundError):  # somebody has swept it in this moment, here or below
            handle = _locked(folder)
            if handle is not None and folder.exists():
                return folder, handle
            if handle is not None:
                os.close(handle)


def sweep(base: Path | None = None, prefix: str = _PREFIX) -> None:
    """Remove the folders of this user's processes that have ended; ``prefix``: of their names."""
    for folder in (base or Path(tempfile.gettempdir())).glob(f"{glob.escape(prefix)}*"):
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

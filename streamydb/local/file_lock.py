"""Files that several processes share: lock one, write one as a whole."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["file_lock", "write_whole"]


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` (created when missing), waiting until it is free.

    It is POSIX's `flock`, so it ends with its holder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, data: bytes, *, synced: bool = True) -> None:
    """Write a file so that a reader finds the old content or the new one, never a part.

    Args:
        path: the file; its folder is made when missing. Several may write it at once.
        data: its content.
        synced: this holds after a power loss, too. That takes the disk some milliseconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.draft")
    try:
        with draft.open("xb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)

"""Files that several processes share: lock one, write one as a whole."""

from __future__ import annotations

import atexit
import fcntl
import glob
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from streamydb.errors import ConfigurationError, StreamyError

_DRAFT: Final = ".draft"
_ABANDONED_S: Final = 3_600


class HeldLock(NamedTuple):
    """A lock that is held on a file.

    Attributes:
        path: of the file.
        handle: the file, open.
    """

    path: Path
    handle: int

    @property
    def gone(self) -> bool:
        """True if somebody has deleted the file or moved it away, so that others may lock anew."""
        try:
            self.path.stat()
            return os.fstat(self.handle).st_nlink == 0
        except FileNotFoundError:
            return True
        except OSError:  # a file system that does not answer
            return False


@contextmanager
def file_lock(path: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock on `path` (created when missing), waiting until it is free.

    It is POSIX's `flock`, so it ends with its holder.

    ``waits``: is called if somebody else holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def lock_at_once(path: Path, taken: StreamyError) -> Iterator[HeldLock]:
    """Hold an exclusive lock on `path` (created when missing), without waiting for it.
    Raises StreamyError: ``taken``: somebody else holds it; ConfigurationError: its file system has
    no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise taken from None
        except OSError as error:
            raise ConfigurationError(
                f"{path.parent} cannot be locked ({error.strerror}), so nothing would keep others "
                "off: name a folder on a file system with locks"
            ) from error
        yield HeldLock(path, handle.fileno())


def write_whole(path: Path, data: bytes, *, synced: bool = True) -> None:
    """Write a file so that a reader finds the old content or the new one, never a part.

    A writer that is killed leaves a draft beside the file. The first write into the folder by a
    later process removes it.

    ``path``: the file; its folder is made when missing. Several may write it at once. ``synced``:
    this holds after a power loss, too. That takes the disk some milliseconds.
    """
    _make_folder(path.parent, synced=synced)
    _remove_drafts(path.parent)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}{_DRAFT}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # a full disk: nobody says which
            error.filename = str(path)
        raise
    finally:
        draft.unlink(missing_ok=True)
    if synced:
        sync(path.parent)


def _make_folder(folder: Path, *, synced: bool) -> None:
    """Make a folder and those above it; when synced, their names outlive a power loss."""
    if folder.is_dir():
        return
    _make_folder(folder.parent, synced=synced)
    folder.mkdir(exist_ok=True)
    if synced:
        sync(folder.parent)


def sync(path: Path) -> None:
    """Bring a file's content to the disk, or a folder's: which names it has for which files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@lru_cache(maxsize=64)
def _remove_drafts(folder: Path) -> None:
    """Remove what killed writers have left, once for each folder that this process writes to.

    No writer takes an hour, so a younger draft may be one that is being written.
    """
    for draft in folder.glob(f"*.????????{_DRAFT}"):
        with suppress(OSError):  # somebody else removes it, or owns it
            if time.time() - draft.stat().st_mtime > _ABANDONED_S:
                draft.unlink()


_PREFIX: Final = "streamydb-scratch-"

_PRIVATE: Final = 0o700

_HELD: Final[list[int]] = []
"""The locked folders of this process; the locks end with it, and its children inherit none."""


def scratch_folder(base: Path | None = None) -> Path:
    """Make a folder that is this process's own, and is removed when it ends.

    ``base``: where; by default the folder for temporary files.
    Raises OSError: it cannot be made.
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

    Raises OSError: it cannot be made.
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

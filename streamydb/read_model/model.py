"""Open a read model, and take snapshots of it."""

from __future__ import annotations

import fcntl
import os
from numbers import Integral
from pathlib import Path
from typing import Any, Self

from streamydb.errors import ConfigurationError
from streamydb.limits import DATABASE_NAME
from streamydb.read_model.core import ResolvedPoint, TopicProgress
from streamydb.read_model.environment import MAP_BYTES
from streamydb.read_model.errors import (
    SnapshotAhead,
    SnapshotGone,
    StoreFailedError,
    WriterRunningError,
)
from streamydb.read_model.snapshot import Snapshot
from streamydb.read_model.store import Store
from streamydb.read_model.times import commit_time, last_until
from streamydb.records.generation import FIRST

_LOCK = "writer.lock"


class ReadModel:
    """A read model's folder, opened to be read, or to be written as well by its follower.

    Any number of processes and threads may read. A child of a fork opens its own.

    Attributes:
        store: its file; for the follower.
    """

    def __init__(self, folder: Path, database: str, store: Store, lock: int | None) -> None:
        self.folder = folder
        self.database = database
        self.store = store
        self._lock = lock
        self._closed = False
        self._generation: str | None = None

    @classmethod
    def open(
        cls, folder: Path, database: str, *, write: bool = False, map_bytes: int = MAP_BYTES
    ) -> Self:
        """Open the read model in ``folder``.

        ``folder``: on a local disk; made if it is missing and ``write`` is true. ``write``: open it
        as its only writer. ``map_bytes``: address space to begin with; a store that outgrows it is
        mapped anew.

        Raises:
            ConfigurationError: the name cannot be a database's.
            StoreMissingError: there is none yet.
            StoreMismatchError: it belongs to another database, or has another format.
            StoreFailedError: its file cannot be read; or the file system is read-only, and it has
                a writer.
            WriterRunningError: it has a writer.
        """
        if not DATABASE_NAME.fullmatch(database):
            raise ConfigurationError(f"{database!r} cannot be a database's name")
        folder = folder.resolve()
        if not write and folder.exists():
            _must_be_seen(folder)
        lock = _take(folder) if write else None
        try:
            store = Store(folder, database, map_bytes, create=write)
        except BaseException:
            _give_back(lock)
            raise
        return cls(folder, database, store, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it, after its snapshots; a second time does nothing."""
        if not self._closed:
            self._closed = True
            self.store.close()
            _give_back(self._lock)

    @property
    def writable(self) -> bool:
        return self._lock is not None and not self._closed

    def latest(self) -> ResolvedPoint:
        """The newest snapshot that can be taken; seq 0 is the empty database."""
        return self.store.resolved()

    def progress(self) -> TopicProgress:
        """The place up to which the topic of the changes is read, also beyond `latest`."""
        return self.store.progress()

    def newest(self) -> int:
        """The largest seq of all that is stored, also beyond `latest`."""
        return self.store.newest()

    @property
    def generation(self) -> str:
        """The generation of the history that it shows (`records.generation`)."""
        if self._generation is None:
            self._generation = self.store.generation()
        return FIRST if self._generation is None else self._generation

    def oldest(self) -> int:
        """The smallest seq that a snapshot can be taken at; it only rises."""
        with self.store.environment.reading() as txn:
            return self.store.bounds(txn).oldest

    def seq_at(self, ts_ms: int) -> int:
        """The last resolved seq with a commit timestamp up to ``ts_ms``.

        It is final once ``latest().ts_ms`` is later; until then more transactions may get such a
        timestamp.
        Raises SnapshotGone: what was then has been collected.
        """
        with self.store.environment.reading() as txn:
            oldest, latest, last_ms = self.store.bounds(txn)
            if ts_ms >= last_ms:
                return latest
            times = txn.cursor(self.store.tables.times)
            if oldest > 0 and commit_time(times, oldest) > ts_ms:
                raise SnapshotGone(f"time {ts_ms} ms", oldest)
            return last_until(times, ts_ms, oldest, latest)

    def snapshot(self, at: int | None = None) -> Snapshot:
        """The data right after the seq ``at``, by default the latest; a context manager.

        Raises:
            SnapshotGone: it is before `oldest`.
            SnapshotAhead: it is after `latest`.
            StoreBusyError: too many snapshots stay open while the store grows.
            TypeError: it is no whole number.
        """
        argument: Any = at
        if argument is not None:
            if isinstance(argument, bool) or not isinstance(argument, Integral):
                raise TypeError(f"a snapshot is at a seq, a whole number, not at {argument!r}")
            at = int(argument)  # of NumPy's, as a column of a DataFrame has them
        environment = self.store.environment
        txn = environment.begin()
        try:
            view = self.store.shown(txn)
            oldest, latest, _ = view.bounds
            seq = latest if at is None else at
            _check_between(oldest, seq, latest)
            return Snapshot(self.store, txn, seq, view)
        except BaseException:
            environment.end(txn)
            raise


def _check_between(oldest: int, seq: int, latest: int) -> None:
    if seq < oldest:
        raise SnapshotGone(f"seq {seq}", oldest)
    if seq > latest:
        raise SnapshotAhead(seq, latest)


def _take(folder: Path) -> int:
    """Lock the folder for writing; the lock ends with its holder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as fault:
        raise StoreFailedError(f"{folder} cannot be written: {fault}") from fault
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as fault:
        holder = os.read(lock, 32).decode(errors="replace").strip()
        os.close(lock)
        raise WriterRunningError(
            f"the read model in {folder} has a writer already (process {holder or 'unknown'}); "
            "stop that follower, or name another folder: any number may run side by side"
        ) from fault
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _must_be_seen(folder: Path) -> None:
    """Refuse a read-only file system while somebody writes the store through another.

    There LMDB tells nobody of its readers, so the writer would overwrite what they read.
    """
    if not os.statvfs(folder).f_flag & os.ST_RDONLY:
        return
    try:
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as fault:
        raise StoreFailedError(
            f"{folder} is mounted read-only, and its follower writes it: snapshots would be torn. "
            "Mount it so that it can be written; reading it changes nothing but its list of readers"
        ) from fault
    finally:
        os.close(lock)


def _give_back(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)

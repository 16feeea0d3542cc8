"""The store of a read model: what a batch changes, and how far it is, in one LMDB transaction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from streamydb.errors import InvariantViolation
from streamydb.read_model.collection import collect, remember
from streamydb.read_model.core import Resolved, Retention, StoreBatch, TopicProgress
from streamydb.read_model.encoding import pack_seq, unpack_seq
from streamydb.read_model.environment import MAP_BYTES, Environment, Tables
from streamydb.read_model.errors import StoreFailedError, StoreMismatchError, StoreMissingError
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    import lmdb

__all__ = ["FORMAT", "SnapshotBounds", "Store", "commit_time", "last_until"]

FORMAT: Final = 1
"""Version of the store's layout; raised when an older program would misread it."""

_IDENTITY = b"identity"
_PROGRESS = b"progress"
_RESOLVED = b"resolved"
_BOUNDS = b"bounds"


class _Identity(msgspec.Struct):
    format: int
    database: str


class SnapshotBounds(NamedTuple):
    """Between which seqs snapshots can be taken, and the commit timestamp of the last one."""

    oldest: int
    latest: int
    ts_ms: int


class Store:
    """The file of a read model.

    Attributes:
        environment: the open file.
        database: the database that it belongs to.
    """

    def __init__(
        self, folder: Path, database: str, map_bytes: int = MAP_BYTES, *, create: bool = False
    ) -> None:
        """Open the store in ``folder``; make it if ``create`` is true and there is none.

        Raises:
            StoreMissingError: there is none.
            StoreMismatchError: it is another database's, or of another format.
            StoreFailedError: the file is not a store, or cannot be read.
        """
        self.database = database
        self.environment = Environment.open(folder, map_bytes, write=create)
        try:
            if create:
                self.environment.write(self._initialise)
            self._check_identity()
        except BaseException:
            self.close()
            raise

    @property
    def tables(self) -> Tables:
        """The sub-databases."""
        return self.environment.tables

    def close(self) -> None:
        """Give the file back."""
        self.environment.close()

    def _initialise(self, txn: lmdb.Transaction[bytes]) -> None:
        about = self.tables.about
        if txn.get(_IDENTITY, db=about) is None:
            identity = _Identity(FORMAT, self.database)
            txn.put(_IDENTITY, msgspec.json.encode(identity), db=about)
            self._put_progress(txn, TopicProgress())
            txn.put(_BOUNDS, pack_seq(0, 0, 0), db=about)

    def _check_identity(self) -> None:
        folder = self.environment.folder
        with self.environment.reading() as txn:
            found = txn.get(_IDENTITY, db=self.tables.about)
        if found is None:
            raise StoreMissingError(f"the read model in {folder} is still empty; try again")
        try:
            identity = msgspec.json.decode(found, type=_Identity)
        except UNREADABLE as fault:
            raise StoreFailedError(f"{folder} is no read model: {fault}") from fault
        if identity.format != FORMAT:
            raise StoreMismatchError(
                f"the read model in {folder} has format {identity.format}, this program writes "
                f"format {FORMAT}; delete the folder and load it again"
            )
        if identity.database != self.database:
            raise StoreMismatchError(
                f"the read model in {folder} is of the database {identity.database!r}, not of "
                f"{self.database!r}; name another folder"
            )

    def bounds(self, txn: lmdb.Transaction[bytes]) -> SnapshotBounds:
        """Return the seqs of which a transaction can take snapshots."""
        data = txn.get(_BOUNDS, b"", db=self.tables.about)
        return SnapshotBounds(unpack_seq(data), unpack_seq(data[8:]), unpack_seq(data[16:]))

    def progress(self) -> TopicProgress:
        """Return how far the topic is read."""
        with self.environment.reading() as txn:
            data = txn.get(_PROGRESS, b"", db=self.tables.about)
        return msgspec.msgpack.decode(data, type=TopicProgress)

    def resolved(self) -> Resolved:
        """The last seq of which a snapshot can be taken."""
        with self.environment.reading() as txn:
            data = txn.get(_RESOLVED, b"", db=self.tables.about)
        return msgspec.msgpack.decode(data, type=Resolved)

    def adopt(self, progress: TopicProgress) -> None:
        """Record the topic that an empty store will follow."""
        self.environment.write(lambda txn: self._put_progress(txn, progress))

    def preload(self, versions: list[tuple[bytes, bytes]]) -> None:
        """Put versions, in the order of their keys, into an empty store; see `begin_at`."""
        self.environment.write(lambda txn: txn.cursor(self.tables.versions).putmulti(versions))

    def begin_at(self, progress: TopicProgress, seq: int, ts_ms: int) -> None:
        """Have a store that was preloaded show the snapshot at ``seq``, and go on from there."""

        def begin(txn: lmdb.Transaction[bytes]) -> None:
            txn.put(pack_seq(seq), pack_seq(ts_ms), db=self.tables.times)
            self._put_progress(txn, progress)
            txn.put(_BOUNDS, pack_seq(seq, seq, ts_ms), db=self.tables.about)

        self.environment.write(begin)

    def apply(self, batch: StoreBatch, retention: Retention) -> bool:
        """Commit a batch, raise the horizon, collect; whether more is left to be collected.

        Raises:
            InvariantViolation: a change differs from what was read as that change before, or
                comes for the first time although its partition had resolved it; nothing is
                committed.
            StoreBusyError: see `Environment.write`.
            StoreFailedError: see `Environment.write`.
        """
        batch.progress.commits += 1
        return self.environment.write(lambda txn: self._apply(txn, batch, retention))

    def _apply(self, txn: lmdb.Transaction[bytes], batch: StoreBatch, retention: Retention) -> bool:
        bounds = self.bounds(txn)
        self._put_versions(txn, batch.versions)
        self._check_repeats(txn, batch, bounds.oldest)
        times = [(pack_seq(seq), pack_seq(ts_ms)) for ts_ms, seq in batch.times.items()]
        txn.cursor(self.tables.times).putmulti(times)
        remember(txn, self.tables, batch.touched, batch.newest, batch.progress.commits)
        latest = self._put_progress(txn, batch.progress)
        if latest.seq < bounds.latest:
            raise InvariantViolation(f"resolved went from {bounds.latest} back to {latest.seq}")
        oldest = max(bounds.oldest, self._horizon(txn, retention, latest, bounds.oldest))
        txn.put(_BOUNDS, pack_seq(oldest, latest.seq, latest.ts_ms), db=self.tables.about)
        return collect(txn, self.tables, oldest)

    def _put_versions(self, txn: lmdb.Transaction[bytes], versions: dict[bytes, bytes]) -> None:
        """Insert new versions; those that are there must be equal."""
        rows = [(version, versions[version]) for version in sorted(versions)]
        _, added = txn.cursor(self.tables.versions).putmulti(rows, overwrite=False)
        if added < len(rows):
            for version, data in rows:
                _check_same(txn.get(version, db=self.tables.versions), data, version)

    def _check_repeats(self, txn: lmdb.Transaction[bytes], batch: StoreBatch, oldest: int) -> None:
        """Changes that came before must be there, unless they may have been collected."""
        for version, data, seq in batch.repeats:
            if seq > oldest:
                _check_same(txn.get(version, db=self.tables.versions), data, version)

    def _put_progress(self, txn: lmdb.Transaction[bytes], progress: TopicProgress) -> Resolved:
        latest = progress.resolved()
        txn.put(_PROGRESS, msgspec.msgpack.encode(progress), db=self.tables.about)
        txn.put(_RESOLVED, msgspec.msgpack.encode(latest), db=self.tables.about)
        return latest

    def _horizon(
        self, txn: lmdb.Transaction[bytes], retention: Retention, latest: Resolved, oldest: int
    ) -> int:
        """The oldest seq that the retention asks to keep."""
        by_seq, until_ms = retention.bounds(latest)
        if by_seq <= oldest or until_ms < 0:
            return oldest
        return last_until(txn.cursor(self.tables.times), until_ms, oldest, by_seq)


def _check_same(found: bytes | None, data: bytes, version: bytes) -> None:
    if found != data:
        what = "another change" if found is not None else "nothing"
        raise InvariantViolation(
            f"a change that was read before is read again, and the store has {what} at its place "
            f"({version!r}): the changes topic is not what this read model has followed, or a "
            "resolved record came too early; load the read model again from the topic"
        )


def commit_time(times: lmdb.Cursor[bytes], seq: int) -> int:
    """The commit timestamp of the last change or resolved point up to ``seq``; 0 before any."""
    past = times.set_range(pack_seq(seq + 1))
    return unpack_seq(times.value()) if (times.prev() if past else times.last()) else 0


def last_until(times: lmdb.Cursor[bytes], ts_ms: int, oldest: int, latest: int) -> int:
    """The last seq from ``oldest`` to ``latest`` with a commit timestamp up to ``ts_ms``.

    Bisection, since timestamps never fall along the seqs; ``oldest`` if all are later.
    """
    while oldest < latest:
        middle = (oldest + latest + 1) // 2
        if commit_time(times, middle) <= ts_ms:
            oldest = middle
        else:
            latest = middle - 1
    return oldest

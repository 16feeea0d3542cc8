"""The store of a read model: what a batch changes, and how far it is, in one LMDB transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np

from streamydb.errors import InvariantViolation
from streamydb.frames.addresses import SPARE_BYTES, address_of
from streamydb.frames.table import Ragged
from streamydb.read_model.core import ResolvedPoint, Retention, StoreBatch, TopicProgress
from streamydb.read_model.ends import Ends, ShownParts
from streamydb.read_model.environment import MAP_BYTES, Environment, Tables
from streamydb.read_model.errors import StoreFailedError, StoreMismatchError, StoreMissingError
from streamydb.read_model.lookup import find_each
from streamydb.read_model.merging import newer
from streamydb.read_model.rows import DamagedError, Ints, pack_seq, unpack_seq
from streamydb.read_model.runs import Parts, Runs, fits, no_parts, packed, unpacked, view_of
from streamydb.read_model.times import forget_times, last_until
from streamydb.read_model.unresolved import UnresolvedChanges, check_same, new_rows
from streamydb.records.formats import UNREADABLE

if TYPE_CHECKING:
    import lmdb


class _Identity(msgspec.Struct):
    format: int
    database: str


def identity(number: int, database: str) -> bytes:
    return msgspec.json.encode(_Identity(number, database))


def check_identity(stored: bytes, number: int, database: str, folder: Path) -> None:
    """Require that a stored identity (empty: there is none) is of a format and a database.

    Raises:
        StoreMissingError: it is not written yet.
        StoreMismatchError: it is of another format, or of another database.
        StoreFailedError: it is none.
    """
    if not stored:
        raise StoreMissingError(f"the read model in {folder} is still empty; try again")
    try:
        identity = msgspec.json.decode(stored, type=_Identity)
    except UNREADABLE as fault:
        raise StoreFailedError(f"{folder} is no read model: {fault}") from fault
    if identity.database != database:
        raise StoreMismatchError(
            f"the read model in {folder} is of the database {identity.database!r}, not of "
            f"{database!r}; name another folder"
        )
    if identity.format != number:
        raise StoreMismatchError(
            f"the read model in {folder} has format {identity.format}, this program writes format "
            f"{number}; delete the folder and load it again"
        )


FORMAT: Final = 3  # version of the store's layout; raised when an older program would misread it
_IDENTITY = b"identity"
_PROGRESS = b"progress"
_RESOLVED = b"resolved"
_BOUNDS = b"bounds"
_PARTS = b"parts"
_GENERATION = b"generation"
_decode_resolved: Final = msgspec.msgpack.Decoder(ResolvedPoint).decode

_NUMBERS_BITS: Final = 20  # a commit writes fewer than two to the power of so many parts


class SnapshotBounds(NamedTuple):
    """Between which seqs snapshots can be taken, and the commit timestamp of the last one."""

    oldest: int
    latest: int
    ts_ms: int


class StoreView(NamedTuple):
    """A commit as snapshots see it: its number, its bounds, its runs as kernels take them, and the
    parts of these.
    """

    commit: int
    bounds: SnapshotBounds
    view: Ints
    parts: ShownParts


class Store:
    """The file of a read model.

    Attributes:
        environment: the open file.
        database: the database that it belongs to.
        ends: what is remembered of when keys end.
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
        self.ends = Ends()
        self._unresolved = UnresolvedChanges()
        self._last = b"", ResolvedPoint()
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
        return self.environment.tables

    def close(self) -> None:
        self.environment.close()

    def _initialise(self, txn: lmdb.Transaction[memoryview]) -> None:
        about = self.tables.about
        if txn.get(_IDENTITY, db=about) is None:
            self._put_progress(txn, TopicProgress())
            txn.put(_BOUNDS, pack_seq(0, 0, 0), db=about)
            txn.put(_PARTS, b"", db=about)
            txn.put(_IDENTITY, identity(FORMAT, self.database), db=about)

    def _check_identity(self) -> None:
        with self.environment.reading() as txn:
            stored = bytes(txn.get(_IDENTITY, b"", db=self.tables.about))
        check_identity(stored, FORMAT, self.database, self.environment.folder)

    def bounds(self, txn: lmdb.Transaction[memoryview]) -> SnapshotBounds:
        data = txn.get(_BOUNDS, b"", db=self.tables.about)
        return SnapshotBounds(unpack_seq(data), unpack_seq(data[8:]), unpack_seq(data[16:]))

    def shown(self, txn: lmdb.Transaction[memoryview]) -> StoreView:
        """The store as a read transaction sees it; found once for all that see the same.
        Raises StoreFailedError: the file is damaged.
        """
        found: StoreView | None = self.environment.shown
        if found is None or found.commit != txn.id():
            listed = self._listed(txn)
            parts = np.concatenate([no_parts(), *listed])
            view = view_of(listed)
            shown = ShownParts(view, parts["id"].copy(), parts["newest"].copy())
            found = StoreView(txn.id(), self.bounds(txn), view, shown)
            self.environment.shown = found
        return found

    def damaged(self) -> StoreFailedError:
        return StoreFailedError(
            f"what is stored in {self.environment.folder} cannot be read: the file is damaged. "
            "Delete the folder; its follower loads it again"
        )

    def progress(self) -> TopicProgress:
        with self.environment.reading() as txn:
            return self._progress(txn)

    def _progress(self, txn: lmdb.Transaction[memoryview]) -> TopicProgress:
        data = txn.get(_PROGRESS, b"", db=self.tables.about)
        return msgspec.msgpack.decode(data, type=TopicProgress)

    def resolved(self) -> ResolvedPoint:
        """The last seq of which a snapshot can be taken; decoded when it has changed."""
        with self.environment.reading() as txn:
            data = bytes(txn.get(_RESOLVED, b"", db=self.tables.about))
        before, progress = self._last
        if data != before:
            progress = _decode_resolved(data)
            self._last = data, progress
        return progress

    def generation(self) -> str | None:
        with self.environment.reading() as txn:
            stored = txn.get(_GENERATION, db=self.tables.about)
            return None if stored is None else bytes(stored).decode()

    def belong_to(self, generation: str) -> None:
        self.environment.write(
            lambda txn: txn.put(_GENERATION, generation.encode(), db=self.tables.about)
        )

    def newest(self) -> int:
        """Return the largest seq of what is stored, resolved or not; what was collected counts."""
        with self.environment.reading() as txn:
            runs = self._listed(txn)
            return max([self.bounds(txn).latest, *(int(run["newest"].max()) for run in runs)])

    def adopt(self, progress: TopicProgress) -> None:
        self.environment.write(lambda txn: self._put_progress(txn, progress))

    def preload(self, rows: list[bytes]) -> None:
        """Put rows, in the order of their keys and behind those before, into an empty store."""

        def put(txn: lmdb.Transaction[memoryview]) -> None:
            runs = self._runs(txn, 1)
            data = Ragged.of([*rows, bytes(SPARE_BYTES)])
            runs.extend(data.offsets[:-2] + address_of(data.data))
            self._put_parts(txn, runs)
            txn.put(_PARTS, packed(runs.runs), db=self.tables.about)

        self.environment.write(put)

    def begin_at(self, progress: TopicProgress, seq: int, ts_ms: int) -> None:
        """Have a store that was preloaded show the snapshot at ``seq``, and go on from there."""

        def begin(txn: lmdb.Transaction[memoryview]) -> None:
            txn.put(pack_seq(seq), pack_seq(ts_ms), db=self.tables.times)
            self._put_progress(txn, progress)
            txn.put(_BOUNDS, pack_seq(seq, seq, ts_ms), db=self.tables.about)

        self.environment.write(begin)

    def apply(self, batch: StoreBatch, retention: Retention, *, hurry: bool = False) -> bool:
        """Commit a batch, raise the horizon, collect; whether more is left to be collected.

        ``hurry``: collect later, as records wait to be read; see `Runs.settle`.

        Raises:
            InvariantViolation: a change differs from what was read as that change before, or
                comes for the first time although its partition had resolved it; nothing is
                committed.
            StoreBusyError: see `Environment.write`.
            StoreFailedError: see `Environment.write`.
        """
        batch.progress.commits += 1
        return self.environment.write(lambda txn: self._apply(txn, batch, retention, hurry=hurry))

    def _apply(
        self,
        txn: lmdb.Transaction[memoryview],
        batch: StoreBatch,
        retention: Retention,
        *,
        hurry: bool,
    ) -> bool:
        bounds = self.bounds(txn)
        runs = self._runs(txn, batch.progress.commits << _NUMBERS_BITS)
        with self._undamaged():
            added = self._add(runs, batch, self._progress(txn))
            self._check_repeats(runs.view(), batch.repeats, bounds.oldest)
        times = [(pack_seq(seq), pack_seq(ts_ms)) for ts_ms, seq in batch.times.items()]
        txn.cursor(self.tables.times).putmulti(times)
        latest = self._put_progress(txn, batch.progress)
        if latest.seq < bounds.latest:
            raise InvariantViolation(f"resolved went from {bounds.latest} back to {latest.seq}")
        oldest = max(bounds.oldest, self._horizon(txn, retention, latest, bounds.oldest))
        txn.put(_BOUNDS, pack_seq(oldest, latest.seq, latest.ts_ms), db=self.tables.about)
        forget_times(txn, self.tables, oldest)
        with self._undamaged():
            more = runs.settle(oldest, added, latest.seq, hurry=hurry)
        self._put_runs(txn, runs)
        return more

    @contextmanager
    def _undamaged(self) -> Iterator[None]:
        """A block that fails with our error when what is stored is no part."""
        try:
            yield
        except DamagedError as fault:
            raise self.damaged() from fault

    def _runs(self, txn: lmdb.Transaction[memoryview], number: int) -> Runs:
        runs = self._listed(txn)
        ids = [int(run["id"].max()) + 1 for run in runs]
        return Runs(runs, max([number, *ids]))

    def _listed(self, txn: lmdb.Transaction[memoryview]) -> list[Parts]:
        """The stored runs with the addresses of their parts."""
        parts = unpacked(bytes(txn.get(_PARTS, b"", db=self.tables.about)))
        addresses = self.environment.parts(txn, parts["id"].tolist())
        places = np.array(addresses, np.int64).reshape(-1, 2)
        stored = np.maximum(parts["length"], self._apart(txn))
        if not fits(parts) or (places[:, 1] != stored).any():
            raise self.damaged()
        parts["address"] = places[:, 0]
        return [parts[parts["run"] == run] for run in np.unique(parts["run"])]

    def _apart(self, txn: lmdb.Transaction[memoryview]) -> int:
        """The least size of what LMDB gives pages of its own: only that stays where it is."""
        return int(txn.stat(self.tables.versions)["psize"])

    def _put_runs(self, txn: lmdb.Transaction[memoryview], runs: Runs) -> None:
        """Store what is new of the runs, and remove what is gone."""
        self._put_parts(txn, runs)
        for number in runs.gone:
            txn.delete(pack_seq(number), db=self.tables.versions)
        txn.put(_PARTS, packed(runs.runs), db=self.tables.about)

    def _put_parts(self, txn: lmdb.Transaction[memoryview], runs: Runs) -> None:
        least = self._apart(txn)
        for number, data in runs.fresh.items():
            whole = data if len(data) >= least else bytes(data).ljust(least, b"\0")
            txn.put(pack_seq(number), whole, db=self.tables.versions)
        runs.fresh.clear()

    def _add(self, runs: Runs, batch: StoreBatch, before: TopicProgress) -> int:
        """Add what is new, compare the rest; how many bytes were added."""
        suspects = self._unresolved.suspects(before, runs, batch)
        rows = new_rows(runs.view(), batch.rows, suspects)
        runs.add(rows)
        return int(runs.runs[-1]["length"].sum()) if len(rows) else 0

    def _check_repeats(self, view: Ints, rows: Ints, oldest: int) -> None:
        """Changes that came before must be there, unless they may have been collected."""
        rows = newer(rows, oldest)
        if len(rows):
            check_same(find_each(view, rows), rows)

    def _put_progress(
        self, txn: lmdb.Transaction[memoryview], progress: TopicProgress
    ) -> ResolvedPoint:
        latest = progress.resolved()
        txn.put(_PROGRESS, msgspec.msgpack.encode(progress), db=self.tables.about)
        txn.put(_RESOLVED, msgspec.msgpack.encode(latest), db=self.tables.about)
        return latest

    def _horizon(
        self,
        txn: lmdb.Transaction[memoryview],
        retention: Retention,
        latest: ResolvedPoint,
        oldest: int,
    ) -> int:
        """The oldest seq that the retention asks to keep."""
        by_seq, until_ms = retention.bounds(latest)
        if by_seq <= oldest or until_ms < 0:
            return oldest
        return last_until(txn.cursor(self.tables.times), until_ms, oldest, by_seq)

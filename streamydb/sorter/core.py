"""The KeyedEventTimeSorter puts the records of the log into one total order.

A record's *effective time* is the running maximum, along its partition, of append times and marker
numbers. Records are ordered by (effective time, partition, offset) and released when their
effective time is below the *watermark*: the minimum over partitions of the last effective time. A
partition that is added later joins at the effective time of the markers that name it, so its
records never sort before a released one. With one partition its offsets are the order, and no
record is held back. So the order is a pure function of the log.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.blobs import BlobStore
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.hashing import KEY_SEED, hash_ragged
from streamydb.frames.record_rows import (
    CompiledRecords,
    LastRead,
    RecordKeys,
    ReleasedRecords,
    TimedRecords,
)
from streamydb.frames.table import Array, ChildRows, Ragged, chunk_bounds
from streamydb.limits import PLAN_BYTES_MAX
from streamydb.records import CONSTRAINTS_KEY
from streamydb.sorter import checks
from streamydb.sorter.state import NEVER, HeldChunk, PartitionState, SorterState, joins_of

_FOREVER: Final = 2**62
_HELD_CHUNK_RECORDS: Final = 4096
_HELD_CHUNK_BYTES: Final = 4 << 20


class _Held(NamedTuple):
    """The chunks that candidates lie in, with their tables; ``owner``: the chunk of each."""

    chunks: list[tuple[HeldChunk, TimedRecords]]
    owner: npt.NDArray[np.int64]


class Candidates(NamedTuple):
    """The next records of the total order, with their effective times; none is released yet.

    ``limit``, ``bytes_max``: the bounds with which they were chosen. ``held``: where they lie;
    None: they are all records of this micro-batch, and no other record waits.
    """

    records: TimedRecords
    limit: int
    bytes_max: int
    held: _Held | None = None


class KeyedEventTimeSorter:
    """Puts the records of the log into one total order; one instance for a shard and micro-batch.

    In: compiled records of one micro-batch, each with partition, offset and append time; the
    markers of the sequencers are among them.

    Out: the next records of the total order with their effective times, as many as are asked for.
    The order is by effective time, then partition, then offset.

    State: of each partition the effective time and the position that it has been read to, and the
    records that wait, in blobs.

    Invariants: an offset is taken once, in order; only records below the watermark are released,
    and none that comes later sorts before them; the order depends on the log alone, so every shard
    has the same, however its micro-batches were cut.

    A transfer: ``t1`` lies at offset 41 of partition 1 and was appended at 1,000 ms. Partition 0
    has reached 990, so ``t1`` waits. The sequencer's marker lifts both partitions to 1,001. Then
    the watermark is 1,001, and ``t1`` is released after everything before 1,000; the shard gives it
    the next seq, say 7.
    """

    def __init__(self, state: SorterState, blobs: BlobStore) -> None:
        """Continue from ``state``; held records live in ``blobs``."""
        self.state = state
        self._blobs = blobs
        self._fresh: list[TimedRecords] = []
        self._unsaved: dict[str, TimedRecords] = {}

    def add(self, pieces: Iterable[CompiledRecords]) -> None:
        """Take the new records of one micro-batch.

        Several tasks may have read one partition, and their pieces come in any order. Raises
        InvariantViolation: an offset was read before.
        """
        pieces = list(pieces)
        for piece in pieces:
            checks.received(piece)
        parted = [part for piece in pieces for part in by_partition(piece)]
        for partition, records in sorted(parted, key=first_position):
            self._add_partition(partition, records)

    def give_back(self, records: ReleasedRecords) -> None:
        """Take back the records that were released last; they are released again before any others.

        Called after `add`, so that `_fresh` is in order.
        """
        self._fresh = [*(part.timed() for _, part in by_partition(records)), *self._fresh]

    def note_last(self, reads: Iterable[LastRead]) -> None:
        """Note the last records that were read.

        Called after `add`. Several tasks may tell of one partition; the highest offset counts.
        """
        for read in sorted(reads, key=lambda read: (read.partition, read.offset)):
            state = self.state.partitions[read.partition]
            if state.position == read.offset + 1:
                state.stamp, state.mark = read.append_ms, read.mark

    def _add_partition(self, partition: int, records: CompiledRecords) -> None:
        state = self.state.partitions.setdefault(partition, PartitionState())
        offsets = records.offset
        if np.any(offsets[1:] <= offsets[:-1]):
            records = records.take(np.argsort(offsets, kind="stable"))
            offsets = records.offset
        if int(offsets[0]) < state.position or np.any(offsets[1:] <= offsets[:-1]):
            what = f"partition {partition}, offset {offsets[0]}, expected {state.position}"
            raise InvariantViolation(f"a record of the log was read twice ({what})")
        is_marker, marker = records.kind == p.MARKER, records.marker.rows
        times = records.append_ms.copy()
        if is_marker.any():
            times[is_marker] = np.maximum(times[is_marker], marker.number)
        np.maximum.accumulate(times, out=times)
        np.maximum(times, state.effective, out=times)
        state.effective, state.position = int(times[-1]), int(offsets[-1]) + 1
        state.stamp, state.mark = NEVER, ""
        if is_marker.any():
            self._note_names(state, marker.partitions, times[is_marker])
            keep = np.flatnonzero(~is_marker)
            records, times = records.take(keep), times[keep]
        if len(times):
            self._fresh.append(records.timed(times))

    @staticmethod
    def _note_names(
        state: PartitionState, named: npt.NDArray[np.int64], times: npt.NDArray[np.int64]
    ) -> None:
        for count, time in zip(named.tolist(), times.tolist(), strict=True):
            if not state.named or count > state.named[-1][0]:
                state.named = [*state.named, (count, time)]

    def joined(self) -> list[int | None]:
        """Per partition, from when on it takes part in the order (ms); None: not decided yet."""
        return joins_of(self.state)[0]

    def watermark(self) -> int:
        """Return the time (ms) below which records are released, by their effective time."""
        joins, caps = joins_of(self.state)
        if len(joins) == 1 or (joins[1] is None and self.state.initial_partitions == 1):
            return _FOREVER  # partition 0 is alone as long as it does not say otherwise
        last = [
            max(join, self.state.partitions.get(q, PartitionState()).effective)
            for q, join in enumerate(joins)
            if join is not None
        ]
        return min([*last, *caps])

    def covered(self) -> dict[int, int]:
        """Return, per partition, the first offset that has not been released."""
        covered = {q: s.position for q, s in self.state.partitions.items()}
        for chunk in self.state.held:
            covered[chunk.partition] = min(covered[chunk.partition], chunk.offset)
        for table in self._fresh:  # nobody has asked for a release yet; each is of one partition
            q, offset = int(table.partition[0]), int(table.offset[0])
            covered[q] = min(covered[q], offset)
        return covered

    def peek(self, limit: int, bytes_max: int = PLAN_BYTES_MAX) -> Candidates | None:
        """Return the next records of the total order, which may be released; None: there are none.

        At most ``limit``, and no more than ``bytes_max`` bytes if it is more than one.
        """
        if limit <= 0:
            return None
        watermark = self.watermark()
        if watermark == _FOREVER and not self.state.held:
            fresh = alone(self._fresh)
            if fresh is not None and fitting(fresh.size, bytes_max) == len(fresh) <= limit:
                return Candidates(self._with_constraints(fresh), limit, bytes_max)
        self._chunk_fresh()
        return self._peek_held(limit, bytes_max)

    def _peek_held(self, limit: int, bytes_max: int) -> Candidates | None:
        watermark = self.watermark()
        joins, _ = joins_of(self.state)
        chunks = self._candidates(watermark, limit, joins)
        if not chunks:
            return None
        tables = [self._load(chunk, joins) for chunk in chunks]
        merged = TimedRecords.concat(tables)
        rows = first_in_order(merged, watermark, limit)
        rows = rows[: fitting(merged.size[rows], bytes_max)]
        owner = np.repeat(np.arange(len(chunks)), [len(table) for table in tables])[rows]
        held = _Held(list(zip(chunks, tables, strict=True)), owner)
        return Candidates(self._with_constraints(merged.take(rows)), limit, bytes_max, held)

    def take(self, candidates: Candidates, count: int) -> TimedRecords:
        """Release the first ``count`` of the candidates, which were the last that `peek` gave."""
        records, held = candidates.records, candidates.held
        if count < len(records):
            records = records.take(np.arange(count))
            if held is None:
                self._chunk_fresh()
                again = self._peek_held(candidates.limit, candidates.bytes_max)
                held = None if again is None else again.held
        if held is None:
            self._fresh = []
        else:
            # Note that the first ``count`` of the held candidates have been released.
            counts = np.bincount(held.owner[:count], minlength=len(held.chunks)).tolist()
            for (chunk, table), released in zip(held.chunks, counts, strict=True):
                self._advance(chunk, table, released)
            self.state.held = [chunk for chunk in self.state.held if chunk.start < chunk.count]
        self.state.declares = self.state.declares or declares(records)
        checks.released(records, self.watermark(), candidates.limit)
        return records

    def release(self, limit: int, bytes_max: int = PLAN_BYTES_MAX) -> TimedRecords | None:
        """Release all that `peek` gives."""
        candidates = self.peek(limit, bytes_max)
        return None if candidates is None else self.take(candidates, len(candidates.records))

    def _with_constraints(self, records: TimedRecords) -> TimedRecords:
        """Return records that may be released; what follows a declaration reads the constraints."""
        return reading_constraints(records, all_of_them=self.state.declares)

    def _advance(self, chunk: HeldChunk, table: TimedRecords, count: int) -> None:
        """Note that ``count`` more records of ``chunk`` (loaded as ``table``) have been
        released.
        """
        chunk.start += count
        if chunk.start == chunk.count:
            if self._unsaved.pop(chunk.blob, None) is None:
                self._blobs.delete(chunk.blob)
            return
        chunk.time, chunk.offset = int(table.ts_ms[count]), int(table.offset[count])

    def save(self) -> None:
        """Save in blobs all records that this batch leaves waiting. Called once, last."""
        self._chunk_fresh()
        for name, table in self._unsaved.items():
            self._blobs.put(name, pack(table.flatten()))
        self._unsaved = {}

    def _chunk_fresh(self) -> None:
        for table in self._fresh:
            for start, end in chunk_bounds(table.size, _HELD_CHUNK_BYTES, _HELD_CHUNK_RECORDS):
                part = table.part(start, end)
                name = f"held/{self.state.next_blob}"
                self.state.next_blob += 1
                self._unsaved[name] = part
                times, offsets = part.ts_ms, part.offset
                first, last = int(times[0]), int(times[-1])
                partition = int(part.partition[0])
                chunk = HeldChunk(name, partition, 0, len(part), first, int(offsets[0]), last)
                self.state.held.append(chunk)
        self._fresh = []

    def _candidates(
        self, watermark: int, limit: int, joins: Sequence[int | None]
    ) -> list[HeldChunk]:
        """The chunks that may hold the next ``limit`` records below the watermark."""

        def times(chunk: HeldChunk) -> tuple[int, int]:
            join = joins[chunk.partition] if chunk.partition < len(joins) else None
            if join is None:
                return _FOREVER, _FOREVER
            return max(join, chunk.time), max(join, chunk.last)

        spans = [(*times(chunk), chunk) for chunk in self.state.held]
        ready = sorted((s for s in spans if s[0] < watermark), key=lambda s: s[1])
        total, bound = 0, _FOREVER
        for _, last, chunk in ready:
            total += chunk.count - chunk.start
            if total >= limit:
                bound = last
                break
        return [chunk for first, _, chunk in ready if first <= bound]

    def _load(self, chunk: HeldChunk, joins: Sequence[int | None]) -> TimedRecords:
        table = self._unsaved.get(chunk.blob)
        if table is None:
            data = self._blobs.get(chunk.blob)
            if data is None:
                raise InvariantViolation(f"held records {chunk.blob} are missing from the state")
            table = TimedRecords.unflatten(unpack(data)[1])
        rest = table.part(chunk.start, len(table))
        join = joins[chunk.partition]
        return replace(rest, ts_ms=np.maximum(rest.ts_ms, NEVER if join is None else join))


_Records = TypeVar("_Records", CompiledRecords, ReleasedRecords)


def fitting(sizes: npt.NDArray[np.int32], bytes_max: int) -> int:
    """Return how many of the first records fit into a plan; at least one."""
    return max(1, int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), bytes_max, "right")))


def alone(fresh: list[TimedRecords]) -> TimedRecords | None:
    """The batch's records when all are of partition 0, in offset order."""
    if not fresh or any(table.partition[0] != 0 for table in fresh):
        return None
    return TimedRecords.concat(fresh)


def first_in_order(table: TimedRecords, watermark: int, limit: int) -> npt.NDArray[np.int64]:
    """Positions of the first ``limit`` records below the watermark, in order."""
    times = table.ts_ms
    order = np.lexsort((table.offset, table.partition, times))
    return order[: min(limit, int(np.searchsorted(times[order], watermark, "left")))]


def by_partition(records: _Records) -> Iterator[tuple[int, _Records]]:
    """The records of each partition, with its number."""
    parts = records.partition
    if len(parts) and (parts == parts[0]).all():
        yield int(parts[0]), records
        return
    for partition in np.unique(parts).tolist():
        yield partition, records.take(np.flatnonzero(parts == partition))


def first_position(part: tuple[int, CompiledRecords]) -> tuple[int, int]:
    """A key to sort by: the partition of such records, and their lowest offset."""
    partition, records = part
    return partition, int(records.offset.min())


# Before the first declaration of a log nothing reads it, so a database without constraints pays
# nothing for them. The first record that writes the key is found in the total order, so every shard
# finds the same one.
_KEY: Final = CONSTRAINTS_KEY.encode()


def declares(records: TimedRecords) -> bool:
    """Return True if one of the records changes the constraints."""
    return _first(records) is not None


def reading_constraints(records: TimedRecords, *, all_of_them: bool) -> TimedRecords:
    """Return records in their order; those that write and follow a declaration read the key, too.

    ``all_of_them``: a declaration was released before.
    """
    first = 0 if all_of_them else _first(records)
    if first is None:
        return records
    counts, keys = records.keys
    owner = np.repeat(np.arange(len(counts)), counts)
    writing = np.bincount(owner, keys.write, len(counts)) > 0
    writing[:first] = False
    writing[owner[_rows(keys)]] = False
    rows = np.flatnonzero(writing)
    if not len(rows):
        return records
    more = RecordKeys(np.zeros(1, np.uint8), np.array([_hash()], np.uint64), Ragged.of([_KEY]))
    order = np.insert(np.arange(len(keys)), np.cumsum(counts)[rows], len(keys))
    both = RecordKeys.concat([keys, more]).take(order)
    return replace(records, keys=ChildRows(counts + writing, both))


def _first(records: TimedRecords) -> int | None:
    if not (records.kind == p.GENERIC).any():
        return None
    counts, keys = records.keys
    rows = _rows(keys)
    written = rows[keys.write[rows] > 0]
    return int(np.searchsorted(np.cumsum(counts), written[0], "right")) if len(written) else None


def _rows(keys: RecordKeys) -> Array:
    rows = np.flatnonzero(keys.hash == _hash())
    return rows[[keys.key[row] == _KEY for row in rows.tolist()]]


@functools.cache
def _hash() -> np.uint64:
    """Return the hash of the key.

    Not at the import: a kernel computes it, and the compiler that loads kernels takes 30 MB of each
    process that only imports this.
    """
    return np.uint64(hash_ragged(Ragged.of([_KEY]), KEY_SEED)[0])

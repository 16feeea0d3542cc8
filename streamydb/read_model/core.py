"""Turn a batch of records of the changes topic into versions to store, and the new position.

Pure: no LMDB, no Kafka, no clock. Why it is right:

- A version is named by (key, seq) and its bytes are a function of the log, so that a record read
  twice changes nothing.
- A resolved record in a partition stands behind all changes up to its seq in that partition. What
  comes later with such a seq is a repetition: it is never applied (it may be older than what has
  been collected, and would come back to life), only compared.
- A snapshot is complete when every partition has resolved its seq. Newer versions may lie in the
  store already; no snapshot shows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from streamydb.errors import RecordError
from streamydb.frames.addresses import SPARE_BYTES, address_of
from streamydb.frames.table import Ragged
from streamydb.kafka.changes import SourceError
from streamydb.kafka.columns import Record, RecordColumns
from streamydb.limits import ID_BYTES_MAX, INTEGER_MAX, KEY_BYTES_MAX
from streamydb.read_model import checks
from streamydb.read_model.arrivals import Steps, fresh, parted, times_of
from streamydb.read_model.progress import PartitionProgress, ResolvedPoint, TopicProgress
from streamydb.read_model.recognise import UNRECOGNISED, recognised
from streamydb.read_model.rows import Ints, pack_row
from streamydb.records import Resolved as ResolvedRecord
from streamydb.records import is_strange_change
from streamydb.records.formats import FORMAT, UNREADABLE, record_decoder

__all__ = [
    "PartitionProgress",
    "ResolvedPoint",
    "Retention",
    "StoreBatch",
    "TopicProgress",
    "plan",
    "single_change",
]


def _none() -> Ints:
    return np.empty(0, np.int64)


@dataclass(slots=True)
class StoreBatch:
    """The writes to commit at once.

    Attributes:
        progress: how far the topic is read afterwards.
        rows: the changes to store, as they came; see `rows`.
        partitions: of each of them.
        repeats: rows of changes at or below their partition's resolved seq: they must be in the
            store already, unless they have been collected.
        times: timestamp -> the smallest seq with it that the batch tells.
        buffers: what the rows point to.
        strange: partition and offset of records that are none of ours; they are passed over.
    """

    progress: TopicProgress
    rows: Ints = field(default_factory=_none)
    partitions: Ints = field(default_factory=_none)
    repeats: Ints = field(default_factory=_none)
    times: dict[int, int] = field(default_factory=dict)
    buffers: list[Any] = field(default_factory=list)
    strange: list[tuple[int, int]] = field(default_factory=list)

    def followed_by(self, later: StoreBatch) -> StoreBatch:
        """This and a batch that was planned behind it as one."""
        times = dict(self.times)
        for ts_ms, seq in later.times.items():
            times[ts_ms] = min(times.get(ts_ms, seq), seq)
        return StoreBatch(
            later.progress,
            np.concatenate([self.rows, later.rows]),
            np.concatenate([self.partitions, later.partitions]),
            np.concatenate([self.repeats, later.repeats]),
            times,
            [*self.buffers, *later.buffers],
            [*self.strange, *later.strange],
        )


@dataclass(frozen=True, slots=True)
class Retention:
    """The age of the oldest snapshots: at least so many seconds of commit time, and so many seqs.

    Either may be infinite: then nothing is ever collected.
    """

    seconds: float
    seqs: float

    def __post_init__(self) -> None:
        for name, length in (("retention_s", self.seconds), ("retention_seqs", self.seqs)):
            if math.isnan(length) or length < 0:
                raise ValueError(f"{name} must be 0 or more, not {length}")

    def bounds(self, latest: ResolvedPoint) -> tuple[int, int]:
        """The seq, and the time in ms, up to which snapshots may go; negative: none may."""
        if math.inf in (self.seconds, self.seqs):
            return -1, -1
        return latest.seq - int(self.seqs), latest.ts_ms - int(self.seconds * 1000)


class _SourceFields(msgspec.Struct, gc=False):
    db: str
    seq: int


class _TransactionFields(msgspec.Struct, gc=False):
    id: str


class _ChangeFields(msgspec.Struct, gc=False):
    """The part of `streamydb.records.Change` that a read model needs."""

    op: str
    after: msgspec.Raw
    ts_ms: int
    source: _SourceFields
    transaction: _TransactionFields
    expires_ms: int | None = None
    format: int = FORMAT


_NULL: Final = b"null"
_decode_change = msgspec.json.Decoder(_ChangeFields).decode
_decode_resolved: Callable[[bytes], ResolvedRecord] = record_decoder(ResolvedRecord, "resolved")


def plan(
    records: RecordColumns, ends: Mapping[int, int], progress: TopicProgress, database: str
) -> StoreBatch:
    """Return the writes that follow from reading some records.

    ``records``: each partition's in order; those before its position are left out. ``ends``:
    partitions that were read to an end, which may lie behind control records. ``progress``: how far
    the topic was read before; not changed.
    Raises RecordError: a record of ours is not what this topic holds.
    """
    batch = StoreBatch(progress.copy())
    if records:
        _read(batch, records, database)
    parts = batch.progress.parts
    for number, end in ends.items():
        parts[number].position = max(parts[number].position, end)
    checks.progressed(_positions(progress), _positions(batch.progress))
    return batch


def _positions(progress: TopicProgress) -> dict[int, int]:
    return {number: part.position for number, part in progress.parts.items()}


def _read(batch: StoreBatch, records: RecordColumns, database: str) -> None:
    """Make rows of changes, and note what the records resolve."""
    parts = batch.progress.parts
    positions, resolved = np.zeros((2, max(parts) + 1), np.int64)
    for number, part in parts.items():
        positions[number], resolved[number] = part.position, part.resolved.seq
    partitions, offsets = records.partitions, records.offsets
    if int(partitions.max()) >= len(positions):
        raise SourceError(f"partition {partitions.max()} of the changes was not there before")
    news = fresh(partitions, offsets, positions)
    buffer, rows = recognised(records.keys, records.values, database)
    rows[news == 0] = UNRECOGNISED
    others = _Others(batch, database)
    for i in np.flatnonzero((rows == UNRECOGNISED) & (news == 1)).tolist():
        others.read(i, records[i])
    places, packed = others.packed()
    rows[places] = packed
    batch.rows, batch.partitions, batch.repeats = parted(rows, partitions, resolved, others.steps())
    batch.buffers += [buffer]
    for number, part in parts.items():
        part.position = int(positions[number])
    for ts_ms, seq in times_of(batch.rows, batch.partitions, len(positions)).tolist():
        _note_time(batch, ts_ms, seq)


class _Others:
    """The records of a batch that the kernel does not recognise, one by one."""

    def __init__(self, batch: StoreBatch, database: str) -> None:
        self._batch, self._database = batch, database
        self._steps: list[tuple[int, int, int]] = []
        self._places: list[int] = []
        self._rows: list[bytes] = []

    def read(self, i: int, record: Record) -> None:
        value = record.value()
        if value is None:
            return
        number = record.partition()
        part = self._batch.progress.parts[number]
        try:
            key = record.key()
            if key is None:
                _resolve(self._batch, part, value)
                self._steps.append((i, number, part.resolved.seq))
            else:
                self._rows.append(single_change(key, value, self._database))
                self._places.append(i)
        except (*UNREADABLE, ValueError, RecordError) as fault:
            if is_strange_change(value):
                self._batch.strange.append((number, record.offset()))
                return
            raise RecordError(
                f"partition {number}, offset {record.offset()} of the changes of {self._database} "
                f"cannot be applied: {fault}"
            ) from fault

    def packed(self) -> tuple[list[int], Ints]:
        """The places of the changes among them, and their rows."""
        rows = Ragged.of([*self._rows, bytes(SPARE_BYTES)])
        self._batch.buffers.append(rows.data)
        return self._places, rows.offsets[:-2] + address_of(rows.data)

    def steps(self) -> Steps:
        columns = np.array(self._steps, np.int64).reshape(-1, 3).T
        return Steps(*np.ascontiguousarray(columns))


def single_change(key: bytes, value: bytes, database: str) -> bytes:
    """The row of a change."""
    change = _decode_change(value)
    if change.format != FORMAT:
        raise RecordError(f"it has format {change.format}, this release reads {FORMAT}: upgrade it")
    txn_id = change.transaction.id.encode()
    seq = change.source.seq
    if change.source.db != database:
        raise RecordError(f"it is a change of the database {change.source.db!r}")
    if not 0 < len(key) <= KEY_BYTES_MAX or len(txn_id) > ID_BYTES_MAX:
        raise RecordError("its key or id is beyond the limits")
    if seq < 1 or change.ts_ms < 0:
        raise RecordError("its seq or timestamp is not a positive number")
    key.decode()
    after = bytes(change.after)
    if (change.op == "d") != (after == _NULL):
        raise RecordError(f"its operation is {change.op!r}, which does not fit the value it leaves")
    end = change.expires_ms
    if end is not None and (change.op == "d" or not 1 <= end <= INTEGER_MAX):
        raise RecordError(f"its end is {end}, which is no time, or the end of what it deletes")
    return pack_row(key, seq, change.ts_ms, txn_id, b"" if change.op == "d" else after, end or 0)


def _resolve(batch: StoreBatch, part: PartitionProgress, value: bytes) -> None:
    resolved = _decode_resolved(value)
    if resolved.resolved < 0 or resolved.ts_ms < 0:
        raise RecordError("its seq or timestamp is negative")
    offsets = {int(q): offset for q, offset in resolved.offsets.items()}
    before = part.resolved
    if resolved.resolved < before.seq:
        return
    if resolved.resolved == before.seq:
        for q, offset in before.offsets.items():
            offsets[q] = max(offset, offsets.get(q, 0))
    part.resolved = ResolvedPoint(resolved.resolved, resolved.ts_ms, offsets)
    _note_time(batch, resolved.ts_ms, resolved.resolved)


def _note_time(batch: StoreBatch, ts_ms: int, seq: int) -> None:
    """Note the smallest seq that has a timestamp.

    It is a change's above what is resolved, or a resolved one, which may come again with the same
    time: so the time of a snapshot that was shown never changes.
    """
    earlier = batch.times.get(ts_ms)
    if earlier is None or seq < earlier:
        batch.times[ts_ms] = seq

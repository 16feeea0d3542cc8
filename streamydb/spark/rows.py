"""Records of the changes and results topics as columns (no Spark)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamydb.backup.snapshots.rows import RowsDigest
from streamydb.errors import ConfigurationError, RecordError
from streamydb.kafka.strangers import ChangeRecords
from streamydb.records import Change, Duplicate, Resolved, Result, decode_result, is_strange_result

EVENTS: Final = (
    "partition int, offset bigint, resolved boolean, key string, seq bigint, index bigint, "
    "ts_ms bigint, op string, before string, after string, txn_id string, expires_ms bigint, "
    "offsets string"
)
"""Changes, and resolved records (`seq` is what they resolve, `offsets` what of the log).

``expires_ms`` is 0 without an end: pandas makes floats of integers with nulls.
"""

RESULTS: Final = (
    "id string, seq bigint, ts_ms bigint, status string, code string, reads string, "
    "failed string, partition int, offset bigint, duplicate_of bigint, ranges string"
)
"""Results; the place is that of the record in the log, `duplicate_of` the seq it repeats."""

DIGESTS: Final = "rows bigint, total binary"  # digests of parts

_EVENTS: Final = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("resolved", pa.bool_()),
        ("key", pa.string()), ("seq", pa.int64()), ("index", pa.int64()), ("ts_ms", pa.int64()),
        ("op", pa.string()), ("before", pa.string()), ("after", pa.string()),
        ("txn_id", pa.string()), ("expires_ms", pa.int64()), ("offsets", pa.string()),
    ]
)  # fmt: skip
_RESULTS: Final = pa.schema(
    [
        ("id", pa.string()), ("seq", pa.int64()), ("ts_ms", pa.int64()), ("status", pa.string()),
        ("code", pa.string()), ("reads", pa.string()), ("failed", pa.string()),
        ("partition", pa.int32()), ("offset", pa.int64()), ("duplicate_of", pa.int64()),
        ("ranges", pa.string()),
    ]
)  # fmt: skip


def events(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of (partition, offset, key, value) of the changes topic as `EVENTS`.

    Tombstones, and what something else has written there, are left out. Raises RecordError: a
    record of ours cannot be read.
    """
    changes = ChangeRecords("the changes")
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("partition", "offset", "key"))
        rows = zip(*columns, batch.column("value").to_pylist(), strict=True)
        event_rows = (_event(changes, *row) for row in rows)
        yield _table([event for event in event_rows if event is not None], _EVENTS)


def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of (value) of the results topic as `RESULTS`; what is no result is left out.
    Raises RecordError: a result cannot be read.
    """
    for batch in batches:
        values = batch.column("value").to_pylist()
        decoded = (_read(value) for value in values if value)
        yield _table([_result(result) for result in decoded if result is not None], _RESULTS)


def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The digest of all rows of a task as one row of `DIGESTS`.

    The rows have the columns key, value, version, ts_ms, expires_ms.
    """
    digest = RowsDigest()
    for batch in batches:
        key, value = (batch.column(name).cast(pa.binary()).to_pylist() for name in ("key", "value"))
        numbers = (batch.column(name).to_pylist() for name in ("version", "ts_ms", "expires_ms"))
        for row in zip(key, value, *numbers, strict=True):
            digest.add(*row)
    total = pa.array([digest.total.to_bytes(16, "little")], pa.binary())
    yield pa.record_batch([pa.array([digest.rows], pa.int64()), total], names=["rows", "total"])


def _table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _event(
    changes: ChangeRecords, partition: int, offset: int, key: bytes | None, value: bytes | None
) -> tuple[Any, ...] | None:
    record = changes.read(partition, offset, value)
    if record is None:
        return None
    if isinstance(record, Resolved):
        offsets = msgspec.json.encode(record.offsets).decode()
        seq, ts_ms = record.resolved, record.ts_ms
        return partition, offset, True, None, seq, 0, ts_ms, None, None, None, None, 0, offsets
    try:
        name = "" if key is None else key.decode()
    except UnicodeDecodeError as fault:
        raise RecordError(f"the changes, partition {partition}, offset {offset}: {fault}") from None
    return (partition, offset, False, name, *_change(record), None)


def _change(record: Change) -> tuple[Any, ...]:
    transaction = record.transaction
    return (
        record.source.seq, transaction.total_order, record.ts_ms, record.op,
        _text(record.before), _text(record.after), transaction.id, record.expires_ms or 0,
    )  # fmt: skip


def _read(value: bytes) -> Result | None:
    try:
        return decode_result(value)
    except RecordError:
        if is_strange_result(value):
            return None
        raise


def _result(result: Result) -> tuple[Any, ...]:
    seq, ts_ms, place = result.seq, result.ts_ms, (result.source.partition, result.source.offset)
    original = None
    if isinstance(result.duplicate, Duplicate):
        original, seq, ts_ms = seq, result.duplicate.seq, result.duplicate.ts_ms
        place = (result.duplicate.partition, result.duplicate.offset)
    reads, failed = (msgspec.json.encode(part).decode() for part in (result.reads, result.failed))
    ranges = msgspec.json.encode(result.ranges or []).decode()
    return (
        result.id,
        seq,
        ts_ms,
        result.status,
        result.code,
        reads,
        failed,
        *place,
        original,
        ranges,
    )


def _text(value: msgspec.Raw) -> str | None:
    """JSON text; None for null, which stands for absent."""
    data = bytes(value)
    return None if data == b"null" else data.decode()


_MARK: Final = (-2).to_bytes(8, "little", signed=True)  # the first bytes of what is packed
_Name = tuple[int, int, str]  # (seq, index, key)
_decode = msgspec.msgpack.Decoder(tuple[str, list[_Name]]).decode


class SeenRecords:
    """The records that were seen of one partition: what comes again after a crash is left out.

    Spark's own ways do not fit: `dropDuplicates` keeps every name for good, and a watermark drops
    rows that are late, as those of a partition that is read later than others are. The changes
    topic itself says what can be forgotten: behind a record "resolved: n" of a partition, every
    change up to n in that partition is a repetition. What must be remembered are the changes above
    it that have been seen: those of the plans under way. A change is known by (seq, index, key).

    A topic that was deleted and made anew has other records at the same offsets, and Spark's Kafka
    source goes on where it was: it would skip what is before that. So Kafka's id of the topic is
    remembered, too.

    Attributes:
        resolved: everything up to this seq.
        above: the names of those beyond it.
        topic: Kafka's id of the topic that the partition is of; empty if nobody told it.
    """

    def __init__(self, resolved: int = 0, above: bytes = b"", topic: str = "") -> None:
        """Begin where another one, whose `pack` gave ``above``, ended.
        Raises ConfigurationError: that one was of another topic than ``topic``.
        """
        self.resolved = resolved
        known, names = _decode(above[len(_MARK) :]) if above else ("", [])
        if known and topic and known != topic:
            raise ConfigurationError(
                f"The topic of the changes was made anew: the checkpoint belongs to the topic with "
                f"the id {known}, and it has {topic} now. Name another checkpoint, and make anew "
                f"what the query has written."
            )
        self.topic = topic or known
        self.above: set[_Name] = set(names)

    def fresh(self, events: Iterable[tuple[int, int, str | None, bool]]) -> npt.NDArray[np.bool_]:
        """Mark the events that are changes and come for the first time.

        Args:
            events: (seq, index, key, whether it is a resolved record), in the order of their
                offsets.
        """
        return np.array([self._is_fresh(*event) for event in events], np.bool_)

    def pack(self) -> bytes:
        """Encode what to remember beside `resolved`."""
        return _MARK + msgspec.msgpack.encode((self.topic, sorted(self.above)))

    def _is_fresh(
        self,
        seq: int,
        index: int,
        key: str | None,
        resolved: bool,  # noqa: FBT001
    ) -> bool:
        if resolved:
            if seq > self.resolved:
                self.resolved = seq
                self.above = {name for name in self.above if name[0] > seq}
            return False
        name = seq, index, key or ""
        if seq <= self.resolved or name in self.above:
            return False
        self.above.add(name)
        return True

"""Arrow batches: blocks and records as Spark's rows, and rows as columns of byte strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamydb.frames.invariants import HANDED_IN, HANDED_ON, Seam
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged, chunk_bounds, starts_of
from streamydb.kafka.names import TopicNames
from streamydb.pipeline.spool import NO_SPOOL, Spool
from streamydb.txn_processor.outputs import OutputRecords

# The seed of Spark's own `hash`, by which it partitions a shuffle.
_SEED: Final = 42
_MASK: Final = 0xFFFFFFFF


def spark_hash(value: int, seed: int = _SEED) -> int:
    """Spark's Murmur3 hash (x86, 32 bit) of an INT, as a signed 32-bit number."""
    k = (value & _MASK) * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    h = seed ^ (k * 0x1B873593 & _MASK)
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


@cache
def tokens(n: int) -> tuple[int, ...]:
    """For each of ``n`` destinations an INT that Spark puts on the partition of that number."""
    by_partition: dict[int, int] = {}
    value = 0
    while len(by_partition) < n:
        by_partition.setdefault(spark_hash(value) % n, value)
        value += 1
    return tuple(by_partition[q] for q in range(n))


_BLOCKS = pa.schema(
    [("token", pa.int32()), ("dest", pa.int32()), ("seq", pa.int64()), ("block", pa.binary())]
)
_RECORDS = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
    ]
)
_RUN_BYTES: Final = 3 << 20


def runs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in runs of a good size for blocks."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= _RUN_BYTES:
            yield from _cut(gathered)
            gathered, size = [], 0
    yield from _cut(gathered)


def _cut(gathered: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if not gathered:
        return
    for batch in pa.Table.from_batches(gathered).combine_chunks().to_batches():
        values = batch.column(4)
        ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
        sizes = np.diff(ends)
        for start, end in chunk_bounds(sizes, _RUN_BYTES, batch.num_rows):
            yield batch.slice(start, end - start)


def block_rows(rows: list[tuple[int, int, bytes]], destinations: int) -> pa.RecordBatch:
    """Blocks as rows for a shard each; a row is (shard, seq, block)."""
    routes = tokens(destinations)
    columns = [
        pa.array([routes[dest] for dest, _, _ in rows], pa.int32()),
        pa.array([dest for dest, _, _ in rows], pa.int32()),
        pa.array([seq for _, seq, _ in rows], pa.int64()),
        pa.array([block for _, _, block in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_BLOCKS)


@cache
def _topics(database: str, pipeline: str) -> tuple[bytes, ...]:
    """Return the names of the topics of `OutputRecords.topic`."""
    names = TopicNames(database)
    topics = (
        names.results,
        names.changes,
        names.feedback_of(pipeline),
        names.deadletters,
        names.digests,
        names.streams,
        names.transactions,
    )
    return tuple(map(str.encode, topics))


def arrow_records(parts: Sequence[OutputRecords], config: ShardConfig) -> pa.RecordBatch:
    """Records as rows for Spark's Kafka sink; at least one part."""
    counts = [len(paired(part).values) for part in parts]
    names = [_topics(config.database, config.name)[part.topic] for part in parts]
    lengths = np.repeat([len(name) for name in names], counts)
    text = b"".join(name * count for name, count in zip(names, counts, strict=True))
    partitions = np.repeat(np.array([part.partition for part in parts], np.int32), counts)
    columns = [
        pa.Array.from_buffers(
            pa.string(), len(lengths), [None, _ends(starts_of(lengths)), pa.py_buffer(text)]
        ),
        _texts(Ragged.concat([part.keys for part in parts])),
        _texts(Ragged.concat([part.values for part in parts])),
        pa.Array.from_buffers(
            pa.int32(), len(lengths), [_valid(partitions >= 0), pa.py_buffer(partitions)]
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_RECORDS)


def ragged(texts: pa.Array) -> Ragged | list[bytes | None]:
    """An Arrow array of byte strings; a list if one is null. The data is not copied."""
    if texts.null_count or not len(texts):
        found: list[bytes | None] = texts.to_pylist()
        return found
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset).astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Ragged(raw, bounds)


def _texts(texts: Ragged) -> pa.Array:
    """Byte strings as an Arrow array, null where empty; the data is not copied."""
    valid = _valid(texts.offsets[1:] > texts.offsets[:-1])
    data = pa.py_buffer(np.ascontiguousarray(texts.data))
    return pa.Array.from_buffers(pa.binary(), len(texts), [valid, _ends(texts.offsets), data])


def _ends(offsets: npt.NDArray[np.int64]) -> pa.Buffer:
    return pa.py_buffer(offsets.astype(np.int32))


def _valid(valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Return the bits that tell which rows are not null; None: all of them."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


_BLOCK = Seam("pipeline", HANDED_IN, "a block")
_RECORDS_OUT = Seam("pipeline", HANDED_ON, "records")
_ARROW_BYTES_MAX: Final = (1 << 31) - 1
"""Of the texts of one column: Arrow tells where they end in 32 bits."""


def blocks_for(number: int, rows: Iterable[Any], spool: Spool = NO_SPOOL) -> Iterator[bytes]:
    """The blocks of rows but for empty ones; require that they came to where they were sent."""
    for row in rows:
        _BLOCK.require(row.dest == number, "it came where it was sent", here=number, to=row.dest)
        if row.block:
            yield spool.read(bytes(row.block))


def paired(records: OutputRecords) -> OutputRecords:
    """Hand on records; require keys and values in pairs, and that they fit a batch of Arrow's."""
    keys, values = len(records.keys), len(records.values)
    _RECORDS_OUT.require(keys == values, "each has a key and a value", keys=keys, values=values)
    size = max(int(texts.offsets[-1]) for texts in (records.keys, records.values))
    _RECORDS_OUT.require(size <= _ARROW_BYTES_MAX, "a batch has at most 2 GiB of texts", bytes=size)
    return records

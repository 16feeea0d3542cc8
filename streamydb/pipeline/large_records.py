"""Give Spark the memory for a record that is larger, unpacked, than a batch of the log may be.

Kafka's client unpacks a record before anybody can judge it, and Spark copies it some times, so such
a record ends a JVM whose heap is too small. A log that is made by this release takes none
(`kafka.topic_plans.UNPACKED`), but one whose setting was changed may. When the JVM has ended,
`note` looks for them in what it was reading. The next start has the room for the largest, and gives
it a verdict at its position, as every other replay of the log does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from streamydb.errors import StreamyError
from streamydb.kafka.errors import KafkaException
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import PackedError, ReadingError, TopicReader
from streamydb.kafka.topic_plans import RECORD_BYTES_MAX
from streamydb.limits import max_offsets
from streamydb.local.file_lock import write_whole
from streamydb.local.resources import spark_defaults
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.repair import begins_of, numbered, offsets_of
from streamydb.records.formats import UNREADABLE

log = logging.getLogger("streamydb.pipeline")

_HEAPS: Final = ("spark.driver.memory", "spark.executor.memory")
_COPIES: Final = 6
"""So many times the record's size is added to the heap: Kafka's client and Spark copy it.

A JVM that ends at the record all the same has the next one get as much again.
"""

_GATHERED_BYTES: Final = 64 << 20
"""So many bytes of records are gathered at once while large ones may be among them."""

_POLLED_RECORDS_MAX: Final = 20_000
_UNITS: Final = {"": 1 / (1 << 20), "k": 1 / 1024, "m": 1, "g": 1024, "t": 1 << 20}
_USED_UP: Final = re.compile(
    r"OutOfMemoryError|Java heap space|Requested array size|Cannot grow BufferHolder|"
    r"ExecutorLostFailure"
)
_SIZE: Final = re.compile(r"(\d+)\s*([kmgt]?)b?", re.IGNORECASE)


class LargeRecord(msgspec.Struct, frozen=True):
    """A record of the log that is larger than a batch may be.

    Attributes:
        partition: where it is.
        offset: likewise.
        size: of its value, in bytes.
        heap_mb: the heap that shall pass it on; 0: none is known.
    """

    partition: int
    offset: int
    size: int
    heap_mb: int = 0


def with_room(config: PipelineConfig) -> PipelineConfig:
    """Return a configuration with room for the record that has ended the JVM of an earlier start.

    Once it has been read, the configuration is as usual again.
    """
    record = _known(config)
    if record is None:
        config.large_record.unlink(missing_ok=True)
        return config
    settings = _given(config)
    heaps = {name: f"{max(record.heap_mb, _megabytes(settings[name]))}m" for name in _HEAPS}
    # Arrow's batches are bounded in bytes: 500 such records would be gigabytes.
    settings = {**heaps, "spark.sql.execution.arrow.maxBytesPerBatch": str(_GATHERED_BYTES)}
    log.warning(
        "room for the record at partition %d, offset %d of the log, which has %s bytes unpacked: "
        "a heap of %s", record.partition, record.offset, f"{record.size:,}", settings[_HEAPS[0]],
    )  # fmt: skip
    polled = max(1, min(_POLLED_RECORDS_MAX, _GATHERED_BYTES // record.size))
    return replace(
        config, spark_conf={**config.spark_conf, **settings}, poll_records=polled,
        large_offset=record.offset,
    )  # fmt: skip


def heap_is_used_up(messages: Iterable[str]) -> bool:
    """Return True if a query failed because a JVM, perhaps an executor's, had too little memory."""
    return any(map(_USED_UP.search, messages))


def note(config: PipelineConfig) -> str | None:
    """Note the largest record that the JVM was reading when it ended; say what will be done.

    None: there is no large one, or nobody tells.
    """
    topic = TopicNames(config.settings.database).transactions
    heap = _given(config)[_HEAPS[0]]
    try:
        record = largest(config.settings.client_config(), topic, _read(config.checkpoint, topic))
        if record is None:
            return None
        needed = _megabytes(heap) + (_COPIES * record.size >> 20)
        noted = msgspec.structs.replace(record, heap_mb=needed)
        write_whole(config.large_record, msgspec.json.encode(noted))
    except PackedError as error:
        return str(error)
    except (StreamyError, ReadingError, KafkaException, OSError) as error:
        log.info("whether a large record was being read is not known: %s", error)
        return None
    # `spark-submit` starts the JVM before us.
    by_hand = f" (here: `spark-submit --driver-memory {needed}m`)" if config.master is None else ""
    return (
        f"the record at partition {record.partition}, offset {record.offset} of {topic} has "
        f"{record.size:,} bytes unpacked, more than the JVM could pass on with a heap of {heap}. "
        f"Start the pipeline again: it gives Spark a heap of {needed:,} MB until that record is "
        f"rejected{by_hand}{_lacking(needed)}. `streamydb doctor` names the "
        "setting that keeps others out (docs/operations.md, 'A large record')"
    )


def largest(
    connection: Mapping[str, str], topic: str, read: Mapping[int, int]
) -> LargeRecord | None:
    """Return the largest record among the next ones of a log, if a batch may not be so large.

    Nothing but its size is taken of a record.

    ``read``: up to which offset each partition was read.
    Raises ReadingError: Kafka does not answer.
    """
    records = (
        LargeRecord(record.partition(), record.offset(), len(record))
        for record in _next_records(connection, topic, read)
        if len(record) > RECORD_BYTES_MAX
    )
    return max(records, key=lambda record: record.size, default=None)


def _next_records(
    connection: Mapping[str, str], topic: str, read: Mapping[int, int]
) -> Iterator[Any]:
    """Yield the records that the next micro-batch may read, and some more."""
    records_max = max_offsets(2)
    with TopicReader(connection, topic) as reader:
        next_spans = {}
        for number, (low, high) in reader.spans().items():
            start = max(low, read.get(number, 0))
            next_spans[number] = start, min(high, start + records_max)
        yield from reader.between(next_spans)


def _known(config: PipelineConfig) -> LargeRecord | None:
    """Return the record that was noted, unless it has been read."""
    try:
        record = msgspec.json.decode(config.large_record.read_bytes(), type=LargeRecord)
    except (OSError, *UNREADABLE):
        return None
    topic = TopicNames(config.settings.database).transactions
    read = _read(config.checkpoint, topic).get(record.partition, 0)
    return record if read <= record.offset else None


def _given(config: PipelineConfig) -> dict[str, str]:
    return {**spark_defaults(), **config.spark_conf}


def _read(checkpoint: Path, topic: str) -> dict[int, int]:
    """Up to which offsets the batches that were done have read, by partition."""
    last = max(numbered(checkpoint / "query" / "commits"), default=-1)
    return offsets_of(checkpoint, last).get(topic) or begins_of(checkpoint).get(topic, {})


def _lacking(needed: int) -> str:
    """Say that this machine has not so much memory, and what helps then."""
    total = psutil.virtual_memory().total >> 20
    if needed < total:
        return ""
    return (
        f"; this machine has {total:,} MB, so start it on a larger one, or begin a database "
        "without that record (`streamydb fork`)"
    )


def _megabytes(text: str) -> int:
    """Return a size as Spark reads it, in megabytes; one without a unit is in bytes."""
    match = _SIZE.fullmatch(text.strip())
    return int(int(match[1]) * _UNITS[match[2].lower()]) if match else 0

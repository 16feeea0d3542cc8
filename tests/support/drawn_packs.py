"""Draws records of all sizes and pauses, packs them, and says what is wrong with what Python sees.

Each partition of a job is a task, with records of its own: none, one, or many; without bytes, null,
or larger than a pack. The source pauses until the record before was seen. The consumer is slow: now
and then it waits until the source is done, or has given nothing for a while: it may have to wait
for the consumer.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from streamydb.pipeline.realtime.packing import PACK_BYTES_MAX, PACK_RECORDS_MAX, Packing

RECORD_BYTES = 100
"""A record counts for so many bytes more than its value has, as `RecordPacking.java` has it."""

SIZES = (
    None,
    0,
    1,
    200,
    200,
    200,
    70_000,
    PACK_BYTES_MAX // 3,
    PACK_BYTES_MAX - RECORD_BYTES,
    PACK_BYTES_MAX + 1,
    PACK_BYTES_MAX + 700_000,
)
FEW, BURST = 40, 2 * PACK_RECORDS_MAX + 500
COUNTS = (FEW, BURST, 0, 1, FEW)
PAUSES = (0.3, 0.0, 0.0, 0.0, 0.02)
"""Records of each task, and which share of them pauses; only the burst has no large ones."""

STEP = 10_000
"""Offsets of a task begin at a multiple of it."""

RECORD = "offset BIGINT, append_ms BIGINT, value BINARY"
SEEN = "pack INT, offset BIGINT, append_ms BIGINT, bytes BIGINT, hash STRING"
SLOW_S = 0.5


class Record(NamedTuple):
    """A drawn record; ``pauses``: it comes when the one before was seen."""

    value: bytes | None
    append_ms: int
    pauses: bool


def drawing(seed: int) -> Callable[[int], Record]:
    """Return a function that draws the record of an offset, on any machine the same."""
    step, burst, sizes, pauses, of_record = STEP, COUNTS.index(BURST), SIZES, PAUSES, Record

    def draw(offset: int) -> Record:
        dice = random.Random(seed * 1_000_003 + offset)
        task = offset // step
        size = dice.choice(sizes[:4] if task == burst else sizes)
        value = None if size is None else dice.randbytes(size)
        pause = bool(offset % step) and dice.random() < pauses[task]
        return of_record(value, dice.randrange(1 << 40), pause)

    return draw


def source(
    folder: Path, draw: Callable[[int], Record], pause_s: float
) -> Callable[..., Iterator[object]]:
    """Return a function that yields the records of its rows, and tells when it has."""

    def records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamydb.local.launcher import wait_until
        from streamydb.pipeline.realtime.wire import of_this_worker

        offset = -1
        progress = None
        for batch in batches:
            for offset in batch.column(0).to_pylist():
                record = draw(offset)
                before = folder / f"seen-{offset - 1}"
                if record.pauses and not wait_until(before.exists, pause_s, 0.001):
                    raise TimeoutError(f"the record at offset {offset - 1} is held back")
                progress = progress or (folder / f"progress-{offset // 10_000}").open("ab", 0)
                progress.write(b".")
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([offset], pa.int64()),
                        pa.array([record.append_ms], pa.int64()),
                        pa.array([record.value], pa.binary()),
                    ],
                    names=["offset", "append_ms", "value"],
                )
                of_this_worker().flush()
        if progress is not None:
            progress.close()
        (folder / f"given-{offset // 10_000}").touch()

    return records


def consumer(
    folder: Path, draw: Callable[[int], Record], seed: int
) -> Callable[..., Iterator[object]]:
    """Return a function that yields the hash of each record, with the number of its pack."""
    slow_s = SLOW_S

    def wait(task: int) -> None:
        from streamydb.local.launcher import wait_until

        given, progress = folder / f"given-{task}", folder / f"progress-{task}"
        size = -1
        while not given.exists() and size != (now := progress.stat().st_size):
            size = now
            wait_until(given.exists, slow_s, 0.01)

    def see(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from streamydb.pipeline.realtime.rows import records_of

        dice = random.Random(seed)
        for number, batch in enumerate(batches):
            rows = []
            for offset, append_ms, value in records_of(batch):
                size = -1 if value is None else len(value)
                digest = hashlib.sha256(value or b"").hexdigest()
                rows.append((number, offset, append_ms, size, digest))
                if draw(offset + 1).pauses:
                    (folder / f"seen-{offset}").touch()
            if rows:
                if dice.random() < 0.25:
                    wait(rows[0][1] // 10_000)
                types = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.string())
                yield pa.RecordBatch.from_arrays(
                    [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)],
                    names=["pack", "offset", "append_ms", "bytes", "hash"],
                )

    return see


def problems(
    spark: SparkSession, packing: Packing, seed: int, folder: Path, pause_s: float = 60.0
) -> list[str]:
    """Pack drawn records; return what is wrong with what Python has seen.

    Raises:
        PySparkException: a record was held back for ``pause_s``, or something failed.
    """
    folder.mkdir(exist_ok=True)
    draw = drawing(seed)
    seen: list[tuple[int, int, int, int, str]] = []
    found: list[str] = []
    for task, count in enumerate(COUNTS):
        first = STEP * task
        rows = spark.range(first, first + count, 1, 1)
        rows = rows.mapInArrow(source(folder, draw, pause_s), RECORD)
        packed = packing.rows(rows).mapInArrow(consumer(folder, draw, seed), SEEN)
        seen = [tuple(row) for row in packed.collect()]
        expected = [_seen(offset, draw(offset)) for offset in range(first, first + count)]
        if [row[1:] for row in seen] != expected:
            found.append(f"task {task}: {len(seen)} of {count} records, or others")
        found += [f"task {task}: {what}" for what in _too_large(seen)]
    return found


def _seen(offset: int, record: Record) -> tuple[int, int, int, str]:
    value = record.value
    digest = hashlib.sha256(value or b"").hexdigest()
    return offset, record.append_ms, -1 if value is None else len(value), digest


def _too_large(seen: list[tuple[int, int, int, int, str]]) -> Iterator[str]:
    """Yield the packs that took a record when they were full already."""
    records: Counter[int] = Counter()
    before: Counter[int] = Counter()  # bytes before the last record
    last: Counter[int] = Counter()
    for pack, _, _, size, _ in seen:
        records[pack] += 1
        before[pack] += last[pack]
        last[pack] = RECORD_BYTES + max(size, 0)
    for pack, count in records.items():
        if count > PACK_RECORDS_MAX or before[pack] >= PACK_BYTES_MAX:
            yield f"pack {pack} has {count} records, {before[pack]} bytes before the last"

"""Choose rows of a table of records: by partition, in order, as many as fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamydb.frames.record_rows import CompiledRecords, ReleasedRecords, TimedRecords

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

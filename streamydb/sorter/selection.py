"""Choose rows of a table of records: by partition, in order, as many as fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamydb.columns.table import Columns


def fitting(sizes: npt.NDArray[np.int32], bytes_max: int) -> int:
    """Return how many of the first records fit into a plan; at least one."""
    return max(1, int(np.searchsorted(np.cumsum(sizes, dtype=np.int64), bytes_max, "right")))


def alone(fresh: list[Columns]) -> Columns | None:
    """The batch's records when all are of partition 0, in offset order."""
    if not fresh or any(table.cols["part"][0] != 0 for table in fresh):
        return None
    return Columns.concat(fresh)


def first_in_order(table: Columns, watermark: int, limit: int) -> npt.NDArray[np.int64]:
    """Positions of the first ``limit`` records below the watermark, in order."""
    times = table.cols["ts"]
    order = np.lexsort((table.cols["off"], table.cols["part"], times))
    return order[: min(limit, int(np.searchsorted(times[order], watermark, "left")))]


def by_partition(records: Columns) -> Iterator[tuple[int, Columns]]:
    """The records of each partition, with its number."""
    parts = records.cols["part"]
    if len(parts) and (parts == parts[0]).all():
        yield int(parts[0]), records
        return
    for partition in np.unique(parts).tolist():
        yield partition, records.take(np.flatnonzero(parts == partition))


def first_position(part: tuple[int, Columns]) -> tuple[int, int]:
    """A key to sort by: the partition of such records, and their lowest offset."""
    partition, records = part
    return partition, int(records.cols["off"].min())

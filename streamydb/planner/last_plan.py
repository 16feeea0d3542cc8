"""The plan that this process has made last.

Every shard makes the same plan. Where there are more shards than cores, one process runs the tasks
of several shards one after the other, and the first of them plans for all. A plan is a pure
function of the records, so what is kept is only spared work: it is used if all that a plan depends
on is equal, array by array, and made anew otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.table import Array
from streamydb.planner.conflicts import Ints
from streamydb.planner.plan import Plan

Planned: TypeAlias = tuple[Plan, Ints]
"""A plan, and for each transaction the one before with the same id."""

_Maker = Callable[[TimedRecords, int], Planned]


class LastPlan:
    """One plan, with the records that it is of, and who made it."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self._kept: tuple[object, int, list[Array], Planned] | None = None

    def forget(self) -> None:
        """Free the memory of what is kept: some 100 bytes a transaction."""
        self._kept = None

    def of(self, records: TimedRecords, procs: int, make: _Maker) -> Planned:
        """Return the plan of some records; nobody may change it.

        ``make`` is called if it is not kept. A plan for one partition is not worth keeping, as no
        other shard asks for it, and one with ranges depends on more than is compared.
        """
        ranges = records.ranges
        if procs == 1 or (ranges is not None and len(ranges.rows)):
            return make(records, procs)
        read, kept = _read(records), self._kept
        if kept is not None and kept[:2] == (make, procs) and all(map(_is_equal, kept[2], read)):
            return kept[3]
        planned = make(records, procs)
        self._kept = make, procs, read, planned
        return planned


def _is_equal(one: Array, other: Array) -> bool:
    """Return True if two arrays are equal; shards that share their records have the same."""
    return one is other or np.array_equal(one, other)


def _read(records: TimedRecords) -> list[Array]:
    """All that a plan depends on; the hashes of the keys follow from their texts."""
    counts, keys = records.keys
    texts = keys.key
    return [records.kind, records.id0, counts, keys.write, texts.offsets, texts.data]

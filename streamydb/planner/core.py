"""The planner makes one plan of the next records, as many as may touch a bounded number of bytes.

Its steps: find the transactions that conflict and give each conflict group to a partition
(`conflicts`); ask for the sizes of the values that the plan touches; if they are too many bytes,
plan the first records again, as many as are within the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.jit import kernel
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.sizes import SYSTEM
from streamydb.frames.table import Array, Bytes, Ragged, starts_of
from streamydb.frames.value_rows import ValueRows
from streamydb.limits import PLAN_RECORDS_MAX, VALUE_BYTES_MAX
from streamydb.planner import checks
from streamydb.planner.conflicts import earlier_with_same_id, plan_transactions
from streamydb.planner.plan import Plan

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_PACE_MIN: Final = 16
"""Fewest records that are released again after a plan was cut by its values."""


class SizedSlots(NamedTuple):
    """The bytes of the value of each slot of a plan, (s,); ``values``: the values, if they were
    read to know that.
    """

    bytes: Ints
    values: ValueRows | None = None


class SlotSizes(Protocol):
    """The sizes of values, which all shards know alike."""

    def of(self, hashes: Hashes, keys: Ragged, bytes_max: int) -> SizedSlots:
        """Return the sizes of the values of keys; a sum above ``bytes_max`` need not be exact."""


class PlannedRecords(NamedTuple):
    """A plan of the first ``size`` candidates.

    ``earlier``: of each the one before it with the same id, or -1, (size,). ``values``: of all
    slots, if they were read to know their sizes.
    """

    plan: Plan
    earlier: Ints
    size: int
    values: ValueRows | None = None


class Planner:
    """Plans for the shards of a database, each of which has one executing partition.

    In: candidates, the next records of the total order; the sizes of values.

    Out: a plan of the first of them: the partition of each transaction, and the slot of each key.

    State: none; ``last`` only spares work.

    Invariants: every shard makes the same plan; a plan has one transaction at least; no two
    partitions share a key that one of them writes, or an id.

    A transfer: ``t1`` writes ``alice`` and ``bob``, and the next one, ``t2``, reads ``bob``. So
    both are one conflict group. Partition 2 gets the group, and ``alice`` is slot 0 of the plan.
    """

    def __init__(self, shards: int, last: LastPlan) -> None:
        """Plan for so many partitions; ``last``: the plan that this process has made last."""
        self._shards = shards
        self._last = last

    def plan(self, candidates: TimedRecords, sizes: SlotSizes, bytes_max: int) -> PlannedRecords:
        """Plan as many of the candidates as touch values of at most ``bytes_max`` bytes."""
        planned = self._sized(candidates, sizes, bytes_max)
        if planned.size == len(candidates):
            return planned
        first = candidates.take(np.arange(planned.size))
        again = self._sized(first, sizes, bytes_max)
        if again.size < len(first):
            raise InvariantViolation("a part of a plan that is small enough is too large")
        return again

    def _sized(self, records: TimedRecords, sizes: SlotSizes, bytes_max: int) -> PlannedRecords:
        """Plan all records; ``size`` says how many of the first may be one plan."""
        plan, earlier = self._last.of(records, self._shards, _planned)
        if len(records) == 1:
            return PlannedRecords(plan, earlier, 1)
        keys = records.keys.rows
        sized = sizes.of(keys.hash[plan.first], keys.key.take(plan.first), bytes_max)
        size = affordable(records, plan, sized.bytes, bytes_max)
        return PlannedRecords(plan, earlier, size, sized.values)


def _planned(records: TimedRecords, procs: int) -> Planned:
    """Plan records for partitions; a plan that is used again is not checked again."""
    earlier = earlier_with_same_id(records.id0, records.kind != p.REJECTED)
    plan = plan_transactions(records, earlier, procs)
    checks.planned(records, plan, earlier, procs)
    return plan, earlier


class Pace(NamedTuple):
    """The most records that a shard releases after a plan was cut; 0: any number.

    The records that were cut off lie in blobs, and each plan reads them again. So a shard releases
    at most twice as many as a plan took that was cut, and four times as many after one that was
    not.

    Attributes:
        records: how many.
        made: bytes that a partition of the plan before has made, at most.
        bytes_max: bytes that one may make.
    """

    records: int
    made: int
    bytes_max: int

    def after(self, candidates: int, planned: int) -> int:
        """Return the next pace when so many of the candidates were planned."""
        if planned < candidates:
            return max(2 * planned, _PACE_MIN)
        if 2 * self.made > self.bytes_max:
            return self.records
        return 4 * self.records if 4 * self.records < PLAN_RECORDS_MAX else 0


# Choose how many records make one plan, by the bytes of the values that they touch.
#
# The shards grant every value that a plan touches once, so it costs its bytes. A large value costs
# them again for each further transaction that touches it, because that one's result or change
# may contain the value. A small value costs a share of its bytes again: outputs are written in
# blocks, so they may have more bytes than the grants, but not without a bound.
#
# A value may be as large as the largest record that writes it. Appends and calls can leave larger
# values, which only their execution shows (`key_processor.withdrawals`).
COPIED_BYTES = 4_096
"""A larger value costs again."""

_SHARE: Final = 8
"""A smaller one costs this part of its bytes again."""


@kernel
def _affordable(
    starts: Ints,
    slot: Ints,
    write: Bytes,
    sizes: Ints,
    system: npt.NDArray[np.bool_],
    records: Ints,
    bound: int,
    copied: int,
) -> int:
    seen = np.zeros(len(sizes), np.bool_)
    total = 0
    for i in range(len(starts) - 1):
        for k in range(starts[i], starts[i + 1]):
            s = slot[k]
            if not seen[s]:
                seen[s] = True
                total += sizes[s]
            elif write[k] != 0 or not system[s]:
                total += sizes[s] if sizes[s] > copied else sizes[s] // _SHARE
            if write[k] != 0 and records[i] > sizes[s]:
                sizes[s] = records[i]
        if i > 0 and total > bound:
            return i
    return len(starts) - 1


def affordable(released: TimedRecords, plan: Plan, sizes: Ints, bound: int) -> int:
    """Return how many of the first transactions touch values of at most ``bound`` bytes; at least
    one.

    ``sizes``: of the value of each slot of ``plan``. Values of the system that are only looked at,
    as the versions of modules are, cost once.
    """
    counts, keys = released.keys
    records = released.size.astype(np.int64)
    largest = max(int(sizes.max(initial=0)), int(records.max(initial=0)))
    copies = len(keys) * largest // _SHARE
    if largest <= COPIED_BYTES and int(sizes.sum()) + copies <= bound:
        return len(counts)
    texts = keys.key
    system = texts.data[texts.offsets[plan.first]] == SYSTEM
    write = keys.write
    return int(
        _affordable(
            starts_of(counts),
            plan.slot,
            write,
            sizes.copy(),
            system,
            np.minimum(records, VALUE_BYTES_MAX),
            bound,
            COPIED_BYTES,
        )
    )


# Every shard makes the same plan. Where there are more shards than cores, one process runs the
# tasks of several shards one after the other, and the first of them plans for all. A plan is a pure
# function of the records, so what is kept is only spared work: it is used if all that a plan
# depends on is equal, array by array, and made anew otherwise.
Planned: TypeAlias = tuple[Plan, Ints]
"""A plan, and for each transaction the one before with the same id."""

_Maker = Callable[[TimedRecords, int], Planned]


class LastPlan:
    """One plan, with the records that it is of, and who made it."""

    def __init__(self) -> None:
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

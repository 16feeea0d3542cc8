"""Checks of what the planner hands on; see `frames.invariants`."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.frames.invariants import HANDED_ON, Seam
from streamydb.frames.jit import kernel
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.table import Bytes
from streamydb.planner.plan import Plan

Ints = npt.NDArray[np.int64]

_PLANNED = Seam("planner", HANDED_ON, "a plan")


@kernel
def _conflict(counts: Ints, keys: tuple[Ints, Bytes], proc: Ints, earlier: Ints, slots: int) -> int:
    """Return where a transaction shares a written key, or an id, with one of another partition.

    Every writer puts down its partition, and everybody looks who was the last: no step depends on
    whether a key was met before, which a processor could not foresee.
    """
    slot, write = keys
    writer = np.full(slots, -1, np.int8)
    end = 0
    for i in range(len(proc)):
        if earlier[i] >= 0 and proc[earlier[i]] != proc[i]:
            return i
        begin, end = end, end + counts[i]
        for k in range(begin, end):
            if write[k] != 0:
                writer[slot[k]] = proc[i]
    end = 0
    for i in range(len(proc)):
        begin, end = end, end + counts[i]
        for k in range(begin, end):
            if writer[slot[k]] >= 0 and writer[slot[k]] != proc[i]:
                return i
    return -1


@kernel
def _wrong_plan(slot: Ints, first: Ints, proc: Ints, procs: int) -> tuple[int, int]:
    """Return where a key or a transaction has no place, or a slot begins with another key."""
    for k in range(len(slot)):
        if slot[k] < 0 or slot[k] >= len(first):
            return 0, k
    for s in range(len(first)):
        if first[s] < 0 or first[s] >= len(slot) or slot[first[s]] != s:
            return 0, s
    for i in range(len(proc)):
        if proc[i] < 0 or proc[i] >= procs:
            return 1, i
    return -1, -1


_PLAN_FACTS: Final = ("each key has one slot", "partitions are those that there are")


def planned(records: TimedRecords, plan: Plan, earlier: Ints, procs: int) -> None:
    """Require a plan of these records of which no two partitions share a key that one of them
    writes, or an id.
    """
    n, keys = len(records), records.keys.rows
    complete = len(plan.proc) == n and len(plan.slot) == len(keys)
    _PLANNED.require(complete, "a plan is of all its records", records=n, planned=len(plan.proc))
    wrong = _wrong_plan(plan.slot, plan.first, plan.proc, procs)
    _PLANNED.require_none(wrong, _PLAN_FACTS, records=n, partitions=procs)
    if procs == 1:
        return
    touched = plan.slot, keys.write
    at = _conflict(records.keys.counts, touched, plan.proc, earlier, len(plan.first))
    _PLANNED.require(
        at < 0, "no two partitions share a key that one of them writes, or an id", row=at
    )

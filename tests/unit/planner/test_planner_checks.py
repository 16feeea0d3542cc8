"""Each invariant of the planner fires when what it is about is damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamydb.frames.record_rows import TimedRecords
from streamydb.planner import checks
from streamydb.planner.plan import Plan
from tests.support.seams import Damage, must_fire


def slot_of_another(_: TimedRecords, plan: Plan, *__: Any) -> None:
    plan.slot[[0, -1]] = plan.slot[[-1, 0]]
    if len(plan.first) < 2:
        raise IndexError


def no_such_slot(_: TimedRecords, plan: Plan, *__: Any) -> None:
    plan.slot[0] = len(plan.first)


def no_such_partition(_: TimedRecords, plan: Plan, __: Any, procs: int) -> None:
    plan.proc[0] = procs


def unplanned(_records: TimedRecords, plan: Plan, *_: Any) -> None:
    plan.proc = plan.proc[1:]


def torn_group(released: TimedRecords, plan: Plan, _earlier: Any, procs: int) -> None:
    counts, keys = released.keys
    owner = np.repeat(np.arange(len(counts)), counts)
    written = plan.slot[keys.write > 0]
    shared = np.flatnonzero(np.bincount(written) > 1)[0]
    members = owner[plan.slot == shared]
    if procs == 1 or len(np.unique(members)) < 2:
        raise IndexError
    plan.proc[members[-1]] = (plan.proc[members[0]] + 1) % procs


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (slot_of_another, "one slot"),
        (no_such_slot, "one slot"),
        (no_such_partition, "partitions are"),
        (unplanned, "all its records"),
        (torn_group, "no two partitions share"),
    ],
)
def test_a_damaged_plan_stops_the_batch(damage: Damage, fact: str) -> None:
    must_fire(checks.planned, damage, f"planner .*{fact}")

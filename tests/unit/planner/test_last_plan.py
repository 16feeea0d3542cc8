"""A plan is made again unless all that it depends on is equal."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
from msgspec.structs import replace

from streamydb.frames import program as p
from streamydb.frames.hashing import hash_ragged
from streamydb.frames.record_rows import RecordKeys, RecordRanges, TimedRecords
from streamydb.frames.table import Array, ChildRows, Ragged
from streamydb.planner.conflicts import earlier_with_same_id, plan_transactions
from streamydb.planner.core import LastPlan, Planned
from tests.support.opened import to_plan
from tests.support.seeds import seeds


class Planner:
    """Plans, and counts how often."""

    def __init__(self) -> None:
        self.made = 0

    def make(self, records: TimedRecords, procs: int) -> Planned:
        self.made += 1
        valid = records.kind != p.REJECTED
        earlier = earlier_with_same_id(records.id0, valid)
        return plan_transactions(records, earlier, procs), earlier


def table(dice: random.Random, n: int = 30) -> TimedRecords:
    """Records as the planner reads them."""
    counts = np.array([dice.randrange(4) for _ in range(n)], np.int64)
    texts = Ragged.of([b"key%d" % dice.randrange(20) for _ in range(int(counts.sum()))])
    write = np.array([dice.randrange(2) for _ in range(len(texts))], np.uint8)
    keys = RecordKeys(write, hash_ragged(texts), texts)
    kinds = np.array([dice.choice([p.SIMPLE, p.REJECTED]) for _ in range(n)], np.uint8)
    ids = np.array([dice.randrange(20) for _ in range(n)], np.uint64)
    return to_plan(kinds, ids, ChildRows(counts, keys))


def as_bytes(planned: Planned) -> list[bytes]:
    plan, earlier = planned
    return [each.tobytes() for each in (plan.slot, plan.first, plan.proc, earlier)]


def changed(dice: random.Random, records: TimedRecords) -> TimedRecords:
    """A copy, of which one thing is different, somewhere."""
    other = copy.deepcopy(records)
    counts, keys = other.keys
    arrays: list[Array] = [other.kind, other.id0, keys.write, keys.key.data]
    array = dice.choice(arrays)
    array[dice.randrange(len(array))] ^= 1
    keys.hash[:] = hash_ragged(keys.key)
    if dice.random() < 0.2:
        full = np.flatnonzero(counts)
        counts[full[0]] -= 1
        counts[-1] += 1
    return other


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_it_is_what_would_be_planned_anew(seed: int) -> None:
    dice = random.Random(seed)
    last, planner, naive = LastPlan(), Planner(), Planner()
    records, procs = table(dice), 3
    same = 0
    for _ in range(40):
        step = dice.random()
        if step < 0.3:
            records = changed(dice, records)
        elif step < 0.4:
            procs = dice.choice([2, 3, 8])
        elif step < 0.5:
            last.forget()
        else:
            same += 1
        asked = copy.deepcopy(records)
        found = last.of(asked, procs, planner.make)
        assert as_bytes(found) == as_bytes(naive.make(records, procs))
    assert planner.made <= 1 + 40 - same, "what is equal is not planned again"


def test_who_plans_otherwise_plans_for_itself() -> None:
    records, last, one, other = table(random.Random(1)), LastPlan(), Planner(), Planner()
    for planner in (one, one, other, one):
        last.of(records, 2, planner.make)
    assert (one.made, other.made) == (2, 1)


def test_a_single_partition_and_ranges_are_not_kept() -> None:
    records, last, planner = table(random.Random(2)), LastPlan(), Planner()
    last.of(records, 2, planner.make)
    for _ in range(2):
        last.of(records, 1, planner.make)
    bounds = RecordRanges(np.zeros(1, np.uint8), Ragged.of([b"key1"]), Ragged.of([b"key9"]))
    named = np.zeros(len(records), np.int64)
    named[0] = 1
    records = replace(records, ranges=ChildRows(named, bounds))
    for _ in range(2):
        assert last.of(records, 2, planner.make)[0].ranges is not None
    assert planner.made == 5

"""Shards that share a process share records and a plan: nobody changes them, and they are the ones
of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unittest import mock

from simulator.run import run_seed
from streamydb.frames.record_messages import LogRecords
from streamydb.frames.record_rows import CompiledRecords, TimedRecords
from streamydb.key_processor.inbox import LastRecords
from streamydb.planner.core import LastPlan, Planned
from tests.support.seeds import seeds

SEEDS = range(0, 2 * seeds(12, 6), 2)


def test_a_plan_that_is_used_again_is_still_what_its_shard_would_plan() -> None:
    again = 0
    of = LastPlan.of

    def judged(
        self: LastPlan,
        records: TimedRecords,
        procs: int,
        make: Callable[[TimedRecords, int], Planned],
    ) -> Planned:
        nonlocal again
        kept = self._kept
        found = of(self, records, procs, make)
        if kept is not None and found is kept[-1]:
            again += 1
            assert as_bytes(found) == as_bytes(make(records, procs))
        return found

    with mock.patch.object(LastPlan, "of", judged):
        for seed in SEEDS:
            assert not run_seed(seed, 60, "planner").problems
    assert again > 10


def as_bytes(planned: Planned) -> list[bytes]:
    plan, earlier = planned
    return [each.tobytes() for each in (plan.slot, plan.first, plan.proc, earlier)]


def test_records_that_are_used_again_are_still_what_their_shard_would_open() -> None:
    again = 0
    of = LastRecords.of

    def judged(self: LastRecords, told: Sequence[LogRecords], shards: int) -> list[CompiledRecords]:
        nonlocal again
        kept = self._kept
        found = of(self, told, shards)
        if kept is not None and self._kept is kept and found:
            again += 1
            assert list(map(flat, found)) == list(map(flat, of(LastRecords(), told, shards)))
        return found

    with mock.patch.object(LastRecords, "of", judged):
        for seed in SEEDS:
            assert not run_seed(seed, 60, "planner").problems
            assert not run_seed(seed, 60, "single").problems
    assert again > 10


def flat(table: CompiledRecords) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in table.flatten().items()}

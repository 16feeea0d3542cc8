"""Plans whose appends and calls make too much: withdrawn, made smaller, and as if never made."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.withdrawals import Withdrawals
from streamydb.limits import PLAN_RECORDS_MAX
from streamydb.planner.core import Pace
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import execute_in_parts
from streamydb.txn_processor.outcome import ExecutionOutcome as Executed
from streamydb.txn_processor.outcome import OutputBudget

BOUND, SIZE = 100_000, 4_000


def appends(number: int) -> dict[str, Any]:
    """One of the transactions that grow one value, by more each time."""
    update = {"op": "append", "key": "list", "value": "x" * (SIZE // 20)}
    return {"id": f"a{number}", "updates": [update], "reads": ["list"]}


def puts(number: int) -> dict[str, Any]:
    """One that reads a large value which another one of the same plan may have put."""
    if number % 20 == 0:
        return {"id": f"p{number}", "updates": [{"op": "put", "key": "k", "value": "x" * SIZE * 2}]}
    return {"id": f"p{number}", "reads": ["k"]}


class Watched:
    """How much each partition of a plan has made, and how many plans were withdrawn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[int] = []
        self.plans: list[int] = []
        self.withdrawn = 0
        stands = Withdrawals.stands

        def executed(*args: Any, **named: Any) -> Iterator[Executed]:
            for found in execute_in_parts(*args, **named):
                self.made.append(found.made)
                self.plans.append(len(found.txns))
                yield found

        def standing(withdrawals: Withdrawals, plan: Any) -> bool:
            found = stands(withdrawals, plan)
            self.withdrawn += not found
            return found

        monkeypatch.setattr("streamydb.txn_processor.core.execute_in_parts", executed)
        monkeypatch.setattr(Withdrawals, "stands", standing)


def ran(transactions: list[dict[str, Any]], shards: int, told: list[int] | None = None) -> Cluster:
    """A cluster that has executed these, all of them in the log before it begins.

    ``told`` gets the bytes of the results of each micro-batch.
    """
    log = SimulatedLog(random.Random(1), 1)
    config = ShardConfig("sim", f"withdrawing {shards}", shards, 1, 1000)
    cluster = Cluster(config, log, random.Random(1), crashes=0.0)
    cluster.life = Life("a", PlanShape(values_bytes_max=BOUND))
    for transaction in transactions:
        log.append(json.dumps(transaction).encode())
    while cluster.behind():
        before = len(cluster.written)
        cluster.batch(all_of_it=True)
        if told is not None:
            outputs = cluster.written[before:]
            told.append(sum(len(w.value or b"") for w in outputs if w.topic == o.RESULTS))
    judge(cluster, log, SeedOutcome(0))
    return cluster


@pytest.mark.fault(
    37, "100 appends to one value in one plan, each read back: 1 MB of values that grow",
    "the plan is withdrawn and made smaller; equal to the oracle",
)  # fmt: skip
@pytest.mark.parametrize("shards", [1, 3])
def test_a_plan_that_makes_too_much_is_withdrawn(
    shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Watched(monkeypatch)
    cluster = ran([appends(number) for number in range(100)], shards)
    assert seen.withdrawn >= shards
    most = 2 * 100 * SIZE // 20 + 2 * SIZE
    assert max(seen.made) < BOUND + 3 * most
    needed = sum(3 * number * SIZE // 20 for number in range(100))
    assert sum(seen.made) < 2 * needed, "what was withdrawn is done again, but seldom"
    for node in cluster.nodes:
        assert not [name for name in node.blobs.blobs if name.startswith("plan/")]


def test_values_that_a_plan_puts_count_where_it_touches_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Watched(monkeypatch)
    ran([puts(number) for number in range(200)], 1)
    assert seen.withdrawn == 0
    assert max(seen.plans) < 2 + BOUND // (2 * SIZE)


@pytest.mark.fault(
    37, "400 short transactions of one plan each read 10 kB, or fail on them, in small values",
    "smaller plans, all told; the results of a micro-batch bounded",
)  # fmt: skip
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("asked", ["reads", "ranges", "asserts"])
def test_small_values_that_many_transactions_tell_count_again(shards: int, asked: str) -> None:
    keys = [f"k{number}" for number in range(10)]
    held = [{"op": "put", "key": key, "value": "x" * 1_000} for key in keys]
    parts: dict[str, Any] = {"reads": keys if asked == "reads" else [{"range": {"prefix": "k"}}]}
    if asked == "asserts":
        parts = {"asserts": dict.fromkeys(keys, 0)}
    others = [{"id": f"t{number}", **parts} for number in range(400)]
    told: list[int] = []
    ran([{"id": "held", "updates": held}, *others], shards, told)
    assert sum(told) > 4_000_000
    assert max(told) < 10 * BOUND


@pytest.mark.fault(
    37, "3000 short transactions fail on a value that grew in the same plan, and tell it",
    "the plan is withdrawn and made smaller; the results of a micro-batch bounded",
)  # fmt: skip
@pytest.mark.parametrize("shards", [1, 3])
def test_what_a_plan_makes_counts_again_where_the_kernel_tells_it(
    shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Watched(monkeypatch)
    update = {"op": "append", "key": "list", "value": "x" * 280}
    grown = [{"id": f"a{number}", "updates": [update]} for number in range(3)]
    others = [{"id": f"t{number}", "asserts": {"list": 0}} for number in range(3_000)]
    told: list[int] = []
    ran([*grown, *others], shards, told)
    assert sum(told) > 20 * BOUND
    assert max(told) < 10 * BOUND
    assert seen.withdrawn >= shards


def test_how_much_fits() -> None:
    most = OutputBudget(first=10, bytes=100)
    assert most.fits(100, 15) == 0
    assert most.fits(101, 15) == 5
    assert most.fits(101, 10) == 0, "at least one"
    assert OutputBudget(first=10).fits(1 << 60, 15) == 0
    assert Pace(0, 0, 100).after(9, 9) == 0
    assert Pace(20, 51, 100).after(9, 9) == 20
    assert Pace(20, 50, 100).after(9, 9) == 80
    assert Pace(PLAN_RECORDS_MAX // 4, 0, 100).after(9, 9) == 0
    assert Pace(0, 0, 100).after(99, 90) == 180
    assert Pace(0, 0, 100).after(99, 1) == 16


def test_what_is_alone_may_make_what_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Watched(monkeypatch)
    values = [{"op": "append", "key": f"k{i}", "value": "x" * SIZE} for i in range(60)]
    ran([{"id": "a", "updates": values}, {"id": "b", "updates": values}], 1)
    assert max(seen.made) > 2 * BOUND
    assert seen.plans == [1, 1], "a large record that appends weighs much"

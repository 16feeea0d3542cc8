"""What the driver may announce when a micro-batch has ended."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from streamydb import limits
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.shards import ShardConfig

BOUND, SIZE = 100_000, 20_000


def told(parts: list[list[dict[str, Any]]], shards: int) -> tuple[list[bytes], list[bytes]]:
    """What the driver announced and what the shards resolved, while a log was executed by parts."""
    log = SimulatedLog(random.Random(1), 1)
    config = ShardConfig("sim", f"notices {shards}", shards, 1, 10_000)
    cluster = Cluster(config, log, random.Random(1), crashes=0.0)
    cluster.life = Life("a", PlanShape(values_bytes_max=BOUND))
    for part in parts:
        for transaction in part:
            log.append(json.dumps(transaction).encode())
        while cluster.behind():
            cluster.batch(all_of_it=True)
    judge(cluster, log, SeedOutcome(0))
    announced = [r.value or b"" for r in cluster.written if r.announced]
    rest = [r.value or b"" for r in cluster.written if not r.announced]
    return announced, [value for value in rest if value.startswith(b'{"resolved"')]


def add(number: int) -> dict[str, Any]:
    """A transaction that needs no more than one micro-batch."""
    return {"id": f"a{number}", "updates": [{"op": "add", "key": f"k{number % 5}", "by": 1}]}


@pytest.mark.parametrize("shards", [1, 3])
def test_a_plain_plan_is_announced_as_the_shards_resolve_it(shards: int) -> None:
    announced, resolved = told([[add(n) for n in range(part, part + 7)] for part in (0, 7)], shards)
    assert [json.loads(value)["resolved"] for value in announced] == [7, 14]
    assert set(announced) <= set(resolved)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_plan_that_is_told_in_turns_is_not(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 2 * SIZE + 2_000)
    put = {"id": "p", "updates": [{"op": "put", "key": "k", "value": "x" * SIZE}]}
    gone = {"id": "d", "updates": [{"op": "delete", "key": "k"}]}
    reads = [{"id": f"r{number % 3}", "reads": ["k"]} for number in range(203)]
    announced, resolved = told([[put, *reads[:3], gone], reads[3:]], shards)
    assert {json.loads(value)["resolved"] for value in announced} == {5}
    assert {json.loads(value)["resolved"] for value in resolved} == {5, 205}


def test_a_plan_that_may_be_withdrawn_is_not() -> None:
    appends = [
        {"id": f"a{n}", "updates": [{"op": "append", "key": "list", "value": "x"}]}
        for n in range(4)
    ]  # fmt: skip
    announced, resolved = told([appends, [add(1)]], 1)
    assert {json.loads(value)["resolved"] for value in announced} == {5}
    assert {json.loads(value)["resolved"] for value in resolved} == {4, 5}

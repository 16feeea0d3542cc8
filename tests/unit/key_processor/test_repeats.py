"""Results of transactions that repeat one of an earlier plan: known, and told in turns."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from streamydb import limits
from streamydb.frames.messages import KnownResults
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.shards import ShardConfig
from streamydb.frames.value_rows import Verdicts
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.idwindow import IdWindow, IdWindowState
from streamydb.key_processor.memory import MemoryBlobs, MemoryIdTables

BOUND, SIZE = 100_000, 20_000


class Told:
    """How many bytes of results each shard has told in each of its steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[int] = []
        self.blocks: list[int] = []
        step = KeyTransactionProcessor.step

        def watched(shard: KeyTransactionProcessor, messages: Any) -> Any:
            self.steps.append(0)
            for emitted in step(shard, messages):
                told = emitted.message
                if isinstance(told, KnownResults):
                    self.blocks.append(len(told.records.value.data))
                    self.steps[-1] += self.blocks[-1]
                yield emitted

        monkeypatch.setattr(KeyTransactionProcessor, "step", watched)


def read(number: int, key: str = "k") -> dict[str, Any]:
    """A transaction that reads a key."""
    return {"id": f"r{number}", "reads": [key]}


def put(number: int, value: str | None) -> dict[str, Any]:
    """A transaction that writes the key, or deletes it."""
    update = {"op": "delete"} if value is None else {"op": "put", "value": value}
    return {"id": f"p{number}", "updates": [{"key": "k", **update}]}


def ran(
    parts: list[list[dict[str, Any]]], shards: int, *, window: int = 10_000, crashes: float = 0.0
) -> Cluster:
    """A cluster that has executed some parts of a log, one after the other."""
    log = SimulatedLog(random.Random(1), 1)
    config = ShardConfig("sim", f"repeats {shards}", shards, 1, window)
    cluster = Cluster(config, log, random.Random(1), crashes=crashes)
    cluster.life = Life("a", PlanShape(values_bytes_max=BOUND))
    for part in parts:
        for transaction in part:
            log.append(json.dumps(transaction).encode())
        while cluster.behind():
            cluster.batch(all_of_it=True)
    judge(cluster, log, SeedOutcome(0))
    for node in cluster.nodes:
        assert not [name for name in node.blobs.blobs if name.startswith("plan/")]
    return cluster


@pytest.mark.fault(
    37, "a large result is asked for 200 times again when its value is gone",
    "told in turns, in bounded blocks; equal to the oracle",
)  # fmt: skip
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("crashes", [0.0, 0.3])
def test_a_large_result_that_is_repeated_is_told_in_turns(
    shards: int, crashes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 2 * SIZE + 2_000)
    told = Told(monkeypatch)
    value = "x" * SIZE
    repeats = [read(number % 3) for number in range(200)]
    first = [put(1, value), read(0), read(1), read(2), put(2, None)]
    ran([first, repeats, [put(3, "y")]], shards, crashes=crashes)
    assert max(told.steps) <= BOUND
    assert max(told.blocks) <= 2 * SIZE + 2_000
    assert sum(told.blocks) >= 200 * SIZE


def test_originals_are_remembered_until_the_last_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's own ids push those that it repeats out of the window."""
    told = Told(monkeypatch)
    first = [put(1, "x" * SIZE), *[read(number) for number in range(30)]]
    fresh = [read(100 + number, "nothing") for number in range(60)]
    ran([first, [put(2, None)], [*[read(number) for number in range(30)], *fresh]], 1, window=64)
    assert sum(step > 0 for step in told.steps) > 2


@pytest.mark.parametrize("op", ["put", "append"])
def test_repetitions_within_a_plan_come_in_bounded_blocks(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 3 * SIZE)
    update = {"op": op, "key": "k", "value": "x" * SIZE}
    one = {"id": "one", "updates": [update], "reads": ["k"]}
    log = SimulatedLog(random.Random(1), 1)
    cluster = Cluster(ShardConfig("sim", op, 1, 1, 1000), log, random.Random(1), crashes=0.0)
    cluster.life = Life("a", PlanShape(values_bytes_max=BOUND))
    for _ in range(50):
        log.append(json.dumps(one).encode())
    while cluster.behind():
        cluster.batch(all_of_it=True)
    judge(cluster, log, SeedOutcome(0))


def test_runs_of_large_verdicts_are_bounded() -> None:
    """A blob of verdicts would otherwise grow to 65,536 of them, whatever their size."""
    blobs = MemoryBlobs()
    ids = IdWindow(IdWindowState(1_000), blobs, MemoryIdTables())
    size = limits.BLOCK_BYTES_MAX // 4
    for seq in range(1, 40, 3):
        ids.conclude(Verdicts.of([(seq + i, b"%d" % seq + b"x" * size) for i in range(3)]))
    assert max(map(len, blobs.blobs.values())) < 1.3 * limits.BLOCK_BYTES_MAX
    assert [(ids.verdict(seq) or b"").rstrip(b"x") for seq in (1, 4, 37)] == [b"1", b"4", b"37"]
    assert sum(map(len, ids._loaded)) >= 0
    assert ids._held < 80_000_000

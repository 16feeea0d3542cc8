"""Workflows under several pipelines at once, and under one that is rebuilt from the log."""

from __future__ import annotations

import random

import pytest

from streamydb.pipeline.shard import ShardConfig
from streamydb.sim.cluster import Cluster
from streamydb.sim.flows import FlowCalls
from streamydb.sim.judge import Outcome, judge
from streamydb.sim.log import SimulatedLog
from streamydb.sim.run import settle
from streamydb.sim.workload import Workload
from streamydb.txn_processor import outputs

KEYS = ["k0", "k1", "k2"]


def pipeline(
    log: SimulatedLog, rng: random.Random, grouping: str, name: str, shards: int = 2
) -> Cluster:
    config = ShardConfig("sim", name, shards, log.initial, 20, grouping)
    return Cluster(config, log, rng, crashes=0.05)


@pytest.mark.parametrize("grouping", ["planner", "single"])
@pytest.mark.parametrize("seed", range(3))
def test_two_pipelines_at_once_and_a_third_from_the_log(grouping: str, seed: int) -> None:
    rng = random.Random(f"several {seed}")
    log = SimulatedLog(rng, rng.choice([1, 1, 3]))
    workload = Workload(rng, KEYS, 0.1, 0.02, 1.0)
    workload.flows = FlowCalls(random.Random(seed), KEYS, 0.4)
    both = [pipeline(log, rng, grouping, name, shards=n) for name, n in (("a", 1), ("b", 3))]
    for _ in range(30):
        for _ in range(rng.choice([0, 2, 6])):
            log.append(workload.record())
        if log.initial > 1:
            log.round()
        rng.choice(both).batch()
    settle(both)
    third = pipeline(log, rng, grouping, "c")
    settle([*both, third])
    for each in (*both, third):
        outcome = Outcome(seed)
        judge(each, log, outcome)
    made = sum(record.topic == outputs.FOLLOW_UPS for record in third.written)
    assert made > 10
    assert outcome.transactions > 2 * made

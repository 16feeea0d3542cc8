"""Workflows under several pipelines at once, rebuilt from the log, and under constraints."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from simulator.run import settle
from simulator.workflows import FlowCalls
from simulator.workload import Workload
from streamydb.frames.shards import ShardConfig
from streamydb.txn_processor import outputs
from tests.support.seeds import seeds

KEYS = ["k0", "k1", "k2"]


def pipeline(
    log: SimulatedLog, rng: random.Random, grouping: str, name: str, shards: int = 2
) -> Cluster:
    config = ShardConfig("sim", name, shards, log.initial, 20, grouping)
    return Cluster(config, log, rng, crashes=0.05)


@pytest.mark.parametrize("grouping", ["planner", "single"])
@pytest.mark.parametrize("seed", range(seeds(2, 1)))
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
        outcome = SeedOutcome(seed)
        judge(each, log, outcome)
    made = sum(record.topic == outputs.FOLLOW_UPS for record in third.written)
    assert made > 10
    assert outcome.transactions > 2 * made


RULES = (
    {"name": "sum", "prefix": "flow/sum", "schema": {"properties": {"sum": {"maximum": 15}}}},
    {"name": "low", "prefix": "k", "type": "integer", "max": 60},
    {"name": "seen", "prefix": "flow/seen", "unique": "$"},
)


def codes_of(cluster: Cluster, prefix: str) -> Counter[str | None]:
    """How often each code is the verdict of a transaction whose id begins so."""
    results = {r.value for r in cluster.written if r.topic == outputs.RESULTS}
    found = [json.loads(value or b"") for value in results]
    return Counter(each["code"] for each in found if (each["id"] or "").startswith(prefix))


@pytest.mark.parametrize("grouping", ["planner", "single"])
@pytest.mark.parametrize("seed", range(seeds(3, 1)))
def test_constraints_over_what_entries_and_follow_ups_write(grouping: str, seed: int) -> None:
    """A violation takes the writes and the emissions of a step with it, and the batch goes on."""
    rng = random.Random(f"constrained {seed}")
    log = SimulatedLog(rng, 1)
    workload = Workload(rng, KEYS, 0.1, 0.02, 1.0)
    workload.flows = FlowCalls(random.Random(seed), KEYS, 0.5)
    cluster = pipeline(log, rng, grouping, "a")
    for rule in RULES:
        declared = {"id": f"rule-{rule['name']}", "constrain": {"declare": rule}}
        log.append(json.dumps(declared).encode())
    for _ in range(30):
        for _ in range(rng.choice([0, 2, 6])):
            log.append(workload.record())
        cluster.batch()
    settle([cluster])
    judge(cluster, log, SeedOutcome(seed))
    stepped, entered = codes_of(cluster, "$flow/"), codes_of(cluster, "t")
    assert stepped["constraint-violated"], stepped
    assert stepped["undeclared-key"], stepped
    assert stepped[None] > 10
    assert entered["constraint-violated"], entered

"""Copies of checkpoints are put back, feedback that all have read is gone,
the log loses its end.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from simulator import run_seed
from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from simulator.rollback import Rollbacks, finds_lost_tail, require_log
from simulator.run import settle
from simulator.workload import Workload
from streamydb.errors import InvariantViolation
from streamydb.frames.shards import ShardConfig
from tests.support.seeds import seeds

SEEDS = seeds(4, 1)


@pytest.mark.fault(
    33, "simulator: copies of checkpoints are put back among crashes; caches and feedback stay",
    "equal to the oracle",
)  # fmt: skip
@pytest.mark.fault(
    35, "simulator: feedback that every copy has read is deleted", "equal to the oracle"
)
@pytest.mark.fault(
    36, "simulator: the end of a partition is lost, and it grows again", "the start refuses"
)
@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_what_comes_back_from_the_past_decides_nothing_else(
    grouping: str, injected: Callable[..., None], *, pair: bool
) -> None:
    chosen = range(3_000, 3_000 + SEEDS // (1 + pair))
    injected(len(chosen))
    for seed in chosen:
        outcome = run_seed(seed, 200, grouping, pair=pair, rollbacks=0.2)
        assert not outcome.problems, (seed, outcome.config, outcome.problems)


def cluster_of(grouping: str, seed: int) -> tuple[Cluster, Workload, random.Random]:
    dice = random.Random(seed)
    log = SimulatedLog(dice, 2)
    cluster = Cluster(ShardConfig("sim", "back", 2, 2, 50, grouping), log, dice, crashes=0.0)
    return cluster, Workload(dice, ["a", "b", "c"], 0.1, 0.0, 0.5), dice


@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_a_copy_from_the_beginning_is_put_back_at_the_end(grouping: str) -> None:
    cluster, workload, _ = cluster_of(grouping, 5)
    oldest = cluster.checkpoint()
    for _ in range(80):
        cluster.log.append(workload.record())
    settle([cluster])
    cluster.put_back(oldest)
    settle([cluster])
    outcome = SeedOutcome(5)
    judge(cluster, cluster.log, outcome)
    assert outcome.repeated >= 80


def test_a_log_that_lost_its_end_is_noticed_by_every_shard_once() -> None:
    cluster, workload, dice = cluster_of("planner", 6)
    for _ in range(40):
        cluster.log.append(workload.record())
    settle([cluster])
    require_log(cluster)
    assert finds_lost_tail(cluster, dice)
    with pytest.raises(InvariantViolation, match="has grown again"):
        require_log(cluster)


@pytest.mark.no_proof
def test_without_a_rate_nothing_is_put_back() -> None:
    cluster, workload, _ = cluster_of("planner", 7)
    cluster.log.append(workload.record())
    back = Rollbacks(7, [cluster], 0.0)
    for _ in range(20):
        back.happen()
    back.finish()
    assert back.done == 0
    assert len(cluster.log.partitions[0]) + len(cluster.log.partitions[1]) == 1

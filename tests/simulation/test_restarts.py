"""A batch is repeated by a start with other limits, or by another release,
in the middle of a plan.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from simulator import cluster as sim
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from simulator.run import settle
from simulator.workload import Workload
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor.locking.state import SingleMeta
from streamydb.key_processor.state import ShardState, load
from streamydb.txn_processor import outputs as o

WRITTEN = {"none": 0, "one block": 1, "all": 10**6}
"""How much of the first attempt's feedback is in Kafka when the driver dies."""


class Dying(sim.Cluster):
    """Dies once, when ``left`` more blocks of feedback are written, or at the end of the batch."""

    left: int | None = None
    next_life = Life("second")

    def _write(self, records: o.OutputRecords, batch: int) -> None:
        if self.left is not None and records.topic == o.FEEDBACK:
            self._die(self.left == 0)
            self.left -= 1
        super()._write(records, batch)

    def _maybe_crash(self, *, calm: bool) -> None:  # noqa: ARG002 - it dies elsewhere
        return

    def _attempt(self, batch: Any, copies: Any, *, calm: bool) -> None:
        super()._attempt(batch, copies, calm=calm)
        self._die(self.left is not None)

    def _die(self, now: bool) -> None:  # noqa: FBT001 - a condition
        if now:
            self.left = None
            raise sim._Crash

    def start_anew(self) -> None:
        """The driver starts with what the test says."""
        self.life = self.next_life


def ignored(cluster: sim.Cluster) -> int:
    """How much feedback the shards have ignored."""
    kind: Any = SingleMeta if cluster.single else ShardState
    metas = [load(kind, node.blobs.blobs["meta"]) for node in cluster.nodes]
    return sum(meta.ignored for meta in metas)


@pytest.mark.fault(
    31, "simulator: killed before, amid and after the feedback of a plan; other limits of records "
    "and blocks", "equal to the oracle",
)  # fmt: skip
@pytest.mark.fault(
    32, "simulator: the batch is repeated by a release that packs conflict groups otherwise",
    "equal to the oracle",
)  # fmt: skip
@pytest.mark.parametrize("grouping", ["planner", "single"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("other_release", [False, True])
def test_a_plan_is_repeated_by_another_start(
    grouping: str, shards: int, written: str, *, other_release: bool
) -> None:
    rng = random.Random(f"{grouping} {shards} {written}")
    config = ShardConfig("sim", "restarts", shards, 1, 50, grouping)
    log = SimulatedLog(rng, 1)
    cluster = Dying(config, log, rng, crashes=0.0)
    cluster.limit_plans(100_000)
    work = Workload(rng, ["k", "l", "m"], 0.2, 0.0, 0.8)
    for limit in (5, 100_000):
        for _ in range(60):
            log.append(work.record())
        cluster.left = WRITTEN[written]
        cluster.next_life = Life(f"with {limit}", PlanShape(limit, feedback_bytes_max=200))
        cluster._other_release = other_release
        cluster.batch(all_of_it=True)
        cluster.batch(all_of_it=True)
        assert cluster.life == cluster.next_life, "it has died"
    settle([cluster])
    judge(cluster, log, SeedOutcome(0))
    if written != "none":
        assert ignored(cluster) > 0

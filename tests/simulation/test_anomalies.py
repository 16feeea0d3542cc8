"""The anomalies of the first streamy-db, which held locks until results came, but not in order.

Each is a history that no serial execution explains. Here they are played against the real classes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from streamydb.frames.hashing import shard_of
from streamydb.frames.shards import ShardConfig
from streamydb.txn_processor import outputs as o
from streamydb.verify.oracle.core import replay

pytestmark = [
    pytest.mark.parametrize("grouping", ["planner", "single"]), pytest.mark.no_proof,
]  # fmt: skip


def _database(grouping: str, shards: int = 2) -> tuple[SimulatedLog, Cluster]:
    rng = random.Random(1)
    log = SimulatedLog(rng, 1)
    config = ShardConfig("sim", "anomaly", shards, 1, 1000, grouping)
    cluster = Cluster(config, log, rng, crashes=0.0)
    cluster.limit_plans(1000)
    return log, cluster


def _write(log: SimulatedLog, name: str, **parts: Any) -> None:
    log.append(json.dumps({"id": name, **parts}).encode())


def _on(shard: int) -> str:
    """A key that lives on this of two shards."""
    return next(key for key in "abcdefgh" if shard_of(key.encode(), 2) == shard)


def _put(values: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"op": "put", "key": key, "value": value} for key, value in values.items()]


def _results(cluster: Cluster) -> dict[str, Any]:
    found = [json.loads(w.value) for w in cluster.written if w.topic == o.RESULTS and w.value]
    return {result["id"]: result for result in found}


def _settle(cluster: Cluster) -> None:
    while cluster.behind():
        cluster.batch(all_of_it=True)


@pytest.mark.fault(11, "simulator: results out of order at two keys", "no G0")
def test_blind_writes_whose_results_return_in_the_other_order_at_two_keys(grouping: str) -> None:
    """Two writers of x and y; at y the feedback of the second is seen before that of the first."""
    log, cluster = _database(grouping)
    x, y = _on(0), _on(1)
    _write(log, "first", updates=_put({x: 1, y: 1}))
    cluster.batch(all_of_it=True)
    late = cluster.feedback[1][:]
    cluster.feedback[1].clear()
    _write(log, "second", updates=_put({x: 2, y: 2}))
    cluster.batch(all_of_it=True)
    assert "second" not in _results(cluster), "executed while the locks of the first are held"
    cluster.feedback[1] += late
    _settle(cluster)
    judge(cluster, log, SeedOutcome(0))
    state = replay(log.partitions, database="sim", initial_partitions=1).state
    assert (state[x], state[y]) == ((b"2", 2), (b"2", 2))


def test_a_reader_never_sees_a_newer_and_then_an_older_value(grouping: str) -> None:
    log, cluster = _database(grouping)
    for i in range(6):
        _write(log, f"w{i}", updates=_put({"x": i, "y": i}))
        _write(log, f"r{i}", reads=["x", "y"])
        cluster.batch(all_of_it=True)
    _settle(cluster)
    results = _results(cluster)
    seen = [results[f"r{i}"]["reads"] for i in range(6)]
    assert seen == [{"x": i, "y": i} for i in range(6)]


def test_a_lock_does_not_look_free_while_its_holder_is_open(grouping: str) -> None:
    """The reader comes in a batch of its own, before the writer's feedback has arrived."""
    log, cluster = _database(grouping, shards=1)
    _write(log, "writer", updates=_put({"x": "new"}))
    cluster.batch(all_of_it=True)
    late = cluster.feedback[0][:]
    cluster.feedback[0].clear()
    _write(log, "reader", reads=["x"], asserts={"x": "new"})
    cluster.batch(all_of_it=True)
    assert "reader" not in _results(cluster)
    cluster.feedback[0] += late
    _settle(cluster)
    assert _results(cluster)["reader"]["status"] == "committed"


@pytest.mark.fault(11, "simulator: feedback twice", "no-op")
def test_repeated_feedback_changes_nothing(grouping: str) -> None:
    log, cluster = _database(grouping)
    _write(log, "a", updates=_put({"x": 1}))
    cluster.batch(all_of_it=True)
    for blocks in cluster.feedback:
        blocks.extend(list(blocks))
    _write(log, "b", updates=[{"op": "add", "key": "x", "by": 1}])
    for blocks in cluster.feedback:
        blocks.extend(blocks[:1])
    _settle(cluster)
    judge(cluster, log, SeedOutcome(0))

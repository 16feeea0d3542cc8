"""Expiry in a simulated cluster: what is told of it, when, and what is left."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from streamydb import limits
from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import Position
from streamydb.frames.messages import Grant, KeyRemovals
from streamydb.frames.plans import Life
from streamydb.frames.readers import TO_EXECUTOR
from streamydb.frames.shards import ShardConfig
from streamydb.frames.value_rows import ChangeRows
from streamydb.key_processor import expiry, values
from streamydb.key_processor.memory import MemoryValues
from streamydb.txn_processor import outputs as o
from streamydb.verify.oracle.order import LogRecord

GROUPINGS = pytest.mark.parametrize("grouping", ["planner", "single"])
Change = dict[str, Any]


class Database:
    """A cluster that executes each record when it comes; ``at_once``: all of them in the end."""

    def __init__(self, grouping: str, shards: int = 2, *, at_once: bool = False) -> None:
        """Begin empty."""
        self.log = SimulatedLog(random.Random(1), 1)
        config = ShardConfig("sim", f"{grouping} {shards}", shards, 1, 1000, grouping)
        self.cluster = Cluster(config, self.log, random.Random(1), crashes=0.0)
        self.at_once = at_once

    def add(self, ts_ms: int, *updates: dict[str, Any], **parts: Any) -> None:
        """Append a transaction."""
        number = len(self.log.partitions[0])
        record = {"id": f"t{number}", "updates": updates, **parts}
        self.log.partitions[0].append(LogRecord(number, ts_ms, json.dumps(record).encode()))
        if not self.at_once:
            self.settle()

    def settle(self) -> None:
        """Let everything be executed."""
        while self.cluster.behind():
            self.cluster.batch(all_of_it=True)

    def changes(self) -> list[Change]:
        """All changes, judged by the oracle, in the order of seqs."""
        self.settle()
        judge(self.cluster, self.log, SeedOutcome(0))
        values = [
            json.loads(w.value) | {"key": (w.key or b"").decode()}
            for w in self.cluster.written
            if w.topic == o.CHANGES and w.value and w.key
        ]
        return sorted(values, key=lambda each: (each["source"]["seq"], each["key"]))


def put(key: str, ttl_ms: int | None = None) -> dict[str, Any]:
    return {"op": "put", "key": key, "value": 1} | ({"ttl_ms": ttl_ms} if ttl_ms else {})


def shown(changes: list[Change]) -> list[tuple[int, str, str, Any]]:
    return [(c["source"]["seq"], c["key"], c["op"], c["before"]) for c in changes]


@GROUPINGS
@pytest.mark.parametrize("at_once", [False, True])
def test_a_removal_is_told_once_at_the_first_seq_that_is_not_before_it(
    grouping: str, *, at_once: bool
) -> None:
    db = Database(grouping, at_once=at_once)
    db.add(1_000, put("a", 10), put("b", 10), put("c", 10), put("d", 10), put("e"))
    db.add(1_009, {"op": "touch", "key": "b", "ttl_ms": 2}, {"op": "touch", "key": "c"})
    db.add(1_010, put("d"), reads=["a", "b"])
    db.add(1_010, put("a"))
    db.add(1_011, {"op": "delete", "key": "b"}, {"op": "add", "key": "e", "by": 1})
    found = db.changes()
    assert shown(found)[7:] == [
        (3, "a", "d", 1), (3, "d", "u", 1), (4, "a", "c", None), (5, "b", "d", 1), (5, "e", "u", 1)
    ]  # fmt: skip
    ends = {c["key"]: c.get("expires_ms") for c in found if c["source"]["seq"] == 1}
    assert ends == {"a": 1_010, "b": 1_010, "c": 1_010, "d": 1_010, "e": None}
    own = [c["transaction"] for c in found if c["op"] == "d"]
    assert {each["id"] for each in own} == {"$expiry"}
    assert all(each["total_order"] > limits.KEYS_PER_TRANSACTION_MAX for each in own)


@GROUPINGS
def test_a_million_keys_would_end_in_small_blocks(
    grouping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one millisecond; here three thousand, in small blocks, a few hundred in a batch; and
    nobody holds them all at a time.
    """
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 2_000)
    monkeypatch.setattr(values, "_DUE_KEYS", 100)
    sizes = []
    held: list[int] = []
    apply = MemoryValues.apply

    def applied(self_: MemoryValues, at: Position, reached: Position, *items: Any) -> bool:
        held.append(len(items[1]))
        return apply(self_, at, reached, *items)

    monkeypatch.setattr(MemoryValues, "apply", applied)

    def told(changes: ChangeRows) -> KeyRemovals:
        sizes.append(len(changes))
        return KeyRemovals(changes)

    monkeypatch.setattr(expiry, "KeyRemovals", told)
    db = Database(grouping, at_once=True)
    for start in range(0, 3_000, 500):
        names = [f"k{i}" for i in range(start, start + 500)]
        db.add(1_000, *({**put(name, 5), "value": "v" * 20} for name in names))
    db.settle()
    shape = msgspec.structs.replace(db.cluster.life.shape, values_bytes_max=100_000)
    db.cluster.life = Life("other", shape)
    db.add(1_004)
    db.settle()
    before = next(db.cluster.clock)
    db.add(1_005)
    db.settle()
    took = next(db.cluster.clock) - before
    removed = [c for c in db.changes() if c["op"] == "d"]
    assert {c["source"]["seq"] for c in removed} == {8}
    assert len({c["transaction"]["total_order"] for c in removed}) == len(removed) == 3_000
    if grouping == "planner":
        assert took > 5
        assert max(sizes) <= 100
        assert max(held) <= 100
        names = [name for node in db.cluster.nodes for name in node.blobs.blobs]
        assert not [name for name in names if name.startswith("plan/")]


@GROUPINGS
def test_nothing_is_kept_of_what_has_ended(grouping: str) -> None:
    db = Database(grouping)
    for second in range(1, 200):
        db.add(1_000 * second, put(f"lease/{second}", 500), put("renewed", 5_000))
    db.add(1_000_000)
    db.changes()
    for node in db.cluster.nodes:
        values = sum(len(data) for name, data in node.blobs.blobs.items() if "values" in name)
        assert values < 4_000
        assert node.caches.values().due(node.caches.values().position(), 1 << 60, b"", 9) == []


def test_databases_without_expiry_are_told_nothing_of_it() -> None:
    db = Database("planner")
    db.add(1_000, put("a"), put("b"))
    grants: list[Grant] = []
    grant = Cluster._execute

    def executed(self: Any, number: int, blocks: list[bytes], gathered: Any) -> Any:
        messages = TO_EXECUTOR.each(blocks)
        grants.extend(message for message in messages if isinstance(message, Grant))
        return grant(self, number, blocks, gathered)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "_execute", executed)
        db.add(1_001, put("a"))
    assert grants
    assert not any(grant.times for grant in grants)


COMPARISONS: list[tuple[dict[str, Any], bool, bool]] = [
    ({"count": 1}, True, False), ({"count": 0}, False, True), ({"count_ge": 1}, True, False),
    ({"count_le": 0}, False, True), ({"exists": True}, True, False),
    ({"exists": False}, False, True), ({"version_le": 0}, False, True),
]  # fmt: skip
"""Of a range with one key: a check, and if it holds before that key has ended, and after."""


@GROUPINGS
@pytest.mark.parametrize("written_before", [False, True])
@pytest.mark.parametrize("puts", [2, 300])
def test_a_check_of_a_range_sees_no_key_that_has_ended(
    grouping: str, puts: int, *, written_before: bool
) -> None:
    """However many keys the transaction has: its values are weighed if it has more than 256."""
    db = Database(grouping, at_once=True)
    db.cluster.limit_plans(1_000)
    db.add(1_000, put("r/1", 5))
    if written_before:
        db.settle()
    wanted: dict[str, str | None] = {}
    for ts_ms, at in ((1_004, 1), (1_005, 2)):
        for number, (check, *holds) in enumerate(COMPARISONS):
            others = (put(f"{number}/{i}") for i in range(puts))
            checked = {"range": {"prefix": "r/"}, **check}
            wanted[f"t{len(wanted) + 1}"] = None if holds[at - 1] else "check-failed"
            db.add(ts_ms, *others, checks=[checked])
    db.changes()
    results = [json.loads(w.value or b"") for w in db.cluster.written if w.topic == o.RESULTS]
    codes = {each["id"]: each["code"] for each in results}
    assert {name: codes[name] for name in wanted} == wanted


@pytest.mark.parametrize(("block_bytes", "keys"), [(1, 1), (1 << 23, 4_096)])
def test_a_repeated_batch_brings_no_file_back(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int, keys: int
) -> None:
    """The file of a shard is one plan ahead then; its way back takes as long as all its keys."""
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", block_bytes)
    monkeypatch.setattr(values, "_DUE_KEYS", keys)
    cleared: list[int] = []
    clear = MemoryValues.clear

    def noted(self_: MemoryValues, *positions: Position) -> bool:
        cleared.append(1)
        return clear(self_, *positions)

    monkeypatch.setattr(MemoryValues, "clear", noted)
    crashes: list[int] = []
    db = Database("planner", at_once=True)
    db.cluster._lose_caches = lambda: crashes.append(1)  # type: ignore[method-assign]
    for node in db.cluster.nodes:
        node.late.chance = 0.0
    db.cluster.crashes = 0.1
    for number in range(60):
        db.add(1_000 + number, put(f"k{number}", 1 + number % 5), put("stays"))
        db.cluster.batch()
    ends = [c for c in db.changes() if c["op"] == "d"]
    assert len(ends) > 20
    assert len(crashes) > 20
    assert cleared == []


def test_a_plan_whose_ended_keys_are_lost_is_not_applied() -> None:
    db = Database("planner", shards=1, at_once=True)
    for number in range(100):
        db.add(1_000 + number, put(f"k{number}", 1))
        db.cluster.batch()
        if db.cluster.nodes[0].blobs.get("plan/ended") is not None:
            break
    assert db.cluster.nodes[0].blobs.get("plan/ended") is not None
    db.cluster.nodes[0].blobs.delete("plan/ended")
    with pytest.raises(InvariantViolation, match="plan/ended is missing"):
        db.settle()

"""Ranges through all rooms, in both groupings: what they see, what is too much, and who waits."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from simulator.procedures import MODULES
from streamydb import limits
from streamydb.frames.shards import ShardConfig
from streamydb.procedures.modules import compile_module
from streamydb.txn_processor import outputs as o
from streamydb.verify.oracle.order import LogRecord

GROUPINGS = pytest.mark.parametrize("grouping", ["planner", "single"])
SHARDS = pytest.mark.parametrize("shards", [1, 3])

Parts = dict[str, Any]


def put(*keys: str, value: Any = 1) -> Parts:
    return {"updates": [{"op": "put", "key": key, "value": value} for key in keys]}


def delete(*keys: str) -> Parts:
    return {"updates": [{"op": "delete", "key": key} for key in keys]}


def check(named: Parts | str, **comparators: Any) -> Parts:
    named = {"prefix": named} if isinstance(named, str) else named
    return {"checks": [{"range": named, **comparators}]}


def reads(*prefixes: str) -> Parts:
    return {"reads": [{"range": {"prefix": prefix}} for prefix in prefixes]}


class Database:
    """A pipeline without faults; every outcome is compared with the oracle."""

    def __init__(self, grouping: str, shards: int, values_bytes_max: int = 1 << 26) -> None:
        self.log = SimulatedLog(random.Random(1), 1)
        name = f"{grouping} {shards}"
        config = ShardConfig("sim", name, shards, 1, 1_000, grouping)
        self.cluster = Cluster(config, self.log, random.Random(1), crashes=0.0)
        self.cluster.limit_plans(100_000)
        life = self.cluster.life
        shape = msgspec.structs.replace(life.shape, values_bytes_max=values_bytes_max)
        self.cluster.life = msgspec.structs.replace(life, shape=shape)

    def do(self, *transactions: Parts) -> list[dict[str, Any]]:
        """Execute transactions that lie in the log together; their results."""
        records, before = self.log.partitions[0], len(self.log.partitions[0])
        for number, each in enumerate(transactions, start=before):
            value = json.dumps({"id": f"t{number}", **each}, ensure_ascii=False).encode()
            records.append(LogRecord(number, 1_000 + number, value))
        while self.cluster.behind():
            self.cluster.batch(all_of_it=True)
        judge(self.cluster, self.log, SeedOutcome(0))
        written = [w.value or b"" for w in self.cluster.written if w.topic == o.RESULTS]
        found = sorted({r["seq"]: r for r in map(json.loads, written)}.items())
        return [result for _, result in found[before:]]


def codes(results: list[dict[str, Any]]) -> list[str | None]:
    return [result["code"] for result in results]


@GROUPINGS
@SHARDS
def test_a_check_sees_everything_before_it_and_nothing_else(grouping: str, shards: int) -> None:
    db = Database(grouping, shards)
    db.do(put("a/1", "a/2", "b"), put("a/é"))
    found = db.do(
        check("a/", count=3, version_le=2, exists=True),
        check("a/", version_le=1),
        put("a/3"),
        check("a/", count=3),
        {**check("a/", count=4, version_le=5), **delete("a/1", "a/2")},
        check("a/", count_ge=2, count_le=2),
        check({"start": "a/3", "end": "a/é"}, count=1),
        check({"start": "b", "end": "a"}, exists=False),
        check("zz", exists=True),
    )
    failed = "check-failed"
    assert codes(found) == [None, failed, None, failed, None, None, None, None, failed]
    assert found[1]["failed"] == [
        {"check": "range", "index": 0, "key": "a/", "value": None, "version": 2, "count": 3}
    ]


@GROUPINGS
@SHARDS
def test_what_was_seen_at_a_snapshot_is_checked_by_count_and_version(
    grouping: str, shards: int
) -> None:
    """Added, changed, deleted, deleted and added again: each shows, without tombstones."""
    db = Database(grouping, shards)
    first = db.do(put("a/1", "a/2"))[0]["seq"]
    as_seen = check("a/", count=2, version_le=first)
    assert codes(db.do(as_seen, put("b"), as_seen)) == [None] * 3
    for change, back in (
        (put("a/3"), delete("a/3")), (put("a/1"), None), (delete("a/1"), put("a/1")),
    ):  # fmt: skip
        found = db.do(change, as_seen, *([] if back is None else [back]))
        assert found[1]["code"] == "check-failed"
        seen = max(result["seq"] for result in found)
        as_seen = check("a/", count=2, version_le=seen)
        assert codes(db.do(as_seen)) == [None]


@GROUPINGS
@SHARDS
def test_entries_are_those_after_the_own_writes_in_the_order_of_bytes(
    grouping: str, shards: int
) -> None:
    db = Database(grouping, shards)
    db.do(put("k\x7f", "k", "ké", "l", value={"v": 1}), put("k1", value=7))
    own = {"updates": [
        {"op": "put", "key": "k0", "value": "x"}, {"op": "delete", "key": "k"},
        {"op": "add", "key": "k1", "by": 1}, {"op": "delete", "key": "none"},
    ]}  # fmt: skip
    (found,) = db.do({**own, "reads": ["l", *reads("k", "q", "k")["reads"]]})
    assert found["reads"] == {"l": {"v": 1}}
    assert found["ranges"] == [
        {"range": {"prefix": "k"}, "entries": [
            {"key": "k0", "value": "x", "version": 3}, {"key": "k1", "value": 8, "version": 3},
            {"key": "k\x7f", "value": {"v": 1}, "version": 1},
            {"key": "ké", "value": {"v": 1}, "version": 1},
        ]},
        {"range": {"prefix": "q"}, "entries": []},
    ]  # fmt: skip


@GROUPINGS
@SHARDS
def test_no_phantoms_among_transactions_that_lie_together(grouping: str, shards: int) -> None:
    """Of those that each may add one key if there is none, one does, however they are spread."""
    db = Database(grouping, shards)
    found = db.do(*({**check("lock/", count_le=0), **put(f"lock/{i}")} for i in range(12)))
    assert codes(found) == [None, *["check-failed"] * 11]
    swapped = [
        {**check("x/", exists=False), **put("y/1")}, {**check("y/", exists=False), **put("x/1")},
    ]  # fmt: skip
    assert codes(db.do(*swapped)) == [None, "check-failed"]


@GROUPINGS
@SHARDS
def test_the_limit_on_keys_at_n_and_one_more(
    grouping: str, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RANGE_KEYS_MAX", 6)
    db = Database(grouping, shards)
    db.do(put(*(f"a/{i}" for i in range(4))), put("b/1", "b/2"))
    both = {"checks": [check(name, count_ge=9)["checks"][0] for name in ("a/", "b/", "a/")]}
    found = db.do(
        both, reads("a/", "b/"), put("b/3"), both, {**reads("a/", "b/"), **delete("a/0")},
        delete("a/1"), reads("a/", "b/", "a/"), {**reads("a/", "b/"), **put("a/1", "a/9")},
        {**check("a/", count=0), **put("a/7")},
    )  # fmt: skip
    large, failed = "range-too-large", "check-failed"
    assert codes(found) == [failed, None, None, large, large, None, None, None, failed]
    assert [len(each["entries"]) for each in found[7]["ranges"]] == [5, 3]


@GROUPINGS
@SHARDS
def test_entries_that_no_result_can_hold(grouping: str, shards: int) -> None:
    """Own and earlier deletes make room; checks of such a range are as good as ever."""
    db = Database(grouping, shards)
    for i in range(4):
        db.do(put(f"a/{i}", value="x" * 240_000))
    found = db.do(
        reads("a/"), check("a/", count=4, version_le=4), {**reads("a/"), **delete("a/0")},
        reads("a/"), put("a/0", value="x" * 240_000), {**reads("a/"), **check("a/", count=3)},
        reads("a/"),
    )  # fmt: skip
    large = "result-too-large"
    assert codes(found) == [large, None, None, None, None, "check-failed", large]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_plan_whose_ranges_are_too_much_is_made_smaller(shards: int) -> None:
    db = Database("planner", shards, values_bytes_max=3_000)
    db.do(put(*(f"a/{i}" for i in range(40)), value="x" * 30))
    named = [{"range": {"start": "a/1", "end": "a/4" + "x" * i}} for i in range(24)]
    found = db.do(*({"reads": [each]} for each in named), put("a/1"))
    assert codes(found) == [None] * 25
    plans = {w.batch for w in db.cluster.written if w.topic == o.RESULTS}
    assert len(plans) > 4


SCAN = """
def scan(db, into):
    db.put(into, db.count("a/"))
    return [key for key, value in db.scan(start="a/", end="a/5")]
"""


def scan(into: str, *ranges: str, keys: tuple[str, ...] = ()) -> Parts:
    named = [{"prefix": prefix} for prefix in ranges]
    return {"call": {"procedure": "range.scan", "args": {"into": into}, "keys": [into, *keys],
                     "ranges": named}}  # fmt: skip


def with_scan(grouping: str, shards: int) -> Database:
    """A database with a procedure that scans."""
    MODULES.put(SCAN.encode())
    db = Database(grouping, shards)
    db.do({"deploy": compile_module("range", SCAN.encode()).record})
    return db


@GROUPINGS
@SHARDS
def test_a_procedure_scans_what_its_call_names(grouping: str, shards: int) -> None:
    db = with_scan(grouping, shards)
    found = db.do(
        put("a/1", "a/6", "b"), scan("a/2", "a/"), delete("a/1"), scan("b", "a/"),
        scan("b", "a/1"), scan("b"), {**scan("a/9", "a/"), **check("a/", count=2)},
        {**scan("a/9", "a/"), **check("a/", count=9)},
    )  # fmt: skip
    lost, failed = "undeclared-key", "check-failed"
    assert codes(found) == [None, None, None, None, lost, lost, None, failed]
    assert found[1]["returned"] == ["a/1", "a/2"]
    assert found[3]["returned"] == ["a/2"]
    assert [each.get("reason") for each in found[4:6]] == ["a/", "a/"]


@GROUPINGS
@SHARDS
def test_what_a_procedure_may_scan_at_n_bytes_and_one_more(grouping: str, shards: int) -> None:
    db = with_scan(grouping, shards)
    each = limits.RESULT_BYTES_MAX // 4 - len("a/0") - limits.RANGE_ENTRY_BYTES
    for i in range(4):
        db.do(put(f"a/{i}", value="x" * (each - 2)))
    found = db.do(
        scan("b", "a/"), scan("b", "a/", "a/1"), put("a/3", value="x" * (each - 1)),
        scan("b", "a/"), delete("a/0"), scan("b", "a/"),
    )  # fmt: skip
    large = "range-too-large"
    assert codes(found) == [None, large, None, large, None, None]


@GROUPINGS
@SHARDS
def test_checks_of_keys_and_ranges_fail_together(grouping: str, shards: int) -> None:
    db = Database(grouping, shards)
    both = [
        {"range": {"prefix": "a/"}, "count": 2, "version_le": 1}, {"key": "b", "version": 9},
        {"range": {"start": "a/", "end": "a0"}, "exists": False}, {"key": "a/1", "exists": True},
    ]  # fmt: skip
    found = db.do(
        put("a/1", "a/2"), {"checks": both, **put("c")}, {"checks": both[:1], **put("a/1")},
        {"checks": both[:1], **put("c")}, {"checks": [both[1], both[0]], **put("c")},
        {"checks": [{**both[0], "version_le": 3}, both[3]], "asserts": {"c": None}, **put("c")},
    )  # fmt: skip
    failed = "check-failed"
    assert codes(found) == [None, failed, None, failed, failed, None]
    listed = [[(f["check"], f["index"]) for f in result["failed"]] for result in found]
    assert listed[1] == [("check", 1), ("range", 2)]
    assert listed[3:5] == [[("range", 0)], [("check", 0), ("range", 1)]]

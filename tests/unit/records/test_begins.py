"""Where a rule begins that a release has added: recorded once, and decided alike by everybody."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulator.cluster import Cluster
from simulator.judge import SeedOutcome, judge
from simulator.log import SimulatedLog
from streamydb import limits
from streamydb.backup.folder import BackupFolder
from streamydb.columns.shards import ShardConfig
from streamydb.kafka.admin import TopicDescription
from streamydb.kafka.foundation import FoundingFacts, merged
from streamydb.pipeline.record import begun
from streamydb.records.begins import (
    EVERYWHERE,
    EXPIRY,
    NOWHERE,
    RANGES,
    RULES,
    VALUES_BOUNDED,
    Begins,
)
from streamydb.records.rulings import Fault, Rulings
from streamydb.txn_processor import outputs as o
from streamydb.verify.oracle.order import LogRecord
from streamydb.verify.oracle.replay import replay


def topic(*ends: int) -> TopicDescription:
    return TopicDescription("bank.x", len(ends), 1, {}, (0,) * len(ends), ends)


def test_a_rule_begins_at_an_offset_of_each_partition() -> None:
    begins = Begins({VALUES_BOUNDED: {0: 7, 1: 0}})
    assert [begins.holds(VALUES_BOUNDED, 0, offset) for offset in (6, 7)] == [False, True]
    assert begins.holds(VALUES_BOUNDED, 1, 0)
    assert begins.holds(VALUES_BOUNDED, 2, 0), "a partition that was added later"
    assert not begins.holds("another", 0, 9)
    assert EVERYWHERE.holds(VALUES_BOUNDED, 0, 0)
    assert not NOWHERE.holds(VALUES_BOUNDED, 0, 1 << 40)
    assert (EVERYWHERE.missing(), NOWHERE.missing()) == ((), RULES)


def test_what_was_executed_before_a_rule_keeps_its_meaning() -> None:
    """An old database gets the rule from the end of its log on, a new one from the beginning."""
    old = begun(FoundingFacts(log="L", partitions=2), topic(5, 9), topic(3))
    assert old.begins.places == {rule: {0: 5, 1: 9} for rule in RULES}
    assert begun(old, topic(50, 90), topic(30)) == old, "recorded once"
    waiting = begun(FoundingFacts(log="L"), topic(5, 9), topic(0))
    assert waiting.begins == EVERYWHERE, "nothing of it was executed"


def test_the_first_record_of_a_place_holds() -> None:
    first, second = (Begins({VALUES_BOUNDED: {0: at}}) for at in (4, 8))
    both = Begins({**second.places, "later": {0: 9}})
    records = [FoundingFacts(log="L", partitions=1), FoundingFacts(log="L", begins=first)]
    records += [FoundingFacts(log="L", begins=both), FoundingFacts(log="M", begins=EVERYWHERE)]
    found = merged("L", map(msgspec.json.encode, records))
    assert found.begins == Begins({VALUES_BOUNDED: {0: 4}, "later": {0: 9}})
    assert found.partitions == 1
    assert merged("L", [b'{"log":"L","partitions":1,"format":1}']).begins == NOWHERE


def test_a_backup_and_what_is_restored_from_it_know_the_place(tmp_path: Path) -> None:
    folder = BackupFolder(tmp_path)
    begins = Begins({VALUES_BOUNDED: {0: 4, 1: 8}})
    folder.write_rulings(Rulings([Fault(0, 1, "E")], begins))
    assert (folder.rulings().begins, len(folder.rulings())) == (begins, 1)
    (tmp_path / "rulings.json").write_text('{"rulings": [], "format": 1}')
    assert folder.rulings().begins == NOWHERE, "taken by an earlier release"
    (tmp_path / "rulings.json").unlink()
    assert folder.rulings().begins == NOWHERE
    cut = begins.cut({0: 3, 1: 20}).places
    assert (cut[VALUES_BOUNDED], cut[RANGES]) == ({0: 3, 1: 8}, {0: 3, 1: 20})
    assert NOWHERE.cut({0: 3, 1: 20}).places == {rule: {0: 3, 1: 20} for rule in RULES}
    assert EVERYWHERE.cut({0: 3}).places == {rule: {0: 0} for rule in RULES}


@pytest.mark.parametrize("grouping", ["planner", "single"])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("alone", [False, True])
def test_the_limit_on_what_a_transaction_meets_begins_at_its_place(
    grouping: str, shards: int, monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_VALUES_BYTES_MAX", 100)
    monkeypatch.setattr(limits, "VALUE_BYTES_MAX", 100)
    log = SimulatedLog(random.Random(1), 1)
    monkeypatch.setattr(log.random, "random", lambda: 0.5)
    log.begins = Begins({VALUES_BOUNDED: {0: 2}})
    config = ShardConfig("sim", f"begins {grouping} {shards}", shards, 1, 1000, grouping)
    cluster = Cluster(config, log, random.Random(1), crashes=0.0)
    puts = [{"op": "put", "key": key, "value": key * 70} for key in "ab"]
    written: list[dict[str, Any]] = [{"id": "w", "updates": puts}]
    written += [{"id": name, "reads": ["a", "b"]} for name in ("before", "after")]
    for transaction in written:
        log.append(json.dumps(transaction).encode())
        while alone and cluster.behind():
            cluster.batch(all_of_it=True)
    while cluster.behind():
        cluster.batch(all_of_it=True)
    judge(cluster, log, SeedOutcome(0))
    found = [json.loads(w.value or b"") for w in cluster.written if w.topic == o.RESULTS]
    assert {result["id"]: result["code"] for result in found} == {
        "w": None, "before": None, "after": "values-too-large"
    }  # fmt: skip
    rebuilt = replay(
        log.partitions, database="sim", initial_partitions=1, rulings=Rulings((), EVERYWHERE)
    )
    again = [json.loads(each.value or b"") for each in rebuilt.outputs if each.topic == "results"]
    codes = [result["code"] for result in again]
    assert codes == [None, "values-too-large", "values-too-large"], "of a place that is forgotten"


@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_what_said_when_a_key_ends_before_expiry_was_keeps_its_verdict(grouping: str) -> None:
    log = SimulatedLog(random.Random(1), 1)
    log.begins = Begins({EXPIRY: {0: 4}})
    config = ShardConfig("sim", f"expiry {grouping}", 2, 1, 1000, grouping)
    cluster = Cluster(config, log, random.Random(1), crashes=0.0)
    updates: list[dict[str, Any]] = [
        {"op": "put", "value": 1, "ttl_ms": 2}, {"op": "append", "value": 1, "ttl_ms": 9},
        {"op": "touch"}, {"op": "touch", "ttl_ms": 1},
    ]  # fmt: skip
    for number, update in enumerate([*updates, *updates]):
        record = {"id": f"t{number}", "updates": [{"key": f"k{number % 2}", **update}]}
        raw = json.dumps(record).encode()
        log.partitions[0].append(LogRecord(number, 1_000 + number, raw))
    while cluster.behind():
        cluster.batch(all_of_it=True)
    judge(cluster, log, SeedOutcome(0))
    found = [json.loads(w.value or b"") for w in cluster.written if w.topic == o.RESULTS]
    codes = [result["code"] for result in sorted(found, key=lambda result: result["seq"])]
    assert codes == ["invalid-transaction"] * 4 + [None] * 4
    told = [json.loads(w.value) for w in cluster.written if w.topic == o.CHANGES and w.value]
    removed = [each["source"]["seq"] for each in told if each.get("op") == "d"]
    assert removed == [7], "k0 ended at 1006, and nobody touched it in time"


@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_what_named_a_range_before_ranges_were_keeps_its_verdict(grouping: str) -> None:
    log = SimulatedLog(random.Random(1), 1)
    log.begins = Begins({VALUES_BOUNDED: {}, RANGES: {0: 4}})
    config = ShardConfig("sim", f"ranges {grouping}", 2, 1, 1000, grouping)
    cluster = Cluster(config, log, random.Random(1), crashes=0.0)
    named = {"range": {"prefix": "k"}}
    parts: list[dict[str, Any]] = [
        {"checks": [{**named, "count": 0}]}, {"reads": [named]}, {"id": "", "reads": [named]},
        {"id": "", "checks": [{**named, "count": 0}]},
    ]  # fmt: skip
    for number, part in enumerate([*parts, *parts]):
        log.partitions[0].append(
            LogRecord(number, 1_000 + number, json.dumps({"id": f"t{number}", **part}).encode())
        )
    while cluster.behind():
        cluster.batch(all_of_it=True)
    judge(cluster, log, SeedOutcome(0))
    found = [json.loads(w.value or b"") for w in cluster.written if w.topic == o.RESULTS]
    codes = [result["code"] for result in sorted(found, key=lambda result: result["seq"])]
    before = ["invalid-transaction", "invalid-key", "invalid-id", "invalid-transaction"]
    assert codes == [*before, None, None, "invalid-id", "invalid-id"]

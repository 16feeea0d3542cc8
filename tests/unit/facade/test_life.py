"""The life of a transaction: from the topics of a database in memory, over REST, for people."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from streamydb.cli.life import lines
from streamydb.facade import create_app
from streamydb.facade.about import About
from streamydb.facade.auth import Caller
from streamydb.facade.life import Evidence, explain, visible_history
from streamydb.facade.life import kafka as collecting
from streamydb.facade.life.evidence import PlanMember
from streamydb.facade.life.group import KEYS_SHOWN, MEMBERS_SHOWN, group_of
from streamydb.facade.life.kafka import collect
from streamydb.records import Marker, Result, Transaction, decode, encode_marker
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase
from tests.support.lives import NAMES, Bank
from tests.support.memory_kafka import CONNECTION, Record


def put(name: str, key: str, value: Any, **parts: Any) -> bytes:
    updates = [{"op": "put", "key": key, "value": value}]
    return json.dumps({"id": name, "updates": updates, **parts}).encode()


@pytest.fixture
def bank(monkeypatch: pytest.MonkeyPatch) -> Bank:
    return Bank(monkeypatch)


def moved(bank: Bank) -> None:
    """Three plans: two writers and a stranger, then a transfer with friends, then its copy."""
    bank.plan(bank.append(put("a", "acct/1", 5)), bank.append(put("b", "acct/2", 1)))
    checks = [{"key": "acct/1", "ge": 5}, {"key": "acct/2", "version": 2}]
    move = json.dumps({
        "id": "move", "asserts": {"acct/3": None}, "checks": checks, "reads": ["acct/1"],
        "updates": [{"op": "add", "key": "acct/1", "by": -2}, {"op": "delete", "key": "acct/2"}],
    }).encode()  # fmt: skip
    friend, stranger = put("friend", "acct/1", 6), put("stranger", "else", 1)
    chain = put("chain", "acct/9", 1, reads=["acct/1"])
    bank.plan(*map(bank.append, (friend, stranger, move, chain)), twice=True)
    bank.plan(bank.append(move))


def test_a_whole_life(bank: Bank) -> None:
    moved(bank)
    life = bank.life(5)
    assert (life.id, life.unknown) == ("move", {})
    own, copy = life.appends
    assert (own.seq, own.offset, own.executed, own.times, copy.times) == (5, 4, True, 2, 1)
    assert (copy.seq, copy.offset, copy.executed) == (7, 6, False)
    assert own.appended_ms == life.order.ts_ms == life.order.released_ms
    assert own.result_written_ms > life.order.ts_ms
    assert life.plan is not None
    assert (life.plan.number, life.plan.first, life.plan.last) == (2, 3, 6)
    group = life.plan.group
    assert group is not None
    assert (group.transactions, group.waited_for, group.waited) == (3, 1, 1)
    assert [(m.seq, m.id, m.keys) for m in group.members] == [
        (3, "friend", ["acct/1"]), (6, "chain", ["acct/1"])
    ]  # fmt: skip
    assert [(m.key, bytes(m.value), m.version, m.known) for m in life.met] == [
        ("acct/3", b"null", 0, "state"), ("acct/1", b"6", 3, "state"), ("acct/2", b"1", 2, "state"),
    ]  # fmt: skip
    assert [(c.check, c.index, c.key, c.holds) for c in life.checks] == [
        ("assert", 0, "acct/3", True), ("check", 0, "acct/1", True), ("check", 1, "acct/2", True),
    ]  # fmt: skip
    assert [(w.key, w.op, bytes(w.before), bytes(w.after)) for w in life.writes] == [
        ("acct/1", "u", b"6", b"4"), ("acct/2", "d", b"1", b"null")
    ]  # fmt: skip
    assert life.resolved is not None
    assert (life.resolved.seq, life.resolved.written_ms) == (6, own.result_written_ms + 5)
    assert [d.seq for d in life.digests] == [6]
    text = "\n".join(lines(life))
    assert "0:4  executed, appended 1970-01-24" in text
    assert "conflict group of 3: 1 were executed before it, 1 after it" in text
    assert "acct/2: 1 -> null" in text
    assert json.loads(msgspec.json.encode(life))["verdict"]["reads"] == {"acct/1": 4}


def test_what_failed_and_what_is_not_known(bank: Bank) -> None:
    bank.plan(bank.append(put("a", "x", 1)))
    checks = [{"key": "x", "eq": 1}, {"key": "x", "gt": 1}]
    bank.plan(bank.append(put("no", "y", 1, checks=checks, reads=["z"])))
    bank.plan(bank.append(b'{"id": "broken"}!'))
    life = bank.life(2, kept=False)
    assert [c.holds for c in life.checks] == [True, False]
    assert [(m.key, m.known, m.version) for m in life.met] == [
        ("x", "result", 1), ("z", "no", None), ("y", "no", None)
    ]  # fmt: skip
    assert life.unknown.keys() == {"met"}
    assert life.writes == []
    broken = bank.life(3)
    assert (broken.met, broken.checks, bytes(broken.transaction)) == ([], [], b"null")
    assert broken.unknown["met"].startswith("the record is no transaction")
    assert "not known\n" in "\n".join(lines(broken)) + "\n"


def test_what_kafka_does_not_keep_is_said(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    moved(bank)
    bank.kafka.topics[NAMES.feedback][0].trim(9)
    bank.kafka.topics[NAMES.transactions][0].trim(5)
    bank.kafka.topics[NAMES.digests][0].trim(9)
    life = bank.life(5)
    assert (life.plan, life.order.released_ms, life.digests) == (None, None, [])
    assert life.unknown.keys() == {"plan", "transaction", "met", "digests"}
    assert len(life.writes) == 2, "the changes are there still"
    monkeypatch.setattr(collecting, "PLAN_SHOWN_MAX", 2)
    assert bank.life(7 - 1).unknown["plan"]
    bank.kafka.topics[NAMES.results][0].trim(99)
    gone = bank.life(6)
    assert (gone.appends, "appends" in gone.unknown) == ([], True)


def leased(name: str) -> bytes:
    """Two keys that end, one of them soon."""
    puts = [{"op": "put", "key": key, "value": ms, "ttl_ms": ms} for key, ms in ENDS.items()]
    return json.dumps({"id": name, "updates": puts}).encode()


ENDS = {"lease": 5, "kept": 500_000}
TAKEN = put("b", "x", 1, checks=[{"key": "lease", "exists": False}], reads=["kept"])
MET = {"lease": (None, 0), "kept": (500_000, 1), "x": (None, 0)}


def test_what_had_ended_by_its_time_was_absent(bank: Bank) -> None:
    bank.plan(bank.append(leased("a")))
    bank.plan(bank.append(TAKEN))
    life = bank.life(2)
    assert [check.holds for check in life.checks] == [True]
    assert {m.key: (json.loads(bytes(m.value)), m.version) for m in life.met} == MET


def test_outputs_tell_of_a_key_that_had_just_ended_what_it_was_and_that_is_said(bank: Bank) -> None:
    bank.plan(bank.append(leased("a")))
    bank.plan(bank.append(put("b", "lease", 1, checks=[{"key": "lease", "exists": False}])))
    life = bank.life(2, kept=False)
    assert [check.holds for check in life.checks] == [True]
    assert [(m.key, bytes(m.value), m.known) for m in life.met] == [("lease", b"5", "changes")]
    assert "of a key that had just ended, the value that ended" in life.unknown["met"]


def test_what_was_rejected_was_not_executed(bank: Bank) -> None:
    bank.plan(bank.append(b'{"id": "odd", "what": 1}'), bank.append(put("even", "x", 1)))
    odd, even = bank.life(1), bank.life(2)
    assert [each.executed for each in (*odd.appends, *even.appends)] == [False, True]
    assert "  0:0  not executed (invalid-transaction), appended " in "\n".join(lines(odd))


def test_a_plan_that_is_too_large_has_no_group(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    moved(bank)
    monkeypatch.setattr(collecting, "PLAN_SHOWN_MAX", 2)
    life = bank.life(5)
    assert life.plan is not None
    assert life.plan.group is None
    assert list(life.unknown) == ["group"]


def test_several_partitions_let_a_transaction_go_when_all_have_passed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = Bank(monkeypatch, 2)
    record = bank.append(put("a", "x", 1))
    waiting = explain(_executed(bank, record), _collected(bank, 1), lambda _: {})
    assert (waiting.order.released_ms, "order" in waiting.unknown) == (None, True)
    later = bank.kafka.now_ms + 7
    bank.kafka.now_ms = later
    for number in range(2):
        bank.kafka.append(NAMES.transactions, number, encode_marker(Marker(later, 2, "s")))
    life = explain(bank.results[0], _collected(bank, 1), lambda _: {})
    assert life.order.released_ms == later
    assert [(p.partition, p.offset) for p in life.order.passed or ()] == [(0, 1), (1, 0)]


def _executed(bank: Bank, record: tuple[bytes, int, int, int]) -> Result:
    bank.plan(record)
    return bank.results[-1]


def _collected(bank: Bank, seq: int) -> Evidence:
    return collect(CONNECTION, "bank", bank.results[seq - 1])


def txn(name: str, **parts: Any) -> Transaction:
    found = decode(json.dumps({"id": name, **parts}).encode())
    assert isinstance(found, Transaction)
    return found


def test_a_group_is_what_a_written_key_an_id_or_the_constraints_connect() -> None:
    write = {"updates": [{"op": "delete", "key": "k"}]}
    members = [
        PlanMember(1, txn("a", reads=["r"])), PlanMember(2, txn("b", reads=["r", "k"])),
        PlanMember(3, txn("c", **write)), PlanMember(4, None), PlanMember(5, txn("b", reads=["q"])),
        PlanMember(6, txn("d", updates=[{"op": "delete", "key": "q"}])),
    ]  # fmt: skip
    assert group_of(members, 1).transactions == 1, "r is only read"
    found = group_of(members, 3)
    assert (found.transactions, found.waited_for, found.waited) == (4, 1, 2)
    assert [(m.seq, m.keys) for m in found.members] == [(2, ["k"]), (5, []), (6, [])]
    assert group_of(members, 4).transactions == 1
    rule = {"declare": {"name": "n", "prefix": "", "type": "number"}}
    declared = [*members, PlanMember(7, txn("e", constrain=rule))]
    assert group_of(declared, 7).transactions == 1
    after = [*declared, PlanMember(8, txn("f", updates=[{"op": "delete", "key": "z"}]))]
    assert group_of(after, 7).transactions == 2, "who writes after the first reads the constraints"
    assert group_of(after, 7, declared=True).transactions == 6
    many = [PlanMember(seq, txn(str(seq), **write)) for seq in range(1, 301)]
    crowd = group_of(many, 150)
    assert (crowd.transactions, len(crowd.members)) == (300, MEMBERS_SHOWN)
    assert (crowd.members[0].seq, crowd.members[-1].seq) == (100, 200)


def test_a_token_sees_what_it_may_read(bank: Bank) -> None:
    moved(bank)
    client = Caller("c", ["acct/1"], [""])
    life = visible_history(bank.life(5), client.may_read)
    assert [(m.key, m.hidden, bytes(m.value)) for m in life.met] == [
        ("acct/3", True, b"null"), ("acct/1", False, b"6"), ("acct/2", True, b"null")
    ]  # fmt: skip
    assert [(c.hidden, c.wanted) for c in life.checks] == [
        (True, {}), (False, {"ge": 5}), (True, {})
    ]  # fmt: skip
    assert [bytes(w.before) for w in life.writes] == [b"6", b"null"]
    assert bytes(life.transaction) == b"null"
    assert "scopes" in life.unknown
    assert life.plan is not None
    assert life.plan.group is not None
    assert {member.id for member in life.plan.group.members} == {None}
    everybody = Caller("e", [""])
    assert "scopes" not in visible_history(bank.life(5), everybody.may_read).unknown


OPEN, CLOSED = {"range": {"prefix": "open/"}}, {"range": {"prefix": "closed/"}}


@pytest.mark.parametrize(
    ("parts", "read", "shown"),
    [
        ({"reads": [OPEN]}, "open/", "t"),
        ({"reads": [OPEN]}, "closed/", None),
        ({"reads": ["open/1", CLOSED]}, "open/", None),
        ({"checks": [{**OPEN, "count": 0}]}, "open/", "t"),
        ({"checks": [{**CLOSED, "count": 0}], "reads": ["open/1"]}, "open/", None),
        ({"locks": [CLOSED], "reads": ["open/1"]}, "open/", None),
    ],
)
def test_the_record_is_shown_to_who_may_read_all_that_it_names(
    parts: dict[str, Any], read: str, shown: str | None, bank: Bank
) -> None:
    bank.plan(bank.append(json.dumps({"id": "t", "updates": [], **parts}).encode()))
    life = visible_history(bank.life(1), Caller("c", [read], [""]).may_read)
    told = json.loads(bytes(life.transaction))
    assert (told and told["id"]) == shown


def test_what_cannot_be_read_is_named(bank: Bank) -> None:
    """A later release may have written it; another id's result, or change, matters to nobody."""
    moved(bank)
    changes = bank.kafka.topics[NAMES.changes][0].records
    bank.kafka.append(NAMES.results, 0, b"of another time", b"else")
    changes.insert(0, Record(0, 0, bank.kafka.now_ms, b"k", b"of somebody else"))
    assert bank.life(5).unknown == {}
    bank.kafka.append(NAMES.results, 0, b"of another time", b"move")
    changes.insert(0, Record(0, 0, bank.kafka.now_ms, b"k", b'{"format":99}'))
    unknown = bank.life(5).unknown
    assert "a result with its id cannot be read" in unknown["appends"]
    assert "some changes cannot be read" in unknown["writes"]


@scenario
async def test_over_rest() -> None:
    database = MemoryDatabase()

    def evidence(result: Result) -> Evidence:
        return Evidence(raw=database.log.records[result.source.offset], partitions=1, missing={})

    app = create_app(database.model, database.log, database.changes, about=About(evidence=evidence))
    async with InProcess(app) as client:
        sent = put("a/b", "x", 1, checks=[{"key": "x", "exists": False}])
        assert (await client.request("POST", "/v1/transactions", sent)).status == 200
        found = await client.request("GET", "/v1/explanations/a%2Fb")
        assert found.status == 200
        told = found.json()
        assert (told["id"], told["order"]["seq"], told["verdict"]["status"]) == (
            "a/b", 1, "committed"
        )  # fmt: skip
        assert told["met"][0] == {
            "key": "x", "value": None, "version": 0, "known": "state", "hidden": False
        }  # fmt: skip
        assert told["checks"][0]["holds"] is True
        assert told["transaction"]["id"] == "a/b"
        none = await client.request("GET", "/v1/explanations/none")
        assert (none.status, none.json()["type"]) == (404, "/problems/transaction-unknown")
    plain = create_app(database.model, database.log, database.changes)
    async with InProcess(plain) as client:
        told = (await client.request("GET", "/v1/explanations/a%2Fb")).json()
        assert told["unknown"]["plan"] == "there is no Kafka behind this facade"
        database.executing = False
        await client.request("POST", "/v1/transactions", put("later", "x", 2),
                             {"prefer": "respond-async"})  # fmt: skip
        assert (await client.request("GET", "/v1/explanations/later")).status == 202


@scenario
async def test_over_rest_what_had_ended_by_its_time_was_absent() -> None:
    database, now = MemoryDatabase(), [1_000]
    database.clock = lambda: now[0]

    def evidence(result: Result) -> Evidence:
        return Evidence(raw=database.log.records[result.source.offset], missing={})

    app = create_app(database.model, database.log, database.changes, about=About(evidence=evidence))
    async with InProcess(app) as client:
        await client.request("POST", "/v1/transactions", leased("a"))
        now[0] += 10
        assert (await client.request("POST", "/v1/transactions", TAKEN)).status == 200
        told = (await client.request("GET", "/v1/explanations/b")).json()
    assert {met["key"]: (met["value"], met["version"]) for met in told["met"]} == MET


@scenario
async def test_a_search_of_kafka_holds_no_thread_that_reads_need() -> None:
    database = MemoryDatabase()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    answered, asked = threading.Event(), threading.Event()

    def evidence(_: Result) -> Evidence:
        asked.set()
        answered.wait(60)
        return Evidence(missing={})

    app = create_app(database.model, database.log, database.changes, about=About(evidence=evidence))
    async with InProcess(app) as client:
        await client.request("POST", "/v1/transactions", put("a", "x", 1))
        explained = asyncio.create_task(client.request("GET", "/v1/explanations/a"))
        try:
            await until(asked.is_set)
            listed = await client.request("GET", "/v1/kv?limit=500")  # read in a thread
            assert [entry["key"] for entry in listed.json()["entries"]] == ["x"]
        finally:
            answered.set()
        assert (await explained).status == 200


@pytest.mark.fault(
    52, "explanations of ids that repeat, and of plans that are large", "a bounded part is shown"
)
def test_of_ids_that_repeat_and_of_large_plans_a_bounded_part_is_shown(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "APPENDS_SHOWN_MAX", 3)
    monkeypatch.setattr(collecting, "PLAN_BYTES_SHOWN_MAX", 300)
    record = put("a", "k", "x" * 50, reads=["k"])
    bank.plan(*(bank.append(record) for _ in range(3)))
    assert "appends" not in bank.life(1).unknown
    bank.plan(*(bank.append(record) for _ in range(2)))
    life = bank.life(1)
    assert (len(life.appends), life.unknown["appends"]) == (3, "only the first 3 are shown")
    assert "more than 300 bytes" in life.unknown["group"]
    assert life.plan is not None
    assert life.plan.group is None
    found = collect(CONNECTION, "bank", bank.results[0])
    assert [told.result.reads for told in found.results] == [{}, {}, {}]


def test_keys_of_members_are_shown_up_to_a_number() -> None:
    wide = [{"range": {"prefix": "k"}}]
    keys = [f"k{n:03}" for n in range(KEYS_SHOWN + 1)]
    members = [
        PlanMember(1, txn("a", updates=[{"op": "delete", "key": key} for key in keys])),
        PlanMember(2, txn("b", reads=wide)), PlanMember(3, txn("c", reads=[*wide, "k000"])),
        PlanMember(4, txn("d", reads=[{"range": {"start": "k000", "end": "k002"}}, "k099"])),
    ]  # fmt: skip
    found = group_of(members, 2)
    assert [(m.keys, m.more) for m in found.members] == [
        (keys[:-1], True), (keys[:-1], True), (["k000", "k001", "k099"], False)
    ]  # fmt: skip


def test_only_keys_that_may_be_read_connect_transactions() -> None:
    members = [
        PlanMember(seq, txn(str(seq), updates=[{"op": "delete", "key": key} for key in keys]))
        for seq, keys in enumerate((["m/1"], ["m/1", "s/1"], ["s/1"], ["s/1", "m/2"]), start=1)
    ]
    assert group_of(members, 1).transactions == 4
    found = group_of(members, 1, may_read=Caller("c", ["m/"]).may_read)
    assert (found.transactions, [m.keys for m in found.members]) == (2, [["m/1"]])

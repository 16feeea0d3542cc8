"""Workflows: graphs, follow-ups, windows, nested transactions, on the serial oracle."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from streamydb import records as r
from streamydb.errors import RecordError
from streamydb.facade.payloads import parse
from streamydb.facade.problems import ProblemError
from streamydb.kafka.streams import StreamOrder
from streamydb.procedures.call_flow import SlidingWindow
from streamydb.procedures.core import declared_keys
from streamydb.procedures.declare import DeclaredKeys
from streamydb.procedures.graph import Window
from streamydb.procedures.modules import ModuleRefused, compile_module
from streamydb.records import schemas
from streamydb.records.rulings import Fault, Rulings
from streamydb.txn_processor import interpreter
from tests.support.workflows import HEAD, VOTER, Log

FLOW = "$flows/voter"


def vote(log: Log, who: str, phone: int = 1) -> dict[str, Any]:
    return log.call("voter.vote", [f"phone/{phone}", FLOW], phone=phone, who=who)


def test_a_batch_goes_through_the_graph() -> None:
    log = Log(VOTER)
    assert vote(log, "ann")["status"] == "committed"
    assert log.value(FLOW) == {"done": 0, "made": 1}
    results = log.settle()
    assert [found["status"] for found in results] == ["committed"] * 3
    assert results[0]["id"] == "$flow/2/1"
    assert results[0]["returned"] == 2
    assert log.value("votes/ann") == 1
    assert log.value("board") == {"ann": 1}
    assert log.value(FLOW) == {"done": 3, "made": 3}
    assert log.streams() == [
        ("voter.votes", {"who": "ann"}),
        ("voter.counted", {"total": 1, "who": "ann"}),
    ]


def test_a_window_shows_whole_slides_only() -> None:
    log = Log(VOTER)
    seen = []
    for at, who in enumerate("abcdefg"):
        vote(log, who, at)
        log.settle()
        seen.append(log.value("trending"))
    assert seen == [None, ["a", "b"], ["a", "b"], [*"abcd"], [*"abcd"], [*"cdef"], [*"cdef"]]
    assert log.value("$windows/voter.last") == {"active": [*"cdef"], "staged": ["g"]}


def test_copies_of_follow_ups_do_nothing_after_any_time() -> None:
    log = Log(VOTER)
    log.oracle.id_window = 1
    vote(log, "ann")
    first = log.waiting[0]
    log.settle()
    again = log.append(first)
    assert (again["status"], again["code"]) == ("aborted", "batch-repeated")
    assert log.value("votes/ann") == 1
    assert not log.waiting


def test_a_follow_up_that_overtakes_is_executed_when_it_comes_again() -> None:
    log = Log(VOTER)
    vote(log, "ann")
    vote(log, "bob")
    first, second = log.waiting
    log.waiting = []
    assert log.append(second)["code"] == "batch-early"
    assert [log.append(raw)["status"] for raw in (first, second)] == ["committed"] * 2
    assert [record["who"] for name, record in log.streams() if name == "voter.counted"] == [
        "ann",
        "bob",
    ]


def test_an_aborted_follow_up_counts_and_the_next_one_runs() -> None:
    log = Log(VOTER.replace('    seen = db.get("board", {})', '    raise Abort("no board")'))
    vote(log, "ann")
    codes = [found["code"] for found in log.settle()]
    assert codes == [None, "procedure-aborted", None]
    assert log.value(FLOW) == {"done": 3, "made": 3}
    assert log.value("board") is None


def test_an_aborted_call_emits_nothing() -> None:
    log = Log(VOTER)
    for _ in range(4):
        last = vote(log, "ann")
    assert last["reason"] == "three votes a phone"
    assert len(log.waiting) == 3 == len(log.streams())


@pytest.mark.parametrize(
    ("keys", "code", "reason"),
    [(["phone/1"], "undeclared-key", FLOW), ([FLOW], "undeclared-key", "phone/1")],
)
def test_emitting_takes_the_flow_key(keys: list[str], code: str, reason: str) -> None:
    result = Log(VOTER).call("voter.vote", keys, phone=1, who="ann")
    assert (result["code"], result["reason"]) == (code, reason)


OTHER = (
    HEAD
    + """
flow = Workflow(emits={"send": ["out"]}, triggers={"out": ["take"]},
                windows={"w": {"owner": "take", "size": 2, "slide": 1}})

@procedure(keys=lambda args: args["touch"])
def send(db, touch, what="out", how="emit"):
    if how == "emit":
        db.emit(what, {"touch": touch})
    elif how == "window":
        db.window("w").insert(1)
    elif how == "call":
        db.call("take", batch=[])
    elif how == "many":
        for n in range(1001):
            db.emit(what, n)
    elif how == "large":
        for n in range(3):
            db.emit(what, "x" * 200_000)
    elif how == "deep":
        value = []
        for n in range(62):
            value = [value]
        db.emit(what, value)
    elif how == "read":
        db.get("$windows/voter.w")
    else:
        db.put("$flows/voter", 1)

@procedure(keys=lambda args: args["batch"][0]["touch"])
def take(db, batch):
    return len(batch)
"""
)


@pytest.mark.parametrize(
    ("args", "code", "reason"),
    [
        ({"what": "nowhere"}, "unknown-stream", "nowhere"),
        ({"how": "window"}, "not-the-owner", "w"),
        ({"how": "call"}, "unknown-procedure", "take"),
        ({"how": "many"}, "budget-exceeded", "emits"),
        ({"how": "large"}, "budget-exceeded", "emits"),
        ({"how": "deep"}, "follow-up-refused", "take: its key function fails"),
        ({"how": "read"}, "reserved-key", "$windows/voter.w"),
        ({"how": "write"}, "reserved-key", "$flows/voter"),
        ({"touch": [""]}, "follow-up-refused", "take: invalid-key"),
        ({"touch": ["$procedures/x"]}, "follow-up-refused", "take: reserved-key"),
        ({"touch": [1]}, "follow-up-refused", "take: its key function fails"),
    ],
)
def test_what_a_procedure_must_not_do(args: dict[str, Any], code: str, reason: str) -> None:
    log = Log(OTHER)
    result = log.call("voter.send", [FLOW], **{"touch": [], **args})
    assert (result["status"], result["code"], result["reason"]) == ("aborted", code, reason)
    assert not log.waiting
    assert not log.streams()
    assert log.value(FLOW) is None


@pytest.mark.parametrize(
    "record",
    [
        {"id": "$flow/1/1", "updates": []},
        {"id": "$flow/x"},
        {"id": "free", "call": {"procedure": "m.p", "keys": ["$flows/m"], "batch": {
            "id": 1, "stream": "s", "number": 1, "depth": 1}}},
        {"id": "$flow/1/1", "call": {"procedure": "m.p", "batch": {
            "id": 1, "stream": "s", "number": 1, "depth": 1}}},
        {"id": "$flow/1/1", "reads": ["k"], "call": {
            "procedure": "m.p", "keys": ["$flows/m"],
            "batch": {"id": 1, "stream": "s", "number": 1, "depth": 1}}},
        {"id": "$flow/01/1", "call": {"procedure": "m.p", "keys": ["$flows/m"], "batch": {
            "id": 1, "stream": "s", "number": 1, "depth": 1}}},
    ],
)  # fmt: skip
def test_ids_of_follow_ups_are_reserved(record: dict[str, Any]) -> None:
    found = r.decode(json.dumps(record).encode())
    assert isinstance(found, r.Rejection)
    assert found.code == "reserved-id"


@pytest.mark.parametrize(
    ("keys", "fits"),
    [
        (["$flows/m", "$windows/m.w"], True),
        (["$flows/n"], False),
        (["$windows/m"], False),
        (["$windows/m.w.x"], False),
        (["$procedures/m"], False),
    ],
)
def test_reserved_keys_are_lent_to_calls_of_their_module(keys: list[str], *, fits: bool) -> None:
    found = r.decode(json.dumps({"id": "a", "call": {"procedure": "m.p", "keys": keys}}).encode())
    assert isinstance(found, r.Transaction) is fits
    if isinstance(found, r.Rejection):
        assert found.code == "reserved-key"


BODY = """
@procedure(keys=lambda args: [])
def a(db, batch):
    pass

@procedure(keys=lambda args: [])
def b(db, batch):
    pass

@procedure(keys=lambda args: [])
def c(db, batch):
    pass

def plain(db, batch):
    pass
"""


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ('emits={"a": ["s"]}, triggers={"s": ["a"]}', "a cycle of streams through a"),
        ('emits={"a": ["s"], "b": ["t"]}, triggers={"s": ["b"], "t": ["a"]}', "a cycle"),
        (
            'emits={"a": ["s", "u"], "b": ["t"]}, triggers={"s": ["b"], "t": ["c"], "u": ["c"]}',
            "c is reached over paths of different lengths",
        ),
        ('emits={"x": ["s"]}', "x: no such procedure"),
        ('triggers={"s": ["plain"]}', "plain is triggered, so it needs @procedure(keys=...)"),
        ('windows={"w": {"owner": "a", "size": 2, "slide": 3}}', "1 <= slide <= size"),
        ('windows={"w": {"owner": "a", "size": 2, "slide_ms": 3}}', "window w: owner, and"),
        ('nested={"a": ["b"], "b": ["c"]}', "b: nested in another"),
        ('emits=["a"]', "emits is a dict of lists"),
        ("emits=dict()", "Workflow takes named literals"),
        ("speed=1", "Workflow takes emits"),
        ('emits={"a": ["s"]})\nother = Workflow(emits={}', "a module has one Workflow"),
    ],
)
def test_a_graph_is_checked_when_it_is_registered(told: str, why: str) -> None:
    with pytest.raises(ModuleRefused) as refused:
        compile_module("m", f"{HEAD}flow = Workflow({told}){BODY}".encode())
    assert why in str(refused.value)
    assert "m.py:" in str(refused.value)


NESTED = (
    HEAD
    + """
flow = Workflow(
    emits={"pay": ["paid"], "book": ["booked"], "settle": ["settled"]},
    triggers={"paid": ["book"], "booked": ["tell"]},
    windows={"paid": {"owner": "pay", "size_ms": 100, "slide_ms": 10}},
    nested={"settle": ["pay", "book"], "both": ["pay", "book"]},
)

@procedure(keys=lambda args: [args["who"]])
def pay(db, who, amount):
    db.window("paid").insert(amount)
    db.emit("paid", {"who": who, "amount": amount})
    return db.add(who, -amount, min=0)

@procedure(keys=lambda args: ["book"])
def book(db, batch):
    if batch[0]["amount"] == 13:
        raise Abort("thirteen")
    db.add("book", sum(each["amount"] for each in batch))
    db.emit("booked", len(batch))

@procedure(keys=lambda args: ["told"])
def tell(db, batch):
    db.append("told", [db.batch, *batch])

@procedure(keys=lambda args: [args["who"], "book"])
def settle(db, who, amount):
    db.put("book", 100)
    try:
        left = db.call("pay", who=who, amount=amount)
    except Abort:
        left = None
    db.emit("settled", left)
    return left

@procedure
def both(db, who, amount):
    return db.call("pay", who=who, amount=amount)
"""
)
OWN = ["$flows/shop", "$windows/shop.paid"]


def shop(**values: int) -> Log:
    log = Log(NESTED, "shop")
    updates = [{"op": "put", "key": key, "value": value} for key, value in values.items()]
    log.append(json.dumps({"id": "open", "updates": updates}).encode())
    return log


def test_a_nested_transaction_runs_its_part_of_the_graph_at_once() -> None:
    log = shop(ann=50)
    result = log.call("shop.settle", ["ann", "book", *OWN], who="ann", amount=20)
    assert (result["status"], result["returned"]) == ("committed", 30)
    assert log.value("book") == 120
    assert [name for name, _ in log.streams()] == ["shop.paid", "shop.booked", "shop.settled"]
    assert len(log.waiting) == 1, "what is taken inside makes no follow-up"
    log.settle()
    assert log.value("told") == [[result["seq"], 1]]


def test_a_nested_transaction_is_all_or_nothing() -> None:
    log = shop(ann=50)
    result = log.call("shop.settle", ["ann", "book", *OWN], who="ann", amount=13)
    assert (result["code"], result["reason"]) == ("procedure-aborted", "thirteen")
    result = log.call("shop.settle", ["ann", "book", *OWN], who="ann", amount=60)
    assert result["code"] == "bound-violated"
    assert (log.value("ann"), log.value("book"), log.streams()) == (50, None, [])


def test_outside_the_group_the_same_procedures_are_steps_of_the_workflow() -> None:
    log = shop(ann=50)
    log.call("shop.pay", ["ann", *OWN], who="ann", amount=13)
    assert [found["code"] for found in log.settle()] == ["procedure-aborted"]
    assert log.value("ann") == 37


def test_keys_of_calls_are_those_of_all_that_runs_inside() -> None:
    module = compile_module("shop", NESTED.encode())
    told = {"who": "ann", "amount": 1}
    assert declared_keys(module, "both", told) == DeclaredKeys(["ann", "book", *OWN], [], [])
    assert declared_keys(module, "tell", {"batch": []}) == DeclaredKeys(["told"], [], [])
    assert declared_keys(module, "pay", told) == DeclaredKeys(["ann", *OWN], [], [])


def test_a_window_of_time_slides_at_multiples_of_its_slide() -> None:
    window, seen = None, []
    declared = Window("p", 100, 10, timed=True)
    for now in (5, 8, 12, 29, 31, 108, 119, 300):
        view = SlidingWindow(declared, window, now)
        seen.append((view.items(), view.slid))
        view.insert(now)
        window = view.value()
    assert seen == [
        ([], False), ([], False), ([5, 8], True), ([5, 8, 12], True), ([5, 8, 12, 29], True),
        ([5, 8, 12, 29, 31], True), ([12, 29, 31, 108], True), ([], True),
    ]  # fmt: skip


def test_streams_and_follow_ups_fit_their_schemas() -> None:
    log = Log(VOTER)
    vote(log, "ann")
    log.settle()
    made = schemas.schemas()
    for topic, name in (("streams", "stream"), ("transactions", "transaction")):
        found = [out.value or b"" for out in log.outputs if out.topic == topic]
        assert found
        for value in found:
            Draft202012Validator(made[name]).validate(json.loads(value))


def test_a_reader_of_a_stream_sees_each_record_once_and_in_order() -> None:
    log = Log(VOTER)
    for who in ("ann", "bob"):
        vote(log, who)
        log.settle()
    records = [(out.key, out.value) for out in log.outputs if out.topic == "streams"]
    order = StreamOrder("voter.votes")
    taken = [order.take(*record) for record in [*records[:3], *records[1:], *records]]
    assert [found.record for found in taken if found] == [{"who": "ann"}, {"who": "bob"}]
    with pytest.raises(RecordError, match="Not a record of a stream"):
        order.take(b"voter.votes", b"{}")


def test_a_fault_of_ours_counts_a_follow_up() -> None:
    """Else it would hold up its module; the oracle takes the verdict as given."""
    log = Log(VOTER)
    vote(log, "ann")
    raw = log.waiting.pop()
    txn = r.decode(raw)
    assert isinstance(txn, r.Transaction)
    verdict = interpreter.failed(txn, lambda key: log.oracle.state.get(key, (None, 0)))
    assert verdict.code == "internal"
    assert verdict.writes == [
        interpreter.Write(FLOW, b'{"done":0,"made":1}', b'{"done":1,"made":1}')
    ]
    log.oracle.rulings = Rulings([Fault(0, len(log.records), "KeyError 0")])
    assert log.append(raw)["code"] == "internal"
    assert log.value(FLOW) == {"done": 1, "made": 1}


@pytest.mark.parametrize("id_", ["$flow/1/1", "$flow/x"])
def test_the_facade_appends_no_follow_ups(id_: str) -> None:
    batch = {"id": 1, "stream": "s", "number": 1, "depth": 1}
    call = {"procedure": "m.p", "keys": ["$flows/m"], "batch": batch}
    with pytest.raises(ProblemError, match="begins with") as refused:
        parse(json.dumps({"id": id_, "call": call}).encode())
    assert refused.value.members["code"] == "reserved-id"

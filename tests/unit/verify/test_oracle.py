"""The serial oracle, rule by rule: what it says here is what the engine must do."""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb import limits
from streamydb.records import Marker, canonical, encode_marker
from streamydb.verify.oracle.core import Oracle, replay, run
from streamydb.verify.oracle.order import LogRecord
from streamydb.verify.oracle.outputs import OutputRecord
from tests.support.generators import PAYLOADS


class Database:
    """An oracle that is fed Python objects, at offsets 0, 1, ... of partition 0."""

    def __init__(self, id_window: int = 100) -> None:
        self.oracle = Oracle("db", id_window)
        self.offset = 0
        self.outputs: list[OutputRecord] = []

    def raw(self, payload: bytes | None) -> dict[str, Any]:
        """Apply a record and return its result."""
        self.outputs = self.oracle.apply(payload, 0, self.offset, 1000 + self.offset)
        self.offset += 1
        assert [record.topic for record in self.outputs].count("results") == 1
        result: dict[str, Any] = json.loads(self.outputs[0].value or b"")
        return result

    def do(self, *updates: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Apply a transaction with a fresh id and return its result."""
        transaction = {"id": f"t{self.offset}", "updates": list(updates), **fields}
        return self.raw(json.dumps(transaction).encode())

    def put(self, **values: Any) -> None:
        """Store values."""
        puts = [{"op": "put", "key": key, "value": value} for key, value in values.items()]
        assert self.do(*puts)["status"] == "committed"

    def value(self, key: str) -> Any:
        """The value of a key, None if absent."""
        stored = self.oracle.state.get(key)
        return None if stored is None else json.loads(stored[0])


def test_the_outputs_byte_for_byte() -> None:
    database = Database()
    database.put(a=1, d=2)
    database.raw(
        b'{"id":"x\\"","reads":["a","q"],"updates":[{"op":"add","key":"a","by":1},'
        b'{"op":"delete","key":"d"},{"op":"put","key":"n","value":[1.0]}]}'
    )
    end = (
        '"ts_ms":1001,"source":{"connector":"streamydb","db":"db","partition":0,"offset":1,"seq":2}'
    )
    by = '"transaction":{"id":"x\\"","total_order":%d,"data_collection_order":%d}}'
    assert database.outputs == [
        OutputRecord(
            "results",
            b'x"',
            b'{"id":"x\\"","seq":2,"ts_ms":1001,"status":"committed","reads":{"a":2,"q":null},'
            b'"failed":[],"code":null,"source":{"partition":0,"offset":1}}',
        ),
        OutputRecord(
            "changes", b"a", f'{{"op":"u","before":1,"after":2,{end},{by % (1, 1)}'.encode()
        ),
        OutputRecord(
            "changes", b"d", f'{{"op":"d","before":2,"after":null,{end},{by % (2, 2)}'.encode()
        ),
        OutputRecord("changes", b"d", None),
        OutputRecord(
            "changes", b"n", f'{{"op":"c","before":null,"after":[1],{end},{by % (3, 3)}'.encode()
        ),
    ]
    assert database.oracle.state == {"a": (b"2", 2), "n": (b"[1]", 2)}


def test_a_bad_record_gets_a_result_and_a_dead_letter() -> None:
    database = Database()
    result = database.raw(b"nonsense")
    assert result == {
        "id": None,
        "seq": 1,
        "ts_ms": 1000,
        "status": "rejected",
        "reads": {},
        "failed": [],
        "code": "invalid-json",
        "source": {"partition": 0, "offset": 0},
    }
    assert database.outputs[0].key is None
    assert database.outputs[1] == OutputRecord(
        "deadletters",
        b"0/0",
        b'{"seq":1,"ts_ms":1000,"code":"invalid-json","id":null,'
        b'"source":{"partition":0,"offset":0},"payload":"bm9uc2Vuc2U=","truncated":false,'
        b'"error":null}',
    )


@pytest.mark.parametrize("over", [0, 1])
def test_a_dead_letter_keeps_the_first_bytes(over: int) -> None:
    database = Database()
    payload = b"x" * (limits.DEAD_LETTER_PAYLOAD_BYTES_MAX + over)
    database.raw(payload)
    letter = json.loads(database.outputs[1].value or b"")
    kept = payload[: limits.DEAD_LETTER_PAYLOAD_BYTES_MAX]
    assert base64.b64decode(letter["payload"]) == kept
    assert letter["truncated"] is bool(over)


def test_a_tombstone_is_rejected_with_a_dead_letter_without_payload() -> None:
    database = Database()
    assert database.raw(None)["code"] == "null-value"
    assert json.loads(database.outputs[1].value or b"")["payload"] is None


@pytest.mark.parametrize(
    ("check", "value", "holds"),
    [
        ({"version": 1}, 5, True),
        ({"version": 2}, 5, False),
        ({"version": 0}, None, True),
        ({"exists": True}, 5, True),
        ({"exists": True}, None, False),
        ({"exists": False}, None, True),
        ({"eq": 5.0}, 5, True),
        ({"eq": True}, 1, False),
        ({"eq": None}, None, True),
        ({"eq": None}, 5, False),
        ({"ne": None}, 5, True),
        ({"ne": {"a": 1, "b": 2}}, {"b": 2, "a": 1}, False),
        ({"lt": 6}, 5, True),
        ({"lt": 5}, 5, False),
        ({"le": 5.0}, 5, True),
        ({"gt": 4.5}, 5, True),
        ({"gt": 5}, 5, False),
        ({"ge": 5}, 5, True),
        ({"ge": 9007199254740993}, 9007199254740992, False),
        ({"lt": "b"}, "a", True),
        ({"gt": "\ue000"}, "\U0001f600", True),
        ({"lt": "6"}, 5, False),
        ({"ge": 0}, "5", False),
        ({"ge": 0}, True, False),
        ({"le": 0}, None, False),
        ({"ge": "a"}, ["a"], False),
        ({"ge": 1, "le": 9, "version": 1}, 5, True),
        ({"ge": 1, "le": 4}, 5, False),
    ],
)
def test_checks(check: dict[str, Any], value: Any, *, holds: bool) -> None:
    database = Database()
    if value is not None:
        database.put(k=value)
    result = database.do(checks=[{"key": "k", **check}])
    assert result["status"] == ("committed" if holds else "aborted")
    if not holds:
        version = int(value is not None)
        entry = {"check": "check", "index": 0, "key": "k", "value": value, "version": version}
        assert (result["code"], result["failed"]) == ("check-failed", [entry])


def test_all_failed_checks_are_listed_asserts_first() -> None:
    database = Database()
    database.put(a=1, b=2)
    result = database.do(
        {"op": "delete", "key": "a"},
        asserts={"a": 1, "b": 3, "c": None, "d": 4},
        checks=[{"key": "a", "eq": 1}, {"key": "a", "eq": 2}],
    )
    assert [(e["check"], e["index"], e["key"], e["value"]) for e in result["failed"]] == [
        ("assert", 1, "b", 2),
        ("assert", 3, "d", None),
        ("check", 1, "a", 1),
    ]
    assert database.value("a") == 1


def test_failed_entries_at_the_limit_and_one_over() -> None:
    for over in (0, 1):
        asserts = dict.fromkeys(map(str, range(limits.FAILED_ENTRIES_MAX + over)), 1)
        result = Database().do(asserts=asserts)
        assert len(result["failed"]) == limits.FAILED_ENTRIES_MAX


def test_a_long_actual_value_is_left_out_of_a_failed_check() -> None:
    database = Database()
    fits = "x" * (limits.FAILED_VALUE_BYTES_MAX - 2)
    database.put(a=fits, b=fits + "x")
    first, second = database.do(asserts={"a": 1, "b": 1})["failed"]
    assert first["value"] == fits
    assert "truncated" not in first
    assert (second["value"], second["truncated"], second["version"]) == (None, True, 1)


INT_MAX = limits.INTEGER_MAX


@pytest.mark.parametrize(
    ("before", "update", "outcome"),
    [
        (None, {"op": "add", "by": 2}, 2),
        (1, {"op": "add", "by": 0.5}, 1.5),
        (1.5, {"op": "add", "by": 0.5}, 2),
        (0.1, {"op": "add", "by": 0.2}, 0.1 + 0.2),
        (INT_MAX, {"op": "add", "by": -1}, INT_MAX - 1),
        (INT_MAX, {"op": "add", "by": 1}, "overflow"),
        (-(2**63), {"op": "add", "by": -1}, "overflow"),
        (1.7e308, {"op": "add", "by": 1.7e308}, "overflow"),
        (INT_MAX, {"op": "add", "by": 0.5}, 9.223372036854776e18),
        ("1", {"op": "add", "by": 1}, "not-a-number"),
        (True, {"op": "add", "by": 1}, "not-a-number"),
        (5, {"op": "add", "by": -5, "min": 0}, 0),
        (5, {"op": "add", "by": -6, "min": 0}, "bound-violated"),
        (5, {"op": "add", "by": 1, "max": 6.0}, 6),
        (5, {"op": "add", "by": 2, "max": 6}, "bound-violated"),
        (INT_MAX, {"op": "add", "by": 1, "max": 5}, "overflow"),
        (None, {"op": "max", "value": -3}, -3),
        (2, {"op": "max", "value": 3}, 3),
        (2, {"op": "max", "value": 1}, 2),
        (2, {"op": "min", "value": 1.5}, 1.5),
        (2**60, {"op": "max", "value": 2.0**60}, 2**60),
        ([], {"op": "min", "value": 1}, "not-a-number"),
        (None, {"op": "append", "value": None}, [None]),
        ([1], {"op": "append", "value": [2]}, [1, [2]]),
        ("x", {"op": "append", "value": 1}, "not-a-list"),
        (None, {"op": "next_id"}, 1),
        (41, {"op": "next_id"}, 42),
        (1.5, {"op": "next_id"}, "not-a-number"),
        ("x", {"op": "next_id"}, "not-a-number"),
        (INT_MAX, {"op": "next_id"}, "overflow"),
        (1, {"op": "put", "value": 2}, 2),
    ],
)
def test_updates(before: Any, update: dict[str, Any], outcome: Any) -> None:
    database = Database()
    if before is not None:
        database.put(k=before)
    result = database.do({**update, "key": "k"})
    if isinstance(outcome, str):
        version = int(before is not None)
        entry = {"check": "update", "index": 0, "key": "k", "value": before, "version": version}
        assert (result["status"], result["code"]) == ("aborted", outcome)
        assert (result["failed"], result["reads"]) == ([entry], {})
        assert database.value("k") == before
    else:
        assert database.oracle.state["k"] == (canonical(outcome), database.offset)


def test_the_first_update_that_fails_aborts_all() -> None:
    database = Database()
    database.put(s="x", n=1)
    result = database.do(
        {"op": "add", "key": "n", "by": 1},
        {"op": "add", "key": "s", "by": 1},
        {"op": "append", "key": "n2", "value": 1},
        {"op": "append", "key": "t", "value": 1},
    )
    assert (result["code"], [e["index"] for e in result["failed"]]) == ("not-a-number", [1])
    assert database.value("n") == 1
    assert len(database.outputs) == 1


def test_a_list_at_the_limit_and_one_over() -> None:
    for over, code in ((0, None), (1, "value-too-large")):
        database = Database()
        database.put(k=["x" * (limits.VALUE_BYTES_MAX - 10 + over)])
        result = database.do({"op": "append", "key": "k", "value": "abc"})
        assert result["code"] == code
        if code is None:
            assert len(database.oracle.state["k"][0]) == limits.VALUE_BYTES_MAX


def test_writes_that_keep_the_value_still_move_the_version() -> None:
    for update in ({"op": "put", "value": 1}, {"op": "max", "value": 0}, {"op": "add", "by": 0}):
        database = Database()
        database.put(k=1)
        database.do({**update, "key": "k"})
        assert database.oracle.state["k"] == (b"1", 2)
        assert json.loads(database.outputs[1].value or b"")["op"] == "u"


def test_a_delete_of_nothing_writes_nothing_and_takes_no_number() -> None:
    database = Database()
    database.do({"op": "delete", "key": "k"}, {"op": "put", "key": "l", "value": 1})
    assert [record.key for record in database.outputs[1:]] == [b"l"]
    change = json.loads(database.outputs[1].value or b"")
    assert change["transaction"]["total_order"] == 1


def test_reads_see_the_own_updates_and_end_with_the_counters() -> None:
    database = Database()
    database.put(a=1, b=2, d=3)
    result = database.do(
        {"op": "next_id", "key": "n2"},
        {"op": "next_id", "key": "a"},
        {"op": "delete", "key": "d"},
        reads=["d", "b", "zz", "a", "b"],
    )
    assert list(result["reads"].items()) == [
        ("d", None),
        ("b", 2),
        ("zz", None),
        ("a", 2),
        ("n2", 1),
    ]


@pytest.mark.fault(13, "empty lists, no keys", "commits")
def test_a_transaction_that_does_nothing_commits() -> None:
    database = Database()
    result = database.raw(b'{"id":"t"}')
    assert (result["status"], result["seq"], len(database.outputs)) == ("committed", 1, 1)


@pytest.mark.parametrize("over", [0, 1])
def test_results_at_the_limit_and_one_over(over: int) -> None:
    database = Database()
    part = "x" * 225_000
    database.put(a=part, b=part, c=part)
    frame = b'{"id":"t2","seq":3,"ts_ms":1002,"status":"committed","reads":{"a":%s,"b":%s,"c":%s,'
    frame += b'"d":""},"failed":[],"code":null,"source":{"partition":0,"offset":2}}'
    used = len(frame % ((canonical(part),) * 3))
    database.put(d="x" * (limits.RESULT_BYTES_MAX - used + over))
    result = database.do({"op": "put", "key": "e", "value": 1}, reads=["a", "b", "c", "d"])
    if over:
        assert (result["code"], result["reads"]) == ("result-too-large", {})
        assert result["failed"] == []
        assert database.value("e") is None
    else:
        assert len(database.outputs[0].value or b"") == limits.RESULT_BYTES_MAX


ADD = b'{"id":"x","updates":[{"op":"add","key":"k","by":1}],"reads":["k"]}'


@pytest.mark.fault(9, "the same record twice", "applied once, same result and seq")
def test_an_id_with_the_same_payload_is_applied_once() -> None:
    database = Database()
    first = database.raw(ADD)
    again = database.raw(ADD)
    third = database.raw(ADD)
    assert database.value("k") == 1
    assert again == {**first, "duplicate": {"seq": 2, "ts_ms": 1001, "partition": 0, "offset": 1}}
    assert third["duplicate"]["seq"] == 3
    assert len(database.outputs) == 1


@pytest.mark.fault(10, "an id again with other bytes", "rejected: id-reused")
def test_an_id_with_another_payload_is_rejected() -> None:
    database = Database()
    database.raw(ADD)
    result = database.raw(ADD + b" ")
    assert (result["status"], result["code"], result["seq"]) == ("rejected", "id-reused", 2)
    assert (result["id"], len(database.outputs)) == ("x", 1)
    assert "duplicate" in database.raw(ADD)


def test_a_rejected_record_does_not_occupy_its_id_an_aborted_one_does() -> None:
    database = Database()
    assert database.raw(b'{"id":"x","what":1}')["status"] == "rejected"
    failing = b'{"id":"x","asserts":{"k":1}}'
    assert database.raw(failing)["status"] == "aborted"
    database.put(k=1)
    assert database.raw(failing)["status"] == "aborted"
    assert database.raw(ADD)["code"] == "id-reused"


@pytest.mark.parametrize(("between", "applied"), [(3, 1), (4, 2)])
def test_an_id_is_forgotten_after_the_window_and_not_refreshed(between: int, applied: int) -> None:
    database = Database(id_window=5)
    database.raw(ADD)
    database.raw(ADD)
    for _ in range(between - 1):
        database.raw(b"bad")
    database.raw(ADD)
    assert database.value("k") == applied


def test_the_memory_of_ids_is_bounded() -> None:
    oracle = Oracle("db", id_window=50)
    for offset in range(1000):
        oracle.apply(b'{"id":"%d"}' % offset, 0, offset, 0)
    assert len(oracle._seen) <= oracle.id_window


def test_markers_take_no_seq() -> None:
    oracle = Oracle("db")
    assert oracle.apply(encode_marker(Marker(1, 1, "s")), 0, 0, 1) == []
    assert oracle.next_seq == 1


@given(st.lists(PAYLOADS, max_size=12), st.integers(1, 4))
def test_a_replay_is_the_same_piece_by_piece(payloads: list[bytes | None], window: int) -> None:
    log = {0: [LogRecord(i, 5, payload) for i, payload in enumerate(payloads)]}
    whole = replay(log, database="db", initial_partitions=1, id_window=window)
    oracle = Oracle("db", window)
    outputs = [
        output
        for offset, payload in enumerate(payloads)
        for output in oracle.apply(payload, 0, offset, max(5, *marker_times(payloads, offset)))
    ]
    assert (outputs, oracle.state, oracle.next_seq) == (whole.outputs, whole.state, whole.next_seq)
    assert list(run(Oracle("db"), [])) == []
    assert all(version < whole.next_seq for _, version in whole.state.values())


def marker_times(payloads: list[bytes | None], last: int) -> list[int]:
    """The numbers of the markers up to an index (0 before any)."""
    found = [json.loads(p)["marker"] for p in payloads[: last + 1] if p and is_marker(p)]
    return [0, *found]


def is_marker(payload: bytes) -> bool:
    return bool(payload) and Oracle("db").apply(payload, 0, 0, 0) == []


def imported(module: str, found: set[str]) -> set[str]:
    """The modules that a module of this package imports, and those that they import."""
    root = Path(__file__).resolve().parents[3]
    path = root.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if module in found or not path.exists():
        return found
    found.add(module)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("streamydb"):
            if node.module != "streamydb":
                imported(str(node.module), found)
            for alias in node.names:
                imported(f"{node.module}.{alias.name}", found)
    return found


def test_it_shares_with_the_engine_what_it_says_and_no_more() -> None:
    rooms = {
        "parser",
        "sequencer",
        "sorter",
        "planner",
        "key_processor",
        "txn_processor",
        "pipeline",
    }
    found = imported("streamydb.verify.oracle.core", set())
    shared = {name for name in found if name.split(".")[1] in rooms}
    assert shared == set()
    constraints = {name for name in found if name.startswith("streamydb.constraints.")}
    assert constraints == {f"streamydb.constraints.{name}" for name in ("core", "judge", "schema")}

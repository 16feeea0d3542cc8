"""Execution of grants: what each operation does, and the kernel held against Python."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from streamydb import limits
from streamydb.errors import InvariantViolation
from streamydb.frames.grant_rows import GrantedKeys, GrantedTransactions, PlanTransactions, SlotRows
from streamydb.frames.interning import intern
from streamydb.frames.json_tokens import parse_ints
from streamydb.frames.program import PLAN_DUPLICATE, REUSED, WINDOW_DUPLICATE
from streamydb.frames.table import ChildRows, Ragged
from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb.parser.compile import compile_records
from streamydb.txn_processor import kernel, run
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.core import execute_in_parts
from streamydb.txn_processor.feedback import feedback_chunks
from streamydb.txn_processor.outcome import ExecutionOutcome
from tests.support.seeds import seeds

Grants = list[tuple[int, GrantedTransactions, SlotRows]]
FIRST, VERSION = 7, 3


def execute_grants(grants: Grants) -> ExecutionOutcome:
    """The outcome of all transactions, executed at once."""
    (outcome,) = execute_in_parts(grants)
    return outcome


def granted(transactions: list[dict[str, Any]], held: dict[str, Any]) -> Grants:
    """What one shard grants: transactions from seq 7 on, on values of version 3."""
    n = len(transactions)
    named = [{"id": f"t{i}", **each} for i, each in enumerate(transactions)]
    raws = [json.dumps(each).encode() for each in named]
    table = compile_records(np.zeros(n, np.int32), np.arange(n), np.ones(n, np.int64), raws)
    counts, keys = table.keys
    slot, first = intern(keys.hash, keys.key)
    home = table.home.rows
    txns = GrantedTransactions(
        np.arange(FIRST, FIRST + n),
        np.arange(n) + 1_000,
        table.partition,
        table.offset,
        table.kind,
        home.code,
        np.zeros(n, np.uint8),
        np.zeros(n, np.int64),
        home.id,
        home.raw,
        ChildRows(counts, GrantedKeys(slot)),
        home.steps,
    )
    names = keys.key.take(first)
    values = [held.get(name.decode()) for name in names.tolist()]
    known = Ragged.of([b"" if v is None else json.dumps(v).encode() for v in values])
    tags, numbers = parse_ints(known.data, known.offsets)
    versions = np.where(tags > 0, VERSION, 0).astype(np.int64)
    numbered = np.arange(len(names))
    return [(0, txns, SlotRows(tags, numbers, versions, numbered, None, None, known, names))]


def shown(outcome: ExecutionOutcome, topic: int) -> list[Any]:
    """The values of one topic, decoded."""
    records = [o.formatted(item, "db") for item in o.outputs_of(outcome, 1)]
    values = [v for each in records if each.topic == topic for v in each.values.tolist()]
    return [json.loads(value) for value in values if value]


def one(before: Any, **transaction: Any) -> tuple[dict[str, Any], list[Any]]:
    """The result of one transaction on the key k, and what its changes say."""
    outcome = execute_grants(granted([transaction], {"k": before}))
    (result,) = shown(outcome, o.RESULTS)
    return result, [(c["op"], c["before"], c["after"]) for c in shown(outcome, o.CHANGES)]


def update(op: str, **fields: Any) -> dict[str, Any]:
    return {"op": op, "key": "k", **fields}


@pytest.mark.parametrize(
    ("before", "made", "after"),
    [
        (None, update("put", value=5), 5),
        ("x", update("put", value="y"), "y"),
        (5, update("delete"), None),
        (None, update("add", by=5), 5),
        (5, update("add", by=-7), -2),
        (5, update("add", by=1, max=6), 6),
        (5, update("add", by=-5, min=0), 0),
        (INTEGER_MAX - 1, update("add", by=1), INTEGER_MAX),
        (INTEGER_MIN + 1, update("add", by=-1), INTEGER_MIN),
        (None, update("max", value=-3), -3),
        (5, update("max", value=4), 5),
        (5, update("max", value=6), 6),
        (5, update("min", value=4), 4),
        (5, update("min", value=6), 5),
        (None, update("next_id"), 1),
        (41, update("next_id"), 42),
    ],
)
def test_what_an_update_leaves(before: Any, made: dict[str, Any], after: Any) -> None:
    result, changes = one(before, updates=[made], reads=["k"])
    assert (result["status"], result["reads"]) == ("committed", {"k": after})
    op = "c" if before is None else "d" if after is None else "u"
    assert changes == [(op, before, after)]


@pytest.mark.parametrize(
    ("before", "made", "code"),
    [
        (5, update("add", by=1, max=5), "bound-violated"),
        (5, update("add", by=-1, min=5), "bound-violated"),
        (INTEGER_MAX, update("add", by=1), "overflow"),
        (INTEGER_MIN, update("add", by=-1), "overflow"),
        ("x", update("add", by=1), "not-a-number"),
        ("x", update("max", value=1), "not-a-number"),
    ],
)
def test_what_an_update_refuses(before: Any, made: dict[str, Any], code: str) -> None:
    other = {"op": "put", "key": "other", "value": 1}
    result, changes = one(before, updates=[other, made], reads=["k"])
    assert (result["status"], result["code"], changes) == ("aborted", code, [])
    entry = {"check": "update", "index": 1, "key": "k", "value": before, "version": VERSION}
    assert (result["failed"], result["reads"]) == ([entry], {})


@pytest.mark.parametrize(
    ("before", "check", "holds"),
    [
        (5, {"eq": 5}, True), (5, {"eq": 6}, False), (5, {"ne": 5}, False), (5, {"ne": 6}, True),
        ("x", {"eq": "x"}, True), ("x", {"eq": "y"}, False), ("x", {"ne": "y"}, True),
        (5, {"eq": "5"}, False), (5, {"ne": "5"}, True),
        (5, {"lt": 6}, True), (5, {"lt": 5}, False), (5, {"le": 5}, True), (5, {"le": 4}, False),
        (5, {"gt": 4}, True), (5, {"gt": 5}, False), (5, {"ge": 5}, True), (5, {"ge": 6}, False),
        (None, {"lt": 6}, False), ("x", {"gt": 1}, False),
        (5, {"exists": True}, True), (5, {"exists": False}, False),
        (None, {"exists": False}, True), (None, {"exists": True}, False),
        (5, {"version": VERSION}, True), (5, {"version": VERSION + 1}, False),
        (None, {"version": 0}, True),
    ],
)  # fmt: skip
def test_what_a_check_says(before: Any, check: dict[str, Any], holds: bool) -> None:  # noqa: FBT001
    put = {"op": "put", "key": "other", "value": 1}
    result, changes = one(before, checks=[{"key": "k", **check}], updates=[put])
    assert (result["code"], len(changes)) == ((None, 1) if holds else ("check-failed", 0))
    if not holds:
        version = 0 if before is None else VERSION
        entry = {"check": "check", "index": 0, "key": "k", "value": before, "version": version}
        assert result["failed"] == [entry]


def test_a_transaction_sees_what_those_before_it_left() -> None:
    pay = {"updates": [update("add", by=-30, min=0)], "reads": ["k"]}
    outcome = execute_grants(granted([pay] * 4, {"k": 100}))
    results = shown(outcome, o.RESULTS)
    assert [r["reads"].get("k") for r in results] == [70, 40, 10, None]
    assert [r["seq"] for r in results] == [7, 8, 9, 10]
    assert results[3]["failed"][0]["version"] == 9
    (told,) = feedback_chunks(outcome, 1, 1 << 20)
    assert (told.writes.number.tolist(), told.writes.version.tolist()) == ([10], [9])
    assert told.verdicts.seq.tolist() == [7, 8, 9, 10]


def test_what_deletes_an_absent_key_writes_nothing() -> None:
    result, changes = one(None, updates=[update("delete")])
    assert (result["status"], changes) == ("committed", [])


def test_duplicates_are_not_executed() -> None:
    grants = granted([{"updates": [update("add", by=1)]}] * 4, {"k": 1})
    txns = grants[0][1]
    txns.duplicate[1:] = PLAN_DUPLICATE, REUSED, WINDOW_DUPLICATE
    txns.original[1:] = FIRST, FIRST, 2
    outcome = execute_grants(grants)
    results = shown(outcome, o.RESULTS)
    assert len(shown(outcome, o.CHANGES)) == 1
    assert results[1] == {**results[0], "duplicate": results[1]["duplicate"]}
    assert results[1]["duplicate"]["seq"] == 8
    assert (results[2]["status"], results[2]["code"]) == ("rejected", "id-reused")
    assert len(results) == 3, "its home shard knows the fourth"


def test_a_key_that_nobody_has_granted_stops_everything() -> None:
    ((shard, txns, slots),) = granted([{"updates": [update("add", by=1)]}], {})
    with pytest.raises(InvariantViolation, match="has no slot"):
        execute_grants([(shard, txns, slots.part(0, 0))])


@pytest.mark.parametrize("spreads", [1, 3])
def test_no_block_of_outputs_has_too_many_records(
    spreads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Integers have no texts, but their records have: blocks are cut by rows, too."""
    most = 50
    rejected = [{"updates": [{"op": "fly", "key": "k"}]}] * 120
    adds = [{"op": "add", "key": f"k{i}", "by": 1} for i in range(16)]
    grants = granted([{"updates": adds, "reads": ["k1", "k2"]}] * 120 + rejected, {})
    outcome = execute_grants(grants)
    whole = list(o.outputs_of(outcome, spreads))
    monkeypatch.setattr(o, "ROWS_MAX", most)
    parts = list(o.outputs_of(outcome, spreads))
    sizes = [len(item.table if isinstance(item, o.OutputRows) else item.keys) for item in parts]
    assert sum(sizes) == 120 * 16 + 240 + 120
    assert max(sizes) == most
    assert told(parts) == told(whole)


@pytest.mark.parametrize("keys", [1, 20])
def test_reads_of_integers_count_in_blocks_of_results(
    keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = [f"key/{i}" for i in range(keys)]
    outcome = execute_grants(granted([{"reads": reads}] * 40, dict.fromkeys(reads, 10**17)))
    whole = list(o.outputs_of(outcome, 1))
    monkeypatch.setattr(o, "ROWS_MAX", 40)
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 4_000)
    parts = list(o.outputs_of(outcome, 1))
    assert len(parts) == (1 if keys == 1 else 7)
    assert told(parts) == told(whole)


def test_copies_of_a_result_count_in_blocks_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = [f"key/{i}" for i in range(20)]
    grants = granted([{"reads": reads}] * 40, dict.fromkeys(reads, 10**17))
    txns = grants[0][1]
    txns.duplicate[1:], txns.original[1:] = PLAN_DUPLICATE, FIRST
    outcome = execute_grants(grants)
    whole = list(o.outputs_of(outcome, 1))
    monkeypatch.setattr(o, "ROWS_MAX", 40)
    monkeypatch.setattr(limits, "BLOCK_BYTES_MAX", 4_000)
    parts = list(o.outputs_of(outcome, 1))
    assert (len(whole), len(parts)) == (1, 7)
    assert told(parts) == told(whole)


def told(
    items: list[o.OutputRows | o.OutputRecords],
) -> dict[tuple[int, int], list[tuple[bytes, bytes]]]:
    """The records of each topic and formatting task, in order."""
    found: dict[tuple[int, int], list[tuple[bytes, bytes]]] = {}
    for item in items:
        records = o.formatted(item, "db")
        pairs = zip(records.keys.tolist(), records.values.tolist(), strict=True)
        found.setdefault((item.topic, item.spread), []).extend(pairs)
    return found


NUMBERS = (0, 1, -1, 2, INTEGER_MAX, INTEGER_MIN, INTEGER_MAX - 1, INTEGER_MIN + 1)
VALUES = (*NUMBERS, "x", "y\u00e9", None)


def drawn(rng: random.Random) -> dict[str, Any]:
    """A transaction that mostly fits the kernel."""
    keys = rng.sample(["a", "b", "c", "d"], rng.randint(1, 3))
    updates: list[dict[str, Any]] = []
    for key in keys:
        op = rng.choice(["put", "delete", "add", "max", "min", "next_id", "none"])
        made: dict[str, Any] = {"op": op, "key": key}
        if op == "put":
            made["value"] = rng.choice(VALUES[:-1])
        elif op in {"max", "min"}:
            made["value"] = rng.choice(NUMBERS)
        elif op == "add":
            made["by"] = rng.choice(NUMBERS)
            made.update({n: rng.choice(NUMBERS) for n in ("min", "max") if rng.random() < 0.2})
            if made.get("min", INTEGER_MIN) > made.get("max", INTEGER_MAX):
                del made["min"]
        if op != "none":
            updates.append(made)
    found: dict[str, Any] = {"updates": updates, "reads": rng.sample(["a", "b", "c", "d"], 2)}
    if rng.random() < 0.4:
        name = rng.choice(["eq", "ne", "lt", "le", "gt", "ge", "exists", "version"])
        wanted = {"exists": True, "version": rng.randint(0, 40)}.get(name, rng.choice(NUMBERS))
        found["checks"] = [{"key": rng.choice("abcd"), name: wanted}]
    if rng.random() < 0.1:
        found["asserts"] = {rng.choice("abcd"): rng.choice(VALUES)}
    return found


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_python_does_what_the_kernel_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    held = {key: rng.choice(VALUES) for key in "abcd"}
    transactions = [drawn(rng) for _ in range(60)]
    by_kernel = everything(execute_grants(granted(transactions, held)))
    routes = run._routes

    def to_python(txns: PlanTransactions) -> Any:
        route = routes(txns)
        route[route == kernel.BY_KERNEL] = kernel.BY_PYTHON
        return route

    monkeypatch.setattr(run, "_routes", to_python)
    assert everything(execute_grants(granted(transactions, held))) == by_kernel
    assert {r["code"] for r in by_kernel[o.RESULTS]} >= {None, "check-failed"}


def everything(outcome: ExecutionOutcome) -> list[Any]:
    """All that an outcome shows: results, changes, and what the shards learn of values."""
    (told,) = feedback_chunks(outcome, 1, 1 << 20)
    writes = told.writes
    columns = writes.key.tolist(), writes.tag.tolist(), writes.version.tolist()
    fed = sorted(zip(*columns, writes.text.tolist(), strict=True))
    return [shown(outcome, o.RESULTS), shown(outcome, o.CHANGES), fed]

"""Two databases that differ only outside a token's scopes, and requests with every field there is.

What both have: as many transactions at the same places, with the same ids and times, the same
modules and constraints, and the keys under ``m/``. What differs: which other keys there are, how
many, their values and versions, and the verdicts on transactions that name them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from streamydb.facade.about import About, PipelineMessages
from streamydb.facade.cursors import ListCursor, encode_cursor
from streamydb.facade.explanation.evidence import ChangeRecord, Evidence, FeedbackPlan, PlanMember
from streamydb.kafka.digests import ShardDigests, ToldDigest
from streamydb.procedures.modules import compile_module
from streamydb.records import Change, Result, Transaction, decode, decode_change
from streamydb.records.attempts import relocked
from streamydb.records.transaction_schema import transaction
from streamydb.verify.oracle.outputs import OutputRecord
from tests.support.history import HistoryDatabase

__all__ = [
    "BIG", "BIG_WRITING", "FULL", "HISTORY_IDS", "PARAMETERS", "PATHS", "RANGE_KEYS", "UNIQUE",
    "VALUES_BYTES", "Secretive", "about", "encoded", "made", "transactions",
]  # fmt: skip

RANGE_KEYS = 8
"""Keys that the ranges of a transaction may have, in these tests."""

VALUES_BYTES = 20_000
"""Bytes of values that a transaction may meet, in these tests."""

START_MS = 1_800_000_000_000
MODULE = b"""
from streamydb.procedures import Abort


def told(db, said):
    keys = [*said.get("keys", []), *said.get("reads", [])]
    pairs = [list(db.scan(each["prefix"])) for each in said.get("ranges", [])]
    return [db.get(key) for key in keys] + pairs


def refused(db, said):
    raise Abort(str(told(db, said)))
"""
UNIQUE = "$unique/email/3/" + hashlib.sha256(b'"ann"').hexdigest()
KEYS = [
    "m/1", "m/new", "m", "s/1", "s/2", "s/none", "s/u/1", "a", "$constraints", "$procedures/teller",
]  # fmt: skip
PREFIXES = ["m/", "m/full/", "m", "s/", "s", "$", "\U0010ffff"]
RANGES: list[dict[str, str]] = [
    *({"prefix": prefix} for prefix in PREFIXES),
    {"start": "m/full/0", "end": "m/full/9"}, {"start": "s/1", "end": "s/1\0"},
    {"start": "m/full/9", "end": "s/2"}, {"start": "a", "end": "z"},
    {"start": "m/full/99", "end": "n"},
]  # fmt: skip

FULL = {"range": {"prefix": "m/full/"}, "count_ge": 0}
"""A check of as many keys as a transaction may name: with any other it is `range-too-large`."""

BIG = [{"key": f"m/big/{n}", "exists": True} for n in range(4)]
"""Checks of as many bytes as a transaction may meet: with any other it is `values-too-large`."""

BIG_WRITING = [*BIG[:3], {"key": "m/big/w", "exists": True}]
"""The same of a transaction that may write something: it meets the constraints, too."""

_QUARTER = VALUES_BYTES // 4
_CONSTRAINTS_BYTES = 56


class Secretive(HistoryDatabase):
    """A database with one of two histories; ``one`` says which."""

    def __init__(self, *, one: bool) -> None:
        super().__init__()
        self.told: list[tuple[str, Change]] = []
        self.modules.put(MODULE)
        self.tick_by_record(START_MS)
        for number, parts in enumerate(_history(one=one)):
            self.add(f"t{number}", parts)

    def add(self, name: str, parts: dict[str, Any]) -> None:
        """Append a transaction; again with the locks that it needs."""
        attempt: tuple[str, bytes] | None = name, json.dumps({"id": name, **parts}).encode()
        while attempt is not None:
            self.log.records.append(attempt[1])
            self.log.stamps[len(self.log.records) - 1] = self.now_ms + 1
            self.run()
            attempt = relocked(*attempt, self.log.results[-1])

    def _take(self, record: OutputRecord) -> None:
        super()._take(record)
        if record.topic == "changes" and record.value is not None:
            change = decode_change(record.value)
            if isinstance(change, Change):
                self.told.append(((record.key or b"").decode(), change))


def _put(*pairs: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"updates": [{"op": "put", "key": k, "value": v} for k, v in pairs], **more}


def _history(*, one: bool) -> list[dict[str, Any]]:
    """The transactions of both databases; where they differ, those of one of them."""
    secret = {"email": "ann"} if one else {"email": "bob", "more": "x" * 99}
    gone = {"op": "delete", "key": "s/1"}
    mixed = {"op": "put", "key": "m/mixed", "value": 1}
    call: dict[str, Any] = {"reads": ["s/u/1"], "ranges": [{"prefix": "s/"}]}
    return [
        {"deploy": compile_module("teller", MODULE).record},
        _put(*((f"m/full/{n}", n) for n in range(RANGE_KEYS))),
        {"constrain": {"declare": {"name": "email", "prefix": "s/u/", "unique": "$.email"}}},
        _put(
            *((f"m/big/{n}", "x" * (_QUARTER - 2)) for n in range(4)),
            ("m/big/w", "x" * (_QUARTER - 2 - _CONSTRAINTS_BYTES)),
        ),
        _put(("m/1", 7), ("m/2", "text"), ("m/list", [1])),
        _put(("s/1", 1) if one else ("s/2", {"long": "y" * 50})),
        _put(*((f"s/{'many' if one else 'few'}/{n}", n) for n in range(9 if one else 2))),
        _put(("s/u/1", secret)),
        {"updates": [gone, mixed] if one else [gone, mixed, {**gone, "key": "s/2"}]},
        {"checks": [{"key": "s/u/1", "eq": {"email": "ann"}}]},
        {"checks": [{"key": "m/1", "version": 0}, {"range": {"prefix": "s/"}, "count": 10}]},
        {"reads": ["s/u/1", "m/1"]},
        {"checks": [{"key": "s/1", "exists": False}], "updates": [{**mixed, "key": "m/m"}]},
        {"reads": [{"range": {"prefix": "s/"}}]},
        {"call": {"procedure": "teller.told", "args": {"said": call}, **call}},
        {"call": {"procedure": "teller.refused", "args": {"said": call}, **call}},
        _put(("s/h", 1), ("m/h", 1)), _put(("s/h" if one else "s/g", 2)),
        {"locks": [{"range": {"prefix": "s/"}}, {"range": {"prefix": "m/full/"}}]},
        _put(("m/1", 8)), {"reads": ["m/1"]}, {"asserts": {"m/1": 9}},
        _put(("s/last", one)),
    ]  # fmt: skip


HISTORY_IDS = [*(f"t{n}" for n in range(len(_history(one=True)))), "t7~1", "none"]

_CURSORS = [encode_cursor(ListCursor(9, prefix, None, None, "m/1")) for prefix in ("m/", "s/", "")]
_CHECKS = ['{"exists":true}', '{"ge":1}', '{"ne":null}']
_CHANGES_WHERE = [*_CHECKS, '{"version":9}']

PARAMETERS: dict[str, list[str]] = {
    "prefix": [*PREFIXES, *KEYS], "start": ["m/", "m/2", "s/", "a"], "end": ["m/2", "s/2", "z"],
    "limit": ["1", "3", "1000"], "cursor": _CURSORS, "at": ["1", "9", "20"],
    "consistency": ["strong", "snapshot", "session"], "min_version": ["9"], "ttl_ms": ["9999999"],
    "since": ["0", "8"], "where": _CHANGES_WHERE, "where_before": _CHECKS,
    "record": [f"0:{n}" for n in range(len(HISTORY_IDS))], "after": ["0", "9.1"], "wait": ["0"],
    "for": ["reads", "strong", "writes", "changes"], "after_ms": ["0"],
    "If-Match": ['"5"', '"21"'], "If-None-Match": ["*", '"5"'], "Idempotency-Key": ["t5", "mine"],
    "Deadline-Ms": [str(START_MS + 60_000)], "Prefer": ["respond-async", "wait=1"],
    "Last-Event-ID": ["7"],
}  # fmt: skip
"""What is tried for each parameter and header, by name."""

PATHS: dict[str, list[str]] = {
    "key": [key for key in KEYS if key != "m"],
    "id": HISTORY_IDS,
    "slug": ["forbidden"],
    "name": ["teller.none", "other.stream"],
    "file": ["console.js"],
}
"""What is tried for each part of a path, by name."""

_TEXTS: dict[str, list[Any]] = {
    "procedure": ["teller.told", "teller.none", "none.told"],
    "module": ["teller"],
    "hash": [compile_module("teller", MODULE).record["hash"]],
    "drop": ["email", "none"],
    "stream": ["votes"],
    "id": ["t5", "t7", "mine"],
}
_ARGS = [
    {"said": {}}, {"said": {"reads": ["s/u/1"]}}, {"said": {"keys": ["m/1"]}},
    {"said": {"ranges": [{"prefix": "s/"}]}},
]  # fmt: skip
_OBJECTS: dict[str, list[Any]] = {
    "args": _ARGS,
    "procedures": [{"told": ["said"]}],
    "declare": [{"name": "n", "prefix": "s/", "keys": {"max": 1}}],
    "validate": [{"name": "email", "since": 3}],
    "asserts": [{key: 7} for key in KEYS],
    "range": [*RANGES],
    "ranges": [*RANGES],
}
_KEYED = {"key": KEYS, "keys": KEYS, "reads": KEYS, "locks": [UNIQUE, UNIQUE[:-1] + "0"]}


def transactions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield transactions, each with the path of the field that it varies: all of the schema's."""
    for name, schema in transaction()["properties"].items():
        for path, value in _values(schema, name):
            yield path, {name: value}


def made(parts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a transaction alone, and at the bounds of what its ranges and values may have."""
    yield parts
    checks = parts.get("checks", [])
    yield {**parts, "checks": [FULL, *checks]}
    yield {**parts, "checks": [*BIG, *checks]}
    yield {**parts, "checks": [*BIG_WRITING, *checks]}


def _values(schema: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield values of a schema, with the path of what each varies."""
    name = path.rpartition(".")[2].removesuffix("[]")
    if "const" in schema:
        yield path, schema["const"]
    elif "oneOf" in schema:
        for each in schema["oneOf"]:
            yield from _values(each, path)
    elif name in _OBJECTS and schema.get("type") == "object" and "range" not in _names(schema):
        yield from ((path, value) for value in _OBJECTS[name])
    elif schema.get("type") == "array":
        yield from ((each, [value]) for each, value in _values(schema["items"], f"{path}[]"))
    elif schema.get("type") == "object":
        yield from _objects(schema, path)
    else:
        yield from ((path, value) for value in _leaves(schema, name))


def _names(schema: dict[str, Any]) -> set[str]:
    return set(schema.get("properties", ()))


def _objects(schema: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield objects that vary one field each; a condition has a key or a range beside it."""
    fields = schema["properties"]
    first = {name: next(_values(fields[name], f"{path}.{name}"))[1] for name in fields}
    least = {name: first[name] for name in schema.get("required", ())}
    wanted = schema.get("dependentRequired", {})
    for name, part in fields.items():
        for where, value in _values(part, f"{path}.{name}"):
            if name in ("key", "range") and not least:
                yield where, {name: value, "exists": True}
                continue
            for needed in wanted.get(name, [None] if least else ["key", "range"]):
                beside = _OBJECTS["range"] if needed == "range" else KEYS
                for other in [None] if needed is None else beside:
                    more = {} if needed is None else {needed: other}
                    yield where, {**least, **more, name: value}


def _leaves(schema: dict[str, Any], name: str) -> list[Any]:
    if name in _KEYED:
        return list(_KEYED[name])
    if name in _TEXTS:
        return _TEXTS[name]
    kind = schema.get("type")
    kinds: dict[str, list[Any]] = {
        "integer": [1, START_MS + 60_000 if name == "deadline_ms" else 9], "number": [1, -7],
        "boolean": [True, False], "string": ["x"],
    }  # fmt: skip
    if isinstance(kind, str):
        return kinds[kind]
    return [1, "x"] if kind else [7, {"email": "ann"}]


def about(database: Secretive) -> About:
    """The traces of all transactions: one plan, and digests of the state."""
    state = hashlib.sha256(repr(sorted(database.told, key=lambda each: each[0])).encode())
    digests = [
        ShardDigests(seq=len(database.log.results), shard=0, told=[
            ToldDigest(pipeline="p", state=state.hexdigest(), outcomes=state.hexdigest())
        ])
    ]  # fmt: skip
    records = [(r.seq, decode(database.log.records[r.source.offset])) for r in database.log.results]
    members = [PlanMember(seq, t if isinstance(t, Transaction) else None) for seq, t in records]

    def evidence(result: Result) -> Evidence:
        changes = [
            ChangeRecord(key, change, 0, change.transaction.total_order, change.ts_ms)
            for key, change in database.told if change.source.seq == result.seq
        ]  # fmt: skip
        return Evidence(
            raw=database.log.records[result.source.offset], partitions=1, missing={},
            plan=FeedbackPlan(1, 1, members[-1].seq, "x", members), changes=changes,
            digests=digests,
        )  # fmt: skip

    def asked() -> PipelineMessages:
        return PipelineMessages(heard=[], digests=digests)

    return About("memory", told=asked, evidence=evidence)


def encoded(parts: dict[str, Any]) -> bytes:
    """Return a body."""
    return msgspec.json.encode(parts)

"""Procedures that say when keys end: what is stored and told, and what earlier releases did."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from simulator.procedures import MODULES
from streamydb.limits import TTL_MS_MAX
from streamydb.procedures.modules import compile_module
from streamydb.records import Append, Put, Touch, Update
from streamydb.records.expiry import end_of
from tests.support.procedures import Host, call, module_of, returned
from tests.unit.key_processor.test_expiry import GROUPINGS, Database

NOW = 1_700_000_000_000
"""The commit time of the calls of tests.support.procedures."""
MODULE = b"""
def lease(db, key, ttl):
    db.put(key, "ann", ttl_ms=ttl)

def renew(db, key, ttl):
    db.touch(key, ttl_ms=ttl)

def old(db, key):
    try:
        db.touch(key)
    except AttributeError:
        db.put(key, "kept")
    try:
        db.put(key, "ended", ttl_ms=None)
    except TypeError:
        return "an earlier release"
"""


def ends_of(body: str) -> dict[str, int | None]:
    """When the keys that a procedure writes end; from its commit on."""
    called = call(module_of(f"def f(db):\n    {body}\n"), "f", {}, {"a": 1, "b": [1]})
    assert returned(called) is None
    return {key: end_of(value) for key, value in called.writes.items()}


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        ("db.put('a', 1, ttl_ms=5)", {"a": 5}),
        ("db.put('a', 1, ttl_ms=None)", {"a": None}),
        ("db.put('a', 1, ttl_ms=5); db.add('a', 1)", {"a": 5}),
        ("db.put('a', 1, ttl_ms=5); db.put('a', 2)", {"a": None}),
        ("db.append('b', 1, ttl_ms=7); db.append('b', 1)", {"b": 7}),
        ("db.touch('a', ttl_ms=9)", {"a": 9}),
        ("db.touch('a', ttl_ms=9); db.touch('a')", {"a": None}),
        ("db.delete('a'); db.touch('a', ttl_ms=9)", {"a": None}),
    ],
)
def test_a_procedure_says_when_a_key_ends(body: str, ends: dict[str, int | None]) -> None:
    assert ends_of(body) == ends


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("db.put('a', 1, ttl_ms=0)", "ValueError"),
        (f"db.put('a', 1, ttl_ms={TTL_MS_MAX + 1})", "ValueError"),
        ("db.put('a', 1, ttl_ms=1.5)", "TypeError"),
        ("db.append('b', 1, ttl_ms=True)", "TypeError"),
        ("db.touch('a', ttl_ms='1')", "TypeError"),
        ("db.touch()", "TypeError"),
    ],
)
def test_no_time_to_live(body: str, reason: str) -> None:
    called = call(module_of(f"def f(db):\n    {body}\n"), "f", {}, {"a": 1, "b": []})
    assert (called.code, called.reason) == ("procedure-error", reason)


class Asked(Host):
    """Keeps the updates that it is asked for."""

    asked: list[Update]

    def apply(self, update: Update, before: bytes | None) -> bytes | None:
        self.asked.append(update)
        return super().apply(update, before)


def test_the_host_gets_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Update] = []
    monkeypatch.setattr("tests.support.procedures.Host", Asked)
    monkeypatch.setattr(Asked, "asked", asked, raising=False)
    ends_of("db.put('a', 1, ttl_ms=5); db.touch('a'); db.append('b', 2, ttl_ms=6); db.put('a', 3)")
    assert asked == [Put("a", b"1", 5), Touch("a", UNSET), Append("b", b"2", 6)]  # 3 is for good


def deployed(grouping: str, *, at_once: bool = False) -> Database:
    """A database with `MODULE`."""
    db = Database(grouping)
    made = compile_module("m", MODULE)
    procedures = {name: list(args) for name, args in made.procedures.items()}
    deploy = {"module": "m", "hash": MODULES.put(MODULE), "procedures": procedures}
    db.add(900, deploy=deploy)
    db.at_once = at_once
    return db


def calling(procedure: str, key: str, **args: Any) -> dict[str, Any]:
    return {"call": {"procedure": f"m.{procedure}", "args": {"key": key, **args}, "keys": [key]}}


@GROUPINGS
@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_call_lets_end_is_removed(grouping: str, *, at_once: bool) -> None:
    """In the first plan in which anything may end, too, beside ranges that the kernel counts."""
    db = deployed(grouping, at_once=at_once)
    counted = {"checks": [{"range": {"prefix": "a"}, "count": 1}]}
    db.add(1_000, **calling("lease", "a", ttl=10))
    db.add(1_001, {"op": "put", "key": "b", "value": 1}, **counted)
    db.add(1_009, **calling("renew", "a", ttl=5), reads=["a"])
    db.add(1_013, {"op": "put", "key": "b", "value": 2}, **counted)
    db.add(1_014, {"op": "put", "key": "b", "value": 3}, **counted)
    db.add(1_015, reads=["a"])
    found = [(c["source"]["seq"], c["key"], c["op"]) for c in db.changes() if c["key"] in "ab"]
    assert found == [(2, "a", "c"), (3, "b", "c"), (4, "a", "u"), (5, "b", "u"), (6, "a", "d")]

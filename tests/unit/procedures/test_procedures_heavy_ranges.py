"""Calls that scan as much as they may, of values that end: every shard and every plan agrees."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simulator.procedures import MODULES
from streamydb import limits
from streamydb.procedures.modules import compile_module
from streamydb.txn_processor import outputs as o
from tests.unit.key_processor.test_expiry import GROUPINGS, Database

MODULE = b"""
def look(db, prefixes):
    return [db.count(prefix) for prefix in prefixes]
"""
KEYS = 10
KEY_BYTES = 3


def filled(grouping: str, over: int, ttl_ms: int) -> Database:
    """A database whose keys under `a/` count, in a call, ``over`` bytes more than they may."""
    db = Database(grouping, shards=1)
    made = compile_module("m", MODULE)
    procedures = {name: list(args) for name, args in made.procedures.items()}
    db.add(900, deploy={"module": "m", "hash": MODULES.put(MODULE), "procedures": procedures})
    each = limits.RESULT_BYTES_MAX // KEYS - KEY_BYTES - limits.RANGE_ENTRY_BYTES
    for i in range(KEYS):
        value = "x" * (each - 2 + (over if i == 0 else 0))
        db.add(1_000, {"op": "put", "key": f"a/{i}", "value": value, "ttl_ms": ttl_ms})
    return db


def called(db: Database, *prefixes: str) -> dict[str, Any]:
    """The verdict on a call that scans these, judged by the oracle."""
    ranges = [{"prefix": prefix} for prefix in prefixes]
    call = {"procedure": "m.look", "args": {"prefixes": prefixes}, "ranges": ranges}
    at = len(db.log.partitions[0])
    db.add(1_001, call=call)
    db.add(1_005)
    db.changes()
    values = [json.loads(w.value) for w in db.cluster.written if w.topic == o.RESULTS and w.value]
    found: dict[str, Any] = next(value for value in values if value["id"] == f"t{at}")
    return found


@GROUPINGS
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("ttl_ms", [4, 1_000])
@pytest.mark.parametrize("over", [0, 1])
def test_what_ends_counts_no_more_than_what_stays(
    grouping: str, over: int, ttl_ms: int, *, at_once: bool
) -> None:
    """Whether it ends within the plan, and whether a range that follows is looked for."""
    db = filled(grouping, over, ttl_ms)
    db.at_once = at_once
    verdict = called(db, "a/", "b/")
    assert verdict["code"] == ("range-too-large" if over else None)
    assert verdict.get("returned") == (None if over else [KEYS, 0])

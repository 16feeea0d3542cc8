"""Event streams by range and by a check of the values: what they take is what the check says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.client.watch_core import selection
from streamydb.facade import create_app
from streamydb.facade.feed import ChangeFilter, change_filter
from streamydb.facade.ports import ChangeEvent
from streamydb.facade.problems import ProblemError
from streamydb.records import Transaction, canonical, decode
from streamydb.records.ranges import ALL_KEYS, ScanRange
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from streamydb.verify.oracle.steps import holds
from tests.support.generators import CHECKS, KEYS, STORED

VALUES = st.one_of(st.none(), STORED)


def event(key: str, before: Any, after: Any, seq: int = 3) -> ChangeEvent:
    shown = [b"null" if value is None else canonical(value) for value in (before, after)]
    return ChangeEvent(seq, 1, key, b'{"before":%s,"after":%s}' % tuple(shown))


@given(check=CHECKS, before=VALUES, after=VALUES, was=st.booleans())
def test_a_check_takes_what_it_would_take_in_a_transaction(
    check: dict[str, Any], before: Any, after: Any, *, was: bool
) -> None:
    left_out = {"key", "version"} if was else {"key"}
    rules = {name: check[name] for name in check if name not in left_out}
    if not rules:
        return
    txn = decode(json.dumps({"id": "t", "checks": [{"key": "k", **rules}]}).encode())
    assert isinstance(txn, Transaction)
    value = before if was else after
    stored = None if value is None else canonical(value)
    version = 0 if value is None or was else 3
    text = json.dumps(rules)
    wanted = change_filter(ALL_KEYS, None if was else text, text if was else None)
    assert wanted.takes(event("a", before, after)) == holds(txn.checks[0], stored, version)
    asked = selection(ALL_KEYS, None if was else rules, rules if was else None)
    sent = change_filter(asked.keys, asked.where, asked.where_before)
    assert sent.takes(event("a", before, after)) == wanted.takes(event("a", before, after))


@given(KEYS, KEYS, st.one_of(st.none(), KEYS))
def test_a_range_is_by_bytes(key: str, start: str, end: str | None) -> None:
    wanted = change_filter(ScanRange("", start, end), None, None)
    inside = start.encode() <= key.encode() and (end is None or key.encode() < end.encode())
    assert wanted.takes(event(key, None, 1)) == inside


@pytest.mark.parametrize(
    ("where", "was"),
    [("{", None), ("5", None), ('{"key":"a","ge":1}', None), ('{"near":1}', None), ("{}", None),
     (None, '{"version":1}')],
)  # fmt: skip
def test_what_is_no_check_is_refused(where: str | None, was: str | None) -> None:
    with pytest.raises(ProblemError, match="without its key"):
        change_filter(ALL_KEYS, where, was)
    with pytest.raises(ProblemError, match="at most"):
        change_filter(ScanRange(start="a" * 9_999), None, None)
    assert change_filter(ALL_KEYS, None, None) == ChangeFilter()


@scenario
async def test_over_rest() -> None:
    database = MemoryDatabase()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        for key, value in (("a", 1), ("b", 7), ("c", 9), ("b", 2)):
            await client.request("PUT", f"/v1/kv/{key}", json.dumps(value).encode())
        await client.request("DELETE", "/v1/kv/b")

        async def found(query: str, count: int) -> list[tuple[Any, ...]]:
            stream = await client.stream(f"/v1/changes?since=0&{query}")
            data = await stream.until(b"event: change", count)
            stream.leave()
            lines = (json.loads(line[6:]) for line in data.decode().split("\n")
                     if line.startswith("data: "))  # fmt: skip
            return [(e["key"], e["before"], e["after"]) for e in lines if "key" in e]

        assert await found("start=b&end=c", 3) == [("b", None, 7), ("b", 7, 2), ("b", 2, None)]
        assert await found("where=%7B%22ge%22:7%7D", 2) == [("b", None, 7), ("c", None, 9)]
        assert await found("where=%7B%22exists%22:false%7D", 1) == [("b", 2, None)]
        assert await found("where_before=%7B%22gt%22:2%7D", 1) == [("b", 7, 2)]
        refused = await client.request("GET", "/v1/changes?where=x")
        assert (refused.status, refused.json()["parameters"]) == (400, ["where"])


@pytest.mark.parametrize("name", ["prefix", "start", "end"])
def test_a_bound_that_is_longer_than_any_key_is_refused(name: str) -> None:
    long = "é" * 241
    with pytest.raises(ProblemError, match=f"{name} has at most 480 bytes"):
        change_filter(ScanRange(**{name: long}), None, None)

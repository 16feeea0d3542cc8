"""The header Prefer, generated from its grammar (RFC 7240), against what the grammar means."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.facade import create_app
from streamydb.facade.headers import preference, read_list
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase
from tests.support.seeds import seeds

NAMES = st.sampled_from(["respond-async", "wait", "Wait", "RESPOND-ASYNC", "return", "x"])
VALUES = st.sampled_from(
    ["", "0", "5", "17", "007", "-1", "1.5", "a", "a, wait=0", "x; respond-async", 'q"uo\\te',
     "99999999999999999999"]
)  # fmt: skip
SPACE = st.text(" \t", max_size=2)
PAIR = st.tuples(NAMES, st.none() | VALUES, st.booleans(), SPACE, SPACE)
MALFORMED = st.sampled_from(["wait=", "=5", "wait 5", "wait=5 5", "wait==5", "(wait=5)", "a@b"])
MEMBER = st.tuples(PAIR, st.lists(st.none() | PAIR, max_size=2), SPACE)
MEMBERS = st.lists(st.none() | MALFORMED | MEMBER, max_size=5)


def quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def is_token(value: str) -> bool:
    return bool(value) and all(c.isalnum() or c in "-." for c in value)


def pair(made: Any) -> str:
    name, value, in_quotes, before, after = made
    if value is None:
        return str(name)
    word = value if is_token(value) and not in_quotes else quoted(value)
    return f"{name}{before}={after}{word}"


def shown(members: list[Any]) -> str:
    """The field of these members; None is an empty one."""
    texts = []
    for member in members:
        if member is None or isinstance(member, str):
            texts.append(member or "")
        else:
            first, parameters, space = member
            rest = [pair(each) if each else "" for each in parameters]
            texts.append(f"{space};{space}".join([pair(first), *rest]))
    return " ,".join(texts)


def meaning(members: list[Any]) -> tuple[bool, float]:
    """The preference that they are: of each name the first member counts, parameters do not."""
    first: dict[str, str] = {}
    for member in members:
        if isinstance(member, tuple):
            name, value, *_ = member[0]
            first.setdefault(name.lower(), value or "")
    wait = first.get("wait", "")
    wait_s = min(float(wait), 1e9) if wait.isdecimal() else math.inf
    return first.get("respond-async") == "", wait_s


@pytest.mark.randomized
@settings(max_examples=seeds(400), deadline=None)
@given(members=MEMBERS)
def test_a_preference_means_what_its_grammar_says(members: list[Any]) -> None:
    assert preference({"prefer": shown(members)}) == meaning(members), shown(members)


@pytest.mark.randomized
@settings(max_examples=seeds(200), deadline=None)
@given(field=st.text('abw=,;"\\ \t0\xe9', max_size=30))
def test_any_text_is_a_list(field: str) -> None:
    for member in filter(None, read_list(field)):
        assert member.name == member.name.lower()
        assert member.name


@pytest.mark.parametrize(
    ("field", "asynchronous", "wait_s"),
    [('x="a, wait=0"', False, math.inf), ("x; wait=0", False, math.inf), ("wait = 0", False, 0),
     ("wait=9, wait=1", False, 9), ("respond-async, wait=5", True, 5), ('"wait=5', False, math.inf),
     ('x="\\", wait=3', False, math.inf), ("respond-async=no", False, math.inf),
     ("wait=\xb2", False, math.inf), (",, respond-async ;,", True, math.inf)],
)  # fmt: skip
def test_known_confusions(field: str, *, asynchronous: bool, wait_s: float) -> None:
    assert preference({"prefer": field}) == (asynchronous, wait_s)


@scenario
async def test_who_would_wait_gets_the_verdict_although_it_need_not_come() -> None:
    database = MemoryDatabase()
    database.executing = False
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:

        def put(prefer: str) -> asyncio.Task[Any]:
            sent = {"Prefer": prefer}
            return asyncio.create_task(client.request("PUT", "/v1/kv/a", b"1", sent))

        at_once = await put("respond-async")
        assert at_once.status == 202
        assert at_once.headers["preference-applied"] == "respond-async"
        ended = await put("respond-async, wait=0")
        assert ended.status == 202
        assert ended.headers["preference-applied"] == "respond-async, wait=0"
        waiting = put("respond-async, wait=600")
        await until(lambda: len(database.log.records) == 3)
        database.execute()
        assert (await waiting).status == 200

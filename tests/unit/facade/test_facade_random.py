"""Random requests to the facade: a right one has the answer of a dictionary,
a wrong one says why.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings, create_app
from streamydb.limits import KEY_BYTES_MAX
from streamydb.sql.pool import QueryPool
from streamydb.testing.in_process import HttpAnswer, InProcess
from streamydb.testing.memory import MemoryDatabase
from tests.support.generators import JSON, TEXTS
from tests.support.queries import in_this_process

KEYS = [f"{head}{n}" for head in ("a/", "a/b", "é") for n in range(4)]


def facade(database: MemoryDatabase) -> InProcess:
    """A facade, which would wait long rather than answer wrongly."""
    made = FacadeSettings(read_timeout_s=60)
    return InProcess(create_app(database.model, database.log, database.changes, made))


def append(database: MemoryDatabase, **fields: Any) -> None:
    record = {"id": f"t{len(database.log.records)}", **fields}
    database.log.records.append(json.dumps(record).encode())


BODIES = st.fixed_dictionaries(
    {"sql": st.just("select key, value from kv order by key")},
    optional={
        "params": st.lists(JSON | st.integers(2**63, 2**63 + 9), max_size=2),
        "prefix": TEXTS | JSON | st.just("x" * 481),
        "at": st.integers(-1, 9) | JSON, "consistency": st.sampled_from(["strong", "snapshot", 1]),
        "min_version": st.integers(-1, 6) | JSON, "unknown": JSON,
    },
)  # fmt: skip
RIGHT = st.fixed_dictionaries(
    {"sql": st.just("select key, value from kv order by key")},
    optional={
        "prefix": st.sampled_from(["", "a/", "a/b", "é", "none"]), "at": st.integers(1, 6),
    },
)  # fmt: skip


def is_seq(value: Any) -> bool:
    return value is None or (type(value) is int and 1 <= value < 2**63)


def is_right(body: dict[str, Any]) -> bool:
    """Whether a body is one, as docs/queries.md has it."""
    params, prefix = body.get("params", []), body.get("prefix", "")
    return (
        "unknown" not in body
        and isinstance(prefix, str) and len(prefix.encode()) <= KEY_BYTES_MAX
        and body.get("consistency", "strong") in {"strong", "snapshot"}
        and is_seq(body.get("at")) and is_seq(body.get("min_version"))
        and not any(isinstance(each, list | dict) for each in params)
        and all(-(2**63) <= n < 2**63 for n in params if type(n) is int)
        and all(math.isfinite(n) for n in params if type(n) is float)
    )  # fmt: skip


def contradicts(body: dict[str, Any]) -> bool:
    """Whether a body names a seq and asks for more than that, which may be refused."""
    more = body.get("min_version") or body.get("consistency") == "strong"
    return body.get("at") is not None and bool(more)


@pytest.fixture(scope="module")
def states() -> tuple[MemoryDatabase, list[dict[str, Any]]]:
    """A database, and its state after each seq."""
    rng = random.Random("queries")
    database, states = MemoryDatabase(), [dict[str, Any]()]
    for _ in range(6):
        puts = {rng.choice(KEYS): rng.choice([1, "é", [True], {"a": 0.5}]) for _ in range(3)}
        append(database, updates=[{"op": "put", "key": k, "value": v} for k, v in puts.items()])
        states.append({**states[-1], **puts})
    database.run()
    return database, states


ASKED = st.lists(st.tuples(RIGHT | BODIES, st.sampled_from([0, 0, 0, 1, 5, 20])), min_size=6)


@settings(max_examples=8)
@given(ASKED)
def test_a_query_is_answered_from_the_state_that_is_asked_for_or_refused(
    states: tuple[MemoryDatabase, list[dict[str, Any]]], asked: list[tuple[dict[str, Any], int]]
) -> None:
    pytest.importorskip("duckdb")
    database, known = states

    async def scenario() -> None:
        async with facade(database) as client:
            for body, cut in asked:
                raw = json.dumps(body).encode()
                right = is_right(body) and not cut
                ahead = right and max(body.get("at") or 0, body.get("min_version") or 0) > 6
                answer = await client.request("POST", "/v1/query", raw[: len(raw) - cut])
                if not right:
                    assert answer.status == 400
                    assert answer.problem in {"invalid-json", "invalid-parameter"}
                elif ahead:  # no record is left in the log that could get such a seq
                    assert answer.problem == "invalid-parameter"
                else:
                    check(known, body, answer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryPool, "run", in_this_process)
        asyncio.run(scenario())


def check(known: list[dict[str, Any]], body: dict[str, Any], answer: HttpAnswer) -> None:
    """Compare an answer with the state that is asked for."""
    at, prefix = body.get("at"), body.get("prefix", "")
    if body.get("params"):
        assert answer.problem == "query-invalid", "it has no parameters"
    elif contradicts(body):
        assert answer.status in {200, 400}
    else:
        shown = known[6 if at is None else at]
        rows = [[k, shown[k]] for k in sorted(shown, key=str.encode) if k.startswith(prefix)]
        assert answer.status == 200, answer
        found = answer.json()
        assert (found["seq"], found["rows"]) == (6 if at is None else at, rows)


RULES: list[dict[str, Any]] = [
    {"type": "integer"},
    {"max": 5},
    {"length": {"max": 3}},
    {"unique": "$"},
    {"required": True},
]


@pytest.mark.parametrize("seed", range(6))
def test_the_constraints_are_those_that_were_declared_last(seed: int) -> None:
    rng = random.Random(f"constraints {seed}")
    database = MemoryDatabase()
    states: list[dict[str, Any]] = [{}]
    for _ in range(25):
        name, now = rng.choice("abc"), dict(states[-1])
        rule = {"prefix": rng.choice(["a/", "é"]), **rng.choice(RULES)}
        if rng.random() < 0.4:
            append(database, constrain={"drop": name})
            now.pop(name, None)
        elif rng.random() < 0.2:
            append(database, constrain={"declare": {"name": name, **rule, "max": "none"}})
        elif rng.random() < 0.2:
            append(database, updates=[{"op": "put", "key": "k", "value": 1}])
        else:
            append(database, constrain={"declare": {"name": name, **rule}})
            now[name] = {**rule, "since": len(states)}
        database.run()
        states.append(now)
    assert len(database.log.results) == 25

    async def scenario() -> None:
        async with facade(database) as client:
            newest = await client.request("GET", "/v1/constraints")
            assert shown(newest) == (25, states[25])
            for at in rng.sample(range(1, 26), 5):
                answer = await client.request("GET", f"/v1/constraints?at={at}")
                assert shown(answer) == (at, states[at])
                assert answer.headers["streamydb-snapshot"] == str(at)
            for query in ("at=0", "at=x", "at=26", "min_version=99", "consistency=none"):
                answer = await client.request("GET", f"/v1/constraints?{query}")
                assert answer.problem == "invalid-parameter"

    asyncio.run(scenario())


def shown(answer: HttpAnswer) -> tuple[int, dict[str, Any]]:
    """The seq and the constraints of an answer."""
    found = answer.json()
    return found["seq"], found["constraints"]

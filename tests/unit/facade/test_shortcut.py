"""Plain requests go past the router: whatever is sent, the router would have answered the same.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from streamydb.facade import FacadeSettings, create_app, shortcut
from streamydb.testing.in_process import HttpAnswer, InProcess
from streamydb.testing.memory import MemoryDatabase
from tests.support.seeds import seeds

TOKENS = '[{"name": "half", "token": "0123456789abcdef", "read": ["a"], "write": []}]'
TOKEN = {"authorization": "Bearer 0123456789abcdef"}
KEYS = ["a", "a/b", "a/é", 'a"', "a\n", "b", "x"]

NAMES = st.sampled_from(
    ["at", "min_version", "consistency", "limit", "prefix", "start", "end", "cursor", "other"]
)
VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "1", "3", "4", "9", "01", "-1", "1.0", "9223372036854775807", "strong",
         "session", "snapshot", "Strong", "null", "NULL", "none", "true", "a", "a/b", "a%2Fb",
         "%C3%A9", "a+b", "a;b", "a=b", "a=", "%zz", "\x7f", "k" * 500, "k" * 9000]
    ),
    st.text("a/%&=+;#1", max_size=4),
)  # fmt: skip
QUERIES = st.lists(st.tuples(NAMES, VALUES), max_size=3).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)
PATHS = st.sampled_from(
    ["/v1/kv", "/v1/kv/", "/v1/kv/a", "/v1/kv/a/b", "/v1/kv/a%2Fb", "/v1/kv/a%C3%A9", "/v1/kv/%zz",
     "/v1/kv/b", "/v1/kv/x", "/v1/kv/" + "k" * 481, "/v1/read", "/v1/read/", "/v1/reads", "/v1"]
)  # fmt: skip
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "if-match": st.sampled_from(["*", '"1"', '"2"', "1", ""]),
        "if-none-match": st.sampled_from(["*", '"1"', 'W/"2"', "x"]),
        "idempotency-key": st.just("i"), "accept": st.sampled_from(["text/html", "*/*"]),
        "authorization": st.sampled_from([TOKEN["authorization"], "Bearer no", ""]),
        "origin": st.sampled_from(["http://127.0.0.1:8080", "http://elsewhere"]),
        "content-length": st.sampled_from(["1", "x", "99999999"]),
    },
)  # fmt: skip
BODIES = st.one_of(
    st.sampled_from([b"", b"{", b'{"keys": "a"}', b'{"keys": [""]}', b'{"keys": ["a"], "x": 1}']),
    st.fixed_dictionaries(
        {"keys": st.lists(st.sampled_from([*KEYS, "none", "k" * 481]), max_size=9)},
        optional={
            "at": st.sampled_from([None, 0, 1, 3, 9]), "min_version": st.sampled_from([1, 3, 9]),
            "consistency": st.sampled_from(["snapshot", "strong", "session", "no"]),
        },
    ).map(lambda body: json.dumps(body).encode()),
)  # fmt: skip
ASKED = st.tuples(
    st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "POST", "OPTIONS"]),
    PATHS, QUERIES, HEADERS, BODIES,
    st.lists(st.sampled_from([("authorization", "x"), ("if-match", "*")]), max_size=1),
)  # fmt: skip


def append(database: MemoryDatabase) -> None:
    """Write some keys, and delete one of them."""
    for n, key in enumerate(KEYS):
        ends = {"ttl_ms": 10**9} if n % 2 else {}
        update = {"op": "put", "key": key, "value": {"n": [n]}, **ends}
        database.log.records.append(json.dumps({"id": f"t{n}", "updates": [update]}).encode())
    database.log.records.append(b'{"id":"last","updates":[{"op":"delete","key":"x"}]}')
    database.run()


@pytest.fixture(scope="module")
def database() -> MemoryDatabase:
    """A database that is only read."""
    made = MemoryDatabase()
    append(made)
    return made


def plain(answer: HttpAnswer) -> tuple[Any, ...]:
    """An answer; the router names methods in any order."""
    headers = {**answer.headers, "allow": sorted(answer.headers.get("allow", "").split(", "))}
    return answer.status, headers, answer.body


async def counted(client: InProcess) -> list[str]:
    """How many requests of each route were counted."""
    text = (await client.request("GET", "/metrics", headers=TOKEN)).body.decode()
    return [
        line
        for line in text.splitlines()
        if line.startswith("streamydb_facade_requests_total{") and "/metrics" not in line
    ]


@pytest.mark.randomized
@pytest.mark.parametrize("sent", [{}, TOKEN])
@settings(max_examples=seeds(5), phases=[Phase.generate])
@given(asked=st.lists(ASKED, min_size=8, max_size=25))
def test_the_shortcut_answers_as_the_router_does(
    database: MemoryDatabase, sent: dict[str, str], asked: list[Any]
) -> None:
    limits = FacadeSettings(
        tokens=SecretStr(TOKENS) if sent else None, read_timeout_s=60,
        answer_bytes_max=25, page_entries_max=3,
    )  # fmt: skip
    one, other = (
        create_app(database.model, database.log, database.changes, limits) for _ in range(2)
    )

    async def scenario() -> None:
        async with InProcess(one) as client, InProcess(other) as routed:
            for method, path, query, more, body, repeated in asked:
                target, headers = f"{path}?{query}" if query else path, {**sent, **more}
                expected = await client.request(method, target, body, headers, repeated)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(shortcut, "_plain", lambda _: None)
                    found = await routed.request(method, target, body, headers, repeated)
                assert plain(found) == plain(expected), (method, target, body, headers)
            assert await counted(client) == await counted(routed)

    asyncio.run(scenario())


WRITTEN = st.one_of(
    st.tuples(
        st.just("PUT"), st.sampled_from(["/v1/kv/a", "/v1/kv/a%2Fb", "/v1/kv/b?at=1", "/v1/kv/"]),
        st.sampled_from([b"1", b"2", b'{"a": [null]}', b"null", b"{", b"", b"1e999"]),
    ),
    st.tuples(
        st.just("POST"), st.sampled_from(["/v1/transactions"] * 3 + ["/v1/transactions?x=1"]),
        st.sampled_from(
            [b'{"updates":[{"op":"add","key":"n","by":1}],"reads":["n"]}', b"{}", b"[]", b"",
             b'{"id":"own","asserts":{"a":1}}', b'{"id":"own"}', b'{"checks":[{"key":"a"}]}',
             b'{"updates":[{"op":"put","key":"b","value":1}]}', b'{"deadline_ms":1}']
        ),
    ),
)  # fmt: skip
WRITE_HEADERS = st.fixed_dictionaries(
    {"idempotency-key": st.sampled_from([f"i{n}" for n in range(30)] + ["", "own"])},
    optional={
        "if-match": st.sampled_from(["*", '"1"', '"2"', "1", 'W/"1"']),
        "if-none-match": st.sampled_from(["*", '"1"']),
        "prefer": st.sampled_from(["respond-async", "wait=9", "other"]),
        "deadline-ms": st.sampled_from(["1", "1100", "x", "99999999999999"]),
        "authorization": st.sampled_from(["Bearer no", ""]),
        "content-length": st.sampled_from(["1", "99999999"]),
    },
)  # fmt: skip
REPEATED = st.lists(
    st.sampled_from([("idempotency-key", "i1"), ("prefer", "wait=1"), ("authorization", "x")]),
    max_size=1,
)


@pytest.mark.randomized
@pytest.mark.parametrize("sent", [{}, TOKEN])
@settings(max_examples=seeds(4), phases=[Phase.generate])
@given(written=st.lists(st.tuples(WRITTEN, WRITE_HEADERS, REPEATED), min_size=8, max_size=25))
def test_the_shortcut_writes_as_the_router_does(sent: dict[str, str], written: list[Any]) -> None:
    databases = MemoryDatabase(), MemoryDatabase()
    limits = FacadeSettings(tokens=SecretStr(TOKENS.replace("[]}", '["a"]}')) if sent else None)
    for database in databases:
        database.tick_by_record(1_000)
    one, other = (create_app(d.model, d.log, d.changes, limits) for d in databases)

    async def scenario() -> None:
        async with InProcess(one) as client, InProcess(other) as routed:
            for (method, target, body), more, repeated in written:
                headers = {**sent, **more}
                expected = await client.request(method, target, body, headers, repeated)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(shortcut, "_plain", lambda _: None)
                    found = await routed.request(method, target, body, headers, repeated)
                assert plain(found) == plain(expected), (method, target, body, headers)
            assert await counted(client) == await counted(routed)

    asyncio.run(scenario())
    assert databases[0].log.records == databases[1].log.records


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("GET", "/v1/kv/a", b""), ("GET", "/v1/kv/a%2Fb?consistency=snapshot", b""),
        ("HEAD", "/v1/kv/a?at=3", b""), ("GET", "/v1/kv/none?min_version=2", b""),
        ("GET", "/v1/kv", b""), ("GET", "/v1/kv?prefix=a/&limit=2&consistency=strong", b""),
        ("GET", "/v1/kv?start=a&end=b", b""), ("POST", "/v1/read", b'{"keys":["a","none"]}'),
        ("POST", "/v1/read", b"{"), ("POST", "/v1/transactions", b"{}"), ("PUT", "/v1/kv/a", b"1"),
    ],
)  # fmt: skip
def test_plain_requests_do_not_reach_the_router(
    method: str, target: str, body: bytes
) -> None:
    database = MemoryDatabase()
    append(database)
    app = create_app(database.model, database.log, database.changes, FacadeSettings())
    reached: list[object] = []

    async def scenario() -> None:
        async with InProcess(app) as client:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("litestar.Litestar.__call__", lambda *_: reached.append(1))
                answer = await client.request(method, target, body)
        assert answer.status in {200, 400, 404}

    asyncio.run(scenario())
    assert not reached

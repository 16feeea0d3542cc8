"""SQL over REST and by the client: what is asked is answered, at one seq, within the scopes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from typing import Any

import pytest
from pydantic import SecretStr

import streamydb.sql.pool
from streamydb.client import (
    AnswerTooLargeError,
    InvalidParameterError,
    QueryCostlyError,
    QueryInvalidError,
)
from streamydb.facade import FacadeSettings, create_app
from streamydb.testing.clients import Awaited, Kind, MemoryHost
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario
from streamydb.testing.memory import MemoryDatabase

pytest.importorskip("duckdb")

TOKENS = [
    {"name": "app", "token": "0123456789abcdef", "read": ["acct/", "acct/1", "b"]},
    {"name": "blind", "token": "fedcba9876543210", "write": [""]},
]
APP = {"Authorization": "Bearer 0123456789abcdef"}
BLIND = {"Authorization": "Bearer fedcba9876543210"}


def loaded() -> MemoryDatabase:
    """Three accounts, `b` and `secret`, and then a later state."""
    database = MemoryDatabase()
    database.tick_by_record(1_000)
    first = {f"acct/{n}": {"balance": 100 * n, "owner": "xyz"[n]} for n in range(3)}
    for record in ({**first, "b": "text", "secret": "hush"}, {"acct/0": {"balance": 7}}):
        updates = [{"op": "put", "key": key, "value": value} for key, value in record.items()]
        txn = {"id": str(len(database.log.records)), "updates": updates}
        database.log.records.append(json.dumps(txn).encode())
    database.run()
    return database


def facade(database: MemoryDatabase, **settings: Any) -> InProcess:
    made = FacadeSettings(**settings)
    return InProcess(create_app(database.model, database.log, database.changes, made))


async def ask(client: InProcess, headers: dict[str, str] | None = None, **body: Any) -> HttpAnswer:
    return await client.request("POST", "/v1/query", json.dumps(body).encode(), headers or {})


@scenario
async def test_rows_columns_and_seq() -> None:
    async with facade(loaded()) as client:
        sql = "select key, value, version, ts from kv where key >= ? and key < 'acct/2' order by 1"
        answer = await ask(client, sql=sql, params=["acct/"])
        assert answer.status == 200
        assert answer.json() == {
            "seq": 2,
            "columns": [
                {"name": "key", "type": "VARCHAR"}, {"name": "value", "type": "JSON"},
                {"name": "version", "type": "BIGINT"}, {"name": "ts", "type": "TIMESTAMP"},
            ],
            "rows": [
                ["acct/0", {"balance": 7}, 2, "1970-01-01T00:00:01.001000"],
                ["acct/1", {"balance": 100, "owner": "y"}, 1, "1970-01-01T00:00:01"],
            ],
        }  # fmt: skip
        sql = "select count(*), max(version) from kv"
        for prefix, rows in (("", [[5, 2]]), ("acct/", [[3, 2]]), ("none", [[0, None]])):
            assert (await ask(client, sql=sql, prefix=prefix)).json()["rows"] == rows


@scenario
async def test_scopes_hide_keys_from_every_query() -> None:
    async with facade(loaded(), tokens=SecretStr(json.dumps(TOKENS))) as client:
        sql = "select string_agg(key, ' ' order by key) from kv"
        assert (await ask(client, APP, sql=sql)).json()["rows"] == [["acct/0 acct/1 acct/2 b"]]
        narrow = await ask(client, APP, sql=sql, prefix="acct/1")
        assert narrow.json()["rows"] == [["acct/1"]]
        assert (await ask(client, APP, sql=sql, prefix="secret")).problem == "forbidden"
        assert (await ask(client, BLIND, sql=sql)).problem == "forbidden"
        assert (await ask(client, sql=sql)).problem == "unauthorized"
        hidden = "select count(*) from kv a, entries b where a.key = 'secret' or b.key = 'secret'"
        assert (await ask(client, APP, sql=hidden)).json()["rows"] == [[0]]


@scenario
async def test_the_past_and_sessions() -> None:
    async with facade(loaded()) as client:
        sql = "select value->>'balance' from kv where key = 'acct/0'"
        assert (await ask(client, sql=sql)).json()["rows"] == [["7"]]
        past = (await ask(client, sql=sql, at=1)).json()
        assert (past["seq"], past["rows"]) == (1, [["0"]])
        assert (await ask(client, sql=sql, min_version=2, consistency="session")).status == 200
        assert (await ask(client, sql=sql, at=9)).json()["parameters"] == ["at"]
        assert (await ask(client, sql=sql, at=0)).problem == "invalid-parameter"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{}", b'{"sql": 1}', b'{"sql": "select 1", "x": 1}', b'{"sql": null}',
        b'{"sql": "select 1", "params": [[]]}', b'{"sql": "select 1", "params": 1}',
    ],
)  # fmt: skip
@scenario
async def test_bodies_are_strict(body: bytes) -> None:
    async with facade(loaded()) as client:
        expected = "invalid-parameter" if body else "invalid-json"
        assert (await client.request("POST", "/v1/query", body)).problem == expected


@scenario
async def test_params_and_prefixes_have_bounds() -> None:
    async with facade(loaded()) as client:
        sql = "select ?"
        assert (await ask(client, sql=sql, params=[2**63])).problem == "invalid-parameter"
        assert (await ask(client, sql=sql, prefix="x" * 481)).problem == "invalid-parameter"
        assert (await ask(client, sql=sql)).problem == "query-invalid"
        params = [None, True, -(2**63), 1.5, "x'; drop table kv; --"]
        sql = "select " + ", ".join("?" * len(params))
        assert (await ask(client, sql=sql, params=params)).json()["rows"] == [params]


@scenario
async def test_queries_beyond_the_limit_are_sent_away() -> None:
    async with facade(loaded(), queries_max=1, query_timeout_s=1) as client:
        slow = "select sleep_ms(60000)"
        answers = await asyncio.gather(ask(client, sql=slow), ask(client, sql=slow))
        assert sorted(answer.problem for answer in answers) == ["overloaded", "query-costly"]
        assert b"queries 0.0" in (await client.request("GET", "/metrics")).body


@pytest.fixture(params=["http", "direct"])
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


def test_the_client_asks(kind: Kind) -> None:
    with MemoryHost() as host, host.connect(kind) as client:
        for n in range(4):
            client.put(f"n/{n}", {"n": n})
        sql = "select key, value from kv where (value->>'n')::int >= $1 order by key desc"
        found = client.query(sql, [2])
        assert found.columns == ("key", "value")
        assert found.rows == (("n/3", {"n": 3}), ("n/2", {"n": 2}))
        assert found.dicts()[0] == {"key": "n/3", "value": {"n": 3}}
        assert (found.seq, len(found), list(found)) == (4, 2, list(found.rows))
        assert client.query("select count(*) from kv", at=2).rows == ((2,),)
        with pytest.raises(QueryInvalidError, match="nothing"):
            client.query("select nothing from kv")
        with pytest.raises(InvalidParameterError):
            client.query("select 1", prefix="x" * 481)
        odd: Any
        for odd in ("n/1", b"n", {"key": "n/1"}):
            with pytest.raises(InvalidParameterError, match="as a list"):
                client.query("select value from kv where key = ?", odd)


def test_the_client_for_coroutines_asks(kind: Kind) -> None:
    with MemoryHost() as host, Awaited(host.portal, host.connect_async(kind)) as client:
        client.put("a", 1)
        assert client.query("select value from kv", prefix="a").rows == ((1,),)


def test_the_client_learns_what_is_too_much() -> None:
    settings = FacadeSettings(query_timeout_s=0.05, query_rows_max=10)
    with (
        MemoryHost(settings=settings) as host,
        host.connect() as client,
        pytest.raises(QueryCostlyError),
    ):
        client.query("select sleep_ms(60000)")
    settings = FacadeSettings(query_rows_max=10)
    with MemoryHost(settings=settings) as host, host.connect() as client:
        assert len(client.query("select * from range(10)")) == 10
        with pytest.raises(AnswerTooLargeError):
            client.query("select * from range(11)")


def test_the_environment_of_a_query_has_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamydb.sql.pool import _environment

    monkeypatch.setenv("STREAMYDB_SERVE_TOKENS", "hush")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert "hush" not in str(_environment("streamydb.sql.process"))
    assert os.environ["STREAMYDB_SERVE_TOKENS"] == "hush"


@scenario
async def test_a_machine_that_has_no_process_left_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(_: str) -> asyncio.subprocess.Process:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(streamydb.sql.pool, "_start", start)
    async with facade(loaded()) as client:
        asked = [await ask(client, sql="select 1")]
        statements = json.dumps({"statements": [{"sql": "select 1"}]}).encode()
        asked.append(await client.request("POST", "/v1/sql", statements))
    for answer in asked:
        assert (answer.status, answer.problem) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"

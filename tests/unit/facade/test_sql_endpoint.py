"""SQL on tables over REST: transactions of statements, within scopes and bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from streamydb.facade import FacadeSettings, create_app
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

TOKENS = [
    {"name": "app", "token": "0123456789abcdef", "read": ["sql/main/"], "write": ["sql/main/"]},
    {"name": "reader", "token": "fedcba9876543210", "read": ["sql/"]},
    {"name": "other", "token": "other-other-other", "read": ["acct/"], "write": [""]},
]
APP, READER, OTHER = ({"Authorization": f"Bearer {each['token']}"} for each in TOKENS)
CREATE = "create table t (id int primary key, n int check (n >= 0), d decimal(8, 2), j json)"


@asynccontextmanager
async def facade(**settings: Any) -> AsyncIterator[InProcess]:
    database = MemoryDatabase()
    made = FacadeSettings(**settings)
    app = create_app(database.model, database.log, database.changes, made)
    async with InProcess(app) as client:
        yield client


async def sql(
    client: InProcess, *statements: Any, headers: dict[str, str] | None = None, **more: Any
) -> HttpAnswer:
    given = [s if isinstance(s, tuple) else (s, []) for s in statements]
    body = {"statements": [{"sql": text, "params": params} for text, params in given], **more}
    return await client.request("POST", "/v1/sql", json.dumps(body).encode(), headers or {})


@scenario
async def test_statements_are_one_transaction() -> None:
    async with facade() as client:
        made = await sql(
            client, CREATE,
            ("insert into t values (1, ?, 1.5, ?), (2, 20, null, null)", [10, {"a": [1, None]}]),
            ("update t set n = n + $by where id = 1 returning n, j", {"by": 1}),
            "select count(*) as rows, sum(d) as d, current_date > '2000-01-01' from t",
        )  # fmt: skip
        assert made.status == 200
        found = made.json()
        assert (found["seq"], len(found["id"])) == (1, 36)
        assert [each["changed"] for each in found["results"]] == [None, 2, 1, None]
        assert found["results"][2] == {
            "columns": [{"name": "n", "type": "INTEGER"}, {"name": "j", "type": "JSON"}],
            "rows": [[11, {"a": [1, None]}]], "changed": 1,
        }  # fmt: skip
        assert found["results"][3]["rows"] == [[2, 1.5, True]]
        verdict = await client.request("GET", f"/v1/transactions/{found['id']}")
        assert verdict.json()["status"] == "committed"
        read = (await sql(client, "select n from t order by n")).json()
        assert (read["seq"], read["id"], read["results"][0]["rows"]) == (1, None, [[11], [20]])
        await sql(client, "delete from t")
        past = await sql(client, "select count(*) from t", at=1)
        assert past.json()["results"][0]["rows"] == [[2]]
        refused = await sql(client, "delete from t where id = 1", at=1)
        assert refused.json()["parameters"] == ["at"]
        other = await sql(client, "select * from t", tables="other")
        assert other.json()["error"] == "line 1, column 15: There is no table t."


@scenario
async def test_the_time_is_one_instant_in_a_request() -> None:
    async with facade() as client:
        asked = "select now()"
        found = (await sql(client, asked, "select count(*) from range(1000)", asked)).json()
        first, _, last = (result["rows"] for result in found["results"])
        assert first == last
        assert (await sql(client, asked)).json()["results"][0]["rows"] != first


@scenario
async def test_the_id_is_that_of_the_attempt_with_the_locks() -> None:
    few = {"name": "few", "prefix": "sql/main/", "keys": {"max": 9}}
    async with facade() as client:
        declared = json.dumps({"constrain": {"declare": few}}).encode()
        await client.request("POST", "/v1/transactions", declared)
        made = await sql(client, CREATE, headers={"Idempotency-Key": "own"})
        assert made.json()["id"] == "own~1"
        verdict = await client.request("GET", "/v1/transactions/own~1")
        assert verdict.json()["seq"] == made.json()["seq"]


@scenario
async def test_what_is_refused_says_where_and_writes_nothing() -> None:
    async with facade() as client:
        await sql(client, CREATE, "insert into t values (1, 1, 1, null)")
        bad = await sql(client, "update t set n = 7", "select *\nfrom t where x = 1")
        assert (bad.status, bad.problem) == (400, "query-invalid")
        told = bad.json()
        assert (told["reason"], told["statement"], told["line"], told["column"]) == (
            "invalid", 1, 2, 14,
        )  # fmt: skip
        for reason, statement in (
            ("unsupported", "create trigger x"), ("unsupported", "begin"), ("invalid", "selec 1"),
            ("data", "select cast('a' as integer)"),
            ("data", "select {'a': interval '100000000 years'}"),
        ):  # fmt: skip
            answer = (await sql(client, statement)).json()
            assert (answer["status"], answer["reason"]) == (400, reason)
        assert (await sql(client, "select 1; select 2")).json()["reason"] == "invalid"
        assert (await sql(client, ("select ?", []))).json()["reason"] == "invalid"
        violated = await sql(client, "update t set n = 5", "insert into t values (2, -1, 1, null)")
        assert (violated.status, violated.problem) == (422, "constraint-violated")
        told = violated.json()
        assert (told["of"], told["constraint"], told["table"]) == ("check", "t_check1", "t")
        assert (await sql(client, "select n from t")).json()["results"][0]["rows"] == [[1]]
        assert (await sql(client, "select 1", tables="a/b")).json()["parameters"] == ["tables"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"statements": []}', b'{"statements": ["select 1"]}', b'{"sql": "select 1"}',
     b'{"statements": [{"sql": "select 1", "params": 1}]}',
     b'{"statements": [{"sql": "select 1"}], "prefix": ""}'],
)  # fmt: skip
@scenario
async def test_bodies_are_strict(body: bytes) -> None:
    async with facade() as client:
        expected = "invalid-parameter" if body else "invalid-json"
        assert (await client.request("POST", "/v1/sql", body)).problem == expected


@scenario
async def test_tokens_read_and_write_within_their_scopes() -> None:
    async with facade(tokens=SecretStr(json.dumps(TOKENS))) as client:
        assert (await sql(client, CREATE, headers=APP)).status == 200
        insert = "insert into t values (1, 1, 1, null)"
        assert (await sql(client, insert, headers=READER)).problem == "forbidden"
        assert (await sql(client, insert, headers=OTHER)).problem == "forbidden"
        assert (await sql(client, insert, headers=APP, tables="other")).problem == "forbidden"
        assert (await sql(client, insert)).problem == "unauthorized"
        assert (await sql(client, insert, headers=APP)).status == 200
        rows = (await sql(client, "select id from t", headers=READER)).json()["results"][0]["rows"]
        assert rows == [[1]]


@scenario
async def test_conflicts_are_executed_again_unless_they_have_an_id() -> None:
    async with facade(queries_max=4, client_queries_max=4) as client:
        await sql(client, CREATE, "insert into t values (1, 0, 0, null)")
        add = "update t set n = n + 1 returning n"
        answers = await asyncio.gather(*(sql(client, add) for _ in range(4)))
        assert sorted(each.json()["results"][0]["rows"][0][0] for each in answers) == [1, 2, 3, 4]
        named = {"Idempotency-Key": "mine"}
        first = await sql(client, add, headers=named)
        assert (first.json()["id"], first.json()["results"][0]["rows"]) == ("mine", [[5]])
        again = await sql(client, add, headers=named)
        assert (again.status, again.problem) == (422, "id-reused")
        assert (await sql(client, "select n from t")).json()["results"][0]["rows"] == [[5]]
        insert, empty = "insert into t values (2, 1, 0, null)", "update t set n = 9 where n = 0"
        for number, statement in enumerate((insert, empty)):
            once = {"Idempotency-Key": f"once{number}"}
            await sql(client, "update t set n = 0 where id = 2")
            assert (await sql(client, statement, headers=once)).status == 200
            assert (await sql(client, statement, headers=once)).problem == "id-reused"
        unused = await sql(client, insert, headers={"Idempotency-Key": "unused"})
        assert unused.problem == "constraint-violated"
        await sql(client, "delete from t where id = 2")
        ids = [{"Idempotency-Key": f"id{number}"} for number in range(4)]
        racing = await asyncio.gather(*(sql(client, add, headers=each) for each in ids))
        done = [each for each in racing if each.status == 200]
        lost = [each.json() for each in racing if each.status != 200]
        assert done
        assert all((each["status"], each["code"]) == (409, "check-failed") for each in lost)
        rows = (await sql(client, "select n from t")).json()["results"][0]["rows"]
        assert rows == [[5 + len(done)]]


@scenario
async def test_what_takes_too_much_is_ended() -> None:
    endless = "select count(*) from range(1000000) a, range(1000000) b"
    async with facade(query_timeout_s=1, query_rows_max=10, queries_max=1) as client:
        assert (await sql(client, "select * from range(11)")).problem == "answer-too-large"
        costly, busy = await asyncio.gather(sql(client, endless), sql(client, "select 1"))
        assert (costly.problem, busy.problem) == ("query-costly", "overloaded")
    async with facade(queries_max=0) as client:
        assert (await sql(client, "select 1")).problem == "queries-off"


@pytest.mark.parametrize(
    ("bound", "problem"),
    [("in_flight_max", "overloaded"), ("client_in_flight_max", "too-many-requests")],
)
@scenario
async def test_only_what_writes_is_bounded_as_writes_are(bound: str, problem: str) -> None:
    database = MemoryDatabase()
    settings = FacadeSettings.model_validate({bound: 1})
    app = create_app(database.model, database.log, database.changes, settings)
    async with InProcess(app) as client:
        assert (await sql(client, CREATE, "insert into t (id) values (1)")).status == 200
        database.executing = False
        waiting = asyncio.create_task(client.request("PUT", "/v1/kv/a", b"1"))
        await until(lambda: len(database.log.records) == 2)
        query = b'{"sql": "select count(*) from kv"}'
        assert (await client.request("POST", "/v1/query", query)).status == 200
        assert (await sql(client, "select id from t")).json()["results"][0]["rows"] == [[1]]
        for refused in (
            await sql(client, "insert into t (id) values (2)"),
            await client.request("PUT", "/v1/kv/b", b"1"),
        ):
            assert refused.problem == problem
        assert len(database.log.records) == 2
        database.executing = True
        database.run()
        assert (await waiting).status == 200
        assert (await sql(client, "insert into t (id) values (2)")).status == 200

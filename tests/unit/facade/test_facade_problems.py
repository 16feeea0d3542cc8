"""Every problem type can be met and is documented, as RFC 9457 has it; the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema_rs
import pytest
from pydantic import SecretStr

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.problems import ProblemDetails, ProblemError, problem_body
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.records import Result
from streamydb.records.problems import PROBLEMS
from streamydb.testing.in_process import HttpAnswer, InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase

TOKENS = [{"name": "nobody", "token": "0123456789abcdef", "read": ["r/"], "write": []}]


def connect(database: MemoryDatabase, **limits: Any) -> InProcess:
    settings = FacadeSettings(**limits)
    return InProcess(create_app(database.model, database.log, database.changes, settings))


def requesting(
    method: str,
    target: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    **limits: Any,
) -> Callable[[], Awaitable[HttpAnswer]]:
    """A scenario of one request to a fresh database that has the key a."""

    async def run() -> HttpAnswer:
        database = MemoryDatabase()
        async with connect(database, **limits) as client:
            database.log.records.append(b'{"id":"0","updates":[{"op":"put","key":"a","value":11}]}')
            database.run()
            return await client.request(method, target, body, headers)

    return run


def broken(method: str, target: str, break_it: Callable[[MemoryDatabase], None]) -> Any:
    """A scenario of one request to a database of which something is broken."""

    async def run() -> HttpAnswer:
        database = MemoryDatabase()
        async with connect(database, verdict_timeout_s=0.01, read_timeout_s=0.01) as client:
            break_it(database)
            return await client.request(method, target, b"1")

    return run


async def _twice() -> HttpAnswer:
    async with connect(MemoryDatabase()) as client:
        await client.request("PUT", "/v1/kv/a", b"1", {"Idempotency-Key": "i"})
        return await client.request("PUT", "/v1/kv/a", b"2", {"Idempotency-Key": "i"})


async def _violated() -> HttpAnswer:
    declared = b'{"constrain": {"declare": {"name": "c", "prefix": "a", "max": 1}}}'
    async with connect(MemoryDatabase()) as client:
        await client.request("POST", "/v1/transactions", declared)
        return await client.request("PUT", "/v1/kv/a", b"2")


async def _gone() -> HttpAnswer:
    database = MemoryDatabase()
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        await client.request("PUT", "/v1/kv/a", b"2")
        database.model.gone = 2
        return await client.request("GET", "/v1/kv/a?at=1")


async def _crowded(**limits: Any) -> HttpAnswer:
    database = MemoryDatabase()
    database.executing = False
    async with connect(database, **limits) as client:
        waiting = asyncio.create_task(client.request("PUT", "/v1/kv/a", b"1"))
        await until(lambda: bool(database.log.records))
        answer = await client.request("PUT", "/v1/kv/a", b"1")
        database.execute()
        await waiting
        return answer


async def _slow_body() -> HttpAnswer:
    database = MemoryDatabase()
    settings = FacadeSettings(body_timeout_s=0.01)
    client = InProcess(create_app(database.model, database.log, database.changes, settings))
    sent: list[Any] = []

    async def never() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async with client:
        await client._app(client._scope("PUT", "/v1/kv/a", {}), never, send)
    headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return HttpAnswer(sent[0]["status"], headers, sent[1]["body"])


async def _aborted() -> HttpAnswer:
    database = MemoryDatabase()
    async with connect(database) as client:
        result = await client.request("POST", "/v1/transactions", b'{"id": "x"}')
        found = await database.log.search("x", None)
        assert result.status == 200
        assert isinstance(found, Result)
        found.status, found.code = "aborted", "internal"

        async def faulty(*_: Any) -> Any:
            return found

        database.log.result = faulty  # type: ignore[method-assign, assignment]
        return await client.request("PUT", "/v1/kv/a", b"1")


async def _slow_reader() -> HttpAnswer:
    database = MemoryDatabase()
    async with connect(database, stream_bytes_max=1_000) as client:
        stream = await client.stream("/v1/changes?since=0")
        await client.request("PUT", "/v1/kv/a", b"1")
        await stream.until(b"event: change")
        stream.reading.clear()
        for _ in range(20):
            await client.request("PUT", "/v1/kv/a", b"1")
        stream.reading.set()
        data = await stream.end()
    body = data[data.rindex(b"event: error\ndata: ") + len(b"event: error\ndata: ") :].strip()
    shown = json.loads(body)
    return HttpAnswer(shown["status"], {"content-type": "application/problem+json"}, body)


def _break(**flags: Any) -> Callable[[MemoryDatabase], None]:
    def run(database: MemoryDatabase) -> None:
        for name, value in flags.items():
            place = database.model if hasattr(database.model, name) else database.log
            setattr(database if hasattr(database, name) else place, name, value)

    return run


def _raising() -> Any:
    raise ZeroDivisionError("hush")


POST = ("POST", "/v1/transactions")
SCENARIOS: dict[str, Callable[[], Awaitable[HttpAnswer]]] = {
    "invalid-json": requesting("PUT", "/v1/kv/a", b"{"),
    "invalid-parameter": requesting("GET", "/v1/kv?limit=x"),
    "invalid-key": requesting("GET", "/v1/kv/%ff"),
    "query-invalid": requesting("POST", "/v1/query", b'{"sql": "drop table kv"}'),
    "unauthorized": requesting("GET", "/v1/kv/a", tokens=SecretStr(json.dumps(TOKENS))),
    "forbidden": requesting(
        "GET", "/v1/kv/a", b"", {"Authorization": "Bearer 0123456789abcdef"},
        tokens=SecretStr(json.dumps(TOKENS)),
    ),
    "cross-origin": requesting(*POST, b"{}", {"origin": "http://evil.example"}),
    "key-not-found": requesting("GET", "/v1/kv/none"),
    "transaction-unknown": requesting("GET", "/v1/transactions/none"),
    "no-such-stream": requesting("GET", "/v1/streams/none.votes"),
    "no-such-endpoint": requesting("GET", "/v2"),
    "method-not-allowed": requesting("PATCH", "/v1/kv/a"),
    "body-timeout": _slow_body,
    "slow-reader": _slow_reader,
    "aborted": _aborted,
    "snapshot-gone": _gone,
    "other-generation": requesting(
        "GET", "/v1/kv/a", b"", {"Streamydb-Generation": "fb0c2a11"}
    ),
    "precondition-failed": requesting("PUT", "/v1/kv/a", b"1", {"If-Match": '"7"'}),
    "too-large": requesting("PUT", "/v1/kv/a", b" " * (TRANSACTION_BYTES_MAX + 1)),
    "answer-too-large": requesting("POST", "/v1/read", b'{"keys": ["a"]}', answer_bytes_max=1),
    "uri-too-long": requesting("GET", "/v1/kv/" + "a" * 9_000),
    "unsupported-media-type": requesting(
        "PUT", "/v1/kv/a", b"1", {"content-encoding": "gzip"}
    ),
    "expectation-failed": requesting("PUT", "/v1/kv/a", b"1", {"expect": "a-miracle"}),
    "misdirected": requesting("GET", "/v1/kv/a", allowed_hosts=("db.example",)),
    "invalid-transaction": requesting(*POST, b'{"x": 1}'),
    "query-costly": requesting(
        "POST", "/v1/query", b'{"sql": "select sleep_ms(60000)"}', query_timeout_s=0.01
    ),
    "queries-off": requesting("POST", "/v1/query", b'{"sql": "select 1"}', queries_max=0),
    "constraint-violated": _violated,
    "id-reused": _twice,
    "deadline-passed": requesting("PUT", "/v1/kv/a", b"1", {"Deadline-Ms": "1"}),
    "too-many-requests": lambda: _crowded(client_in_flight_max=1),
    "headers-too-large": requesting("GET", "/v1/kv/a", b"", {"x": "y" * 20_000}),
    "internal": broken("GET", "/v1/kv/a", _break(latest=_raising)),
    "overloaded": lambda: _crowded(in_flight_max=1),
    "log-unavailable": broken("PUT", "/v1/kv/a", _break(refusing=True)),
    "read-model-behind": broken("GET", "/v1/kv/a?at=99", _break(resolving=False)),
    "not-ready": broken("GET", "/health/ready", _break(broken=True)),
    "verdict-unknown": broken("PUT", "/v1/kv/a", _break(executing=False)),
}  # fmt: skip
RETRYABLE = {"too-many-requests", "overloaded", "log-unavailable", "read-model-behind",
             "not-ready", "verdict-unknown"}  # fmt: skip


def test_every_problem_type_has_a_scenario() -> None:
    assert set(SCENARIOS) == set(PROBLEMS)


@pytest.mark.parametrize("slug", SCENARIOS)
@scenario
async def test_every_problem_type_is_met(slug: str) -> None:
    answer = await SCENARIOS[slug]()
    problem = PROBLEMS[slug]
    assert answer.problem == slug
    assert answer.status == problem.status
    shown = answer.json()
    assert (shown["title"], shown["status"]) == (problem.title, problem.status)
    assert shown["detail"].endswith(".")
    assert set(shown) <= set(ProblemDetails.__struct_fields__)
    assert ("retry-after" in answer.headers) is (slug in RETRYABLE)
    assert slug != "method-not-allowed" or "GET" in answer.headers["allow"]


@scenario
async def test_problem_types_describe_themselves() -> None:
    async with connect(MemoryDatabase()) as client:
        table = (await client.request("GET", "/problems")).json()
        assert [row["slug"] for row in table] == list(PROBLEMS)
        for row in table:
            described = await client.request("GET", row["type"])
            assert described.json() == row
            assert row["when"].endswith(".")
        missing = await client.request("GET", "/problems/none")
        assert (missing.status, missing.problem) == (404, "no-such-endpoint")


def test_a_problem_needs_a_type_of_the_table() -> None:
    with pytest.raises(KeyError):
        ProblemError("other", "Never.")
    body = json.loads(problem_body(ProblemError("aborted", "Why.", code="c", retry_after_s=3)))
    assert body == {"type": "/problems/aborted", "title": "The transaction was aborted",
                    "status": 409, "detail": "Why.", "code": "c"}  # fmt: skip


ENDPOINTS = {
    ("get", "/v1/kv/{key}"), ("put", "/v1/kv/{key}"), ("delete", "/v1/kv/{key}"), ("get", "/v1/kv"),
    ("post", "/v1/read"), ("post", "/v1/query"), ("post", "/v1/sql"),
    ("post", "/v1/transactions"),
    ("get", "/v1/transactions/{id}"), ("get", "/v1/explanations/{id}"),
    ("get", "/v1/constraints"),
    ("get", "/v1/streams/{name}"),
    ("get", "/v1/changes"), ("get", "/v1/limits"), ("get", "/health/live"),
    ("get", "/health/ready"), ("get", "/metrics"), ("get", "/problems"),
    ("get", "/problems/{slug}"), ("get", "/v1/stats"), ("get", "/v1/history/{key}"),
    ("get", "/v1/pipelines"),
}  # fmt: skip


async def document() -> Any:
    async with connect(MemoryDatabase()) as client:
        answer = await client.request("GET", "/schema")
        same = await client.request("GET", "/schema/openapi.json")
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json() == same.json()
    return answer.json()


@scenario
async def test_the_document_lists_all_endpoints_and_problem_types() -> None:
    shown = await document()
    found = {(method, path) for path, item in shown["paths"].items() for method in item}
    assert found == ENDPOINTS
    texts = [
        response["description"]
        for item in shown["paths"].values()
        for operation in item.values()
        for response in operation["responses"].values()
    ]
    for slug in PROBLEMS:
        assert f"`/problems/{slug}`" in shown["info"]["description"], slug
        assert any(f"`/problems/{slug}`" in text for text in texts), slug
    types = shown["components"]["schemas"]["ProblemDetails"]["properties"]["type"]["enum"]
    assert types == [f"/problems/{slug}" for slug in PROBLEMS]


@scenario
async def test_the_document_describes_bodies_headers_and_answers() -> None:
    shown = await document()
    put = shown["paths"]["/v1/kv/{key}"]["put"]
    names = {(parameter["in"], parameter["name"]) for parameter in put["parameters"]}
    assert names >= {("path", "key"), ("header", "If-Match"), ("header", "Idempotency-Key")}
    assert put["requestBody"]["required"] is True
    assert "201" in put["responses"]
    query = {p["name"] for p in shown["paths"]["/v1/kv"]["get"]["parameters"]}
    assert query >= {"prefix", "start", "end", "limit", "cursor", "at", "consistency"}
    assert all(
        operation["responses"]["500"]["content"]["application/problem+json"]
        for item in shown["paths"].values()
        for operation in item.values()
    )


@scenario
async def test_a_verdict_is_as_the_document_says() -> None:
    shown = await document()
    async with connect(MemoryDatabase()) as client:
        verdict = await client.request("POST", "/v1/transactions", b'{"reads": ["a"]}')
    named = {"$ref": "#/components/schemas/result", "components": shown["components"]}
    validator = jsonschema_rs.Draft202012Validator(named)
    validator.validate(verdict.json())
    with pytest.raises(jsonschema_rs.ValidationError):
        validator.validate({"id": "x"})


@scenario
async def test_health_and_metrics() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        await client.request("GET", "/v1/kv/a%2Fsecret")
        await client.request("BREW", "/v1/kv/a")
        assert (await client.request("GET", "/health/live")).json() == {"status": "live"}
        ready = await client.request("GET", "/health/ready")
        assert (ready.json()["status"], ready.json()["seq"]) == ("ready", 1)
        database.model.broken = True
        assert (await client.request("GET", "/health/ready")).problem == "not-ready"
        assert (await client.request("GET", "/health/live")).status == 200
        answer = await client.request("GET", "/metrics")
    text = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        'requests_total{method="PUT",route="/v1/kv/{key}",status="200"} 1.0',
        'requests_total{method="GET",route="/v1/kv/{key}",status="404"} 1.0',
        'requests_total{method="OTHER",route="unmatched",status="405"} 1.0',
        'problems_total{type="key-not-found"} 1.0',
        'verdicts_total{status="committed"} 1.0',
        "read_model_seq NaN",
    ):
        assert f"streamydb_facade_{line}" in text
    assert "secret" not in text


def test_the_application_starts_and_stops_its_log() -> None:
    database = MemoryDatabase()

    async def run() -> None:
        async with connect(database):
            assert database.log.running

    asyncio.run(run())
    assert not database.log.running

"""A client that has as much under way as it may is sent away, and others are served."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.about import About
from streamydb.facade.life import Evidence
from streamydb.facade.ports import LogPosition, NoResult
from streamydb.records import Result
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase
from tests.support.interference import encoded
from tests.support.tokens import ADMIN, TOKENS, bearer

OTHER = "other-secret-0123456789"
OTHERS: list[dict[str, Any]] = [
    *TOKENS, {"name": "other", "token": OTHER, "read": [""], "write": [""]},
]  # fmt: skip


class Slow:
    """Holds up what is asked of it until it is told to go on."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_go_on = threading.Event()
        self.goes_on = asyncio.Event()

    def evidence(self, _: Result) -> Evidence:
        self.asked += 1
        self.may_go_on.wait(60)
        return Evidence(missing={})

    async def search(self, _id: str, _position: LogPosition | None) -> NoResult:
        self.asked += 1
        await self.goes_on.wait()
        return NoResult(complete=True, since_ms=None)

    def end(self) -> None:
        self.may_go_on.set()
        self.goes_on.set()


@asynccontextmanager
async def facade(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InProcess]:
    database = MemoryDatabase()
    settings = FacadeSettings(
        tokens=SecretStr(encoded_list(OTHERS)),
        searches_max=3,
        client_searches_max=2,
        queries_max=2,
        client_queries_max=1,
        query_timeout_s=3,
    )
    monkeypatch.setattr(database.log, "search", slow.search)
    about = About(evidence=slow.evidence)
    app = create_app(database.model, database.log, database.changes, settings, about=about)
    async with InProcess(app) as client:
        try:
            await client.request("PUT", "/v1/kv/a", b"1", {**bearer(ADMIN), "Idempotency-Key": "t"})
            yield client
        finally:
            slow.end()


def encoded_list(tokens: list[dict[str, Any]]) -> str:
    return encoded({"": tokens}).decode()[4:-1]


@pytest.mark.fault(52, "searches of one token, as many as it may have", "another token is served")
@pytest.mark.parametrize("target", ["/v1/explanations/t", "/v1/transactions/none"])
@scenario
async def test_searches_of_one_client_leave_room(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    async with facade(slow, monkeypatch) as client:

        def ask(token: str) -> asyncio.Task[Any]:
            return asyncio.create_task(client.request("GET", target, b"", bearer(token)))

        def has_come(count: int) -> Callable[[], bool]:
            return lambda: slow.asked == count

        first = [ask(ADMIN), ask(ADMIN)]
        await until(has_come(2))
        assert (await ask(ADMIN)).problem == "too-many-requests"
        other = ask(OTHER)
        await until(has_come(3))
        assert (await ask(OTHER)).problem == "overloaded"
        slow.end()
        statuses = {answer.status for answer in await asyncio.gather(*first, other)}
        assert statuses == {404 if target.endswith("none") else 200}


async def metrics(client: InProcess) -> bytes:
    return (await client.request("GET", "/metrics", b"", bearer(OTHER))).body


@pytest.mark.fault(52, "slow queries of one token, as many as it may have", "another is served")
@pytest.mark.parametrize(
    ("path", "body", "long"),
    [("/v1/query", {"sql": "select 1"}, {"sql": "select sleep_ms(60000)"}),
     ("/v1/sql", {"statements": [{"sql": "select 1"}]},
      {"statements": [{"sql": "select sleep_ms(60000)"}]})],
)  # fmt: skip
@scenario
async def test_queries_of_one_client_leave_room(
    path: str, body: dict[str, Any], long: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("sqlglot")
    async with facade(Slow(), monkeypatch) as client:

        async def ask(token: str, sent: dict[str, Any]) -> Any:
            return await client.request("POST", path, encoded(sent), bearer(token))

        slow = asyncio.create_task(ask(ADMIN, long))
        while b"facade_queries 1.0" not in (await metrics(client)):  # noqa: ASYNC110 - as `until`
            await asyncio.sleep(0)  # let the other begin
        refused = await ask(ADMIN, body)
        assert refused.problem == "too-many-requests"
        assert (await ask(OTHER, body)).status == 200
        assert (await slow).problem in {"query-costly", "query-invalid"}

"""The facade's bounds: bodies, headers, transactions and reads under way, memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.bounds import Budget, Limiter, Reservation
from streamydb.facade.ports import LogPosition
from streamydb.facade.problems import ProblemError
from streamydb.facade.result_batch import position_of
from streamydb.facade.results import ResultIndex
from streamydb.limits import LIMITS, TRANSACTION_BYTES_MAX
from streamydb.records import decode_result
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase
from streamydb.verify.oracle.core import Oracle


def connect(database: MemoryDatabase, address: str = "127.0.0.1", **limits: Any) -> InProcess:
    settings = FacadeSettings(**limits)
    app = create_app(database.model, database.log, database.changes, settings)
    return InProcess(app, address=address)


async def settle(turns: int = 200) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@scenario
async def test_a_client_has_its_own_bound_of_transactions() -> None:
    database = MemoryDatabase()
    database.executing = False
    settings = FacadeSettings(in_flight_max=3, client_in_flight_max=2)
    app = create_app(database.model, database.log, database.changes, settings)
    one, two, three = (InProcess(app, address=f"192.0.2.{n}") for n in range(3))
    async with one:
        waiting = [asyncio.create_task(one.request("PUT", "/v1/kv/a", b"1")) for _ in range(2)]
        await until(lambda: len(database.log.records) == 2)
        mine = await one.request("PUT", "/v1/kv/a", b"1")
        assert (mine.status, mine.problem) == (429, "too-many-requests")
        assert mine.headers["retry-after"] == "1"
        waiting.append(asyncio.create_task(two.request("PUT", "/v1/kv/a", b"1")))
        await until(lambda: len(database.log.records) == 3)
        others = await three.request("PUT", "/v1/kv/a", b"1")
        assert (others.status, others.problem) == (503, "overloaded")
        assert others.headers["retry-after"] == "1"
        assert len(database.log.records) == 3
        database.execute()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
        database.executing = True
        assert (await three.request("PUT", "/v1/kv/a", b"1")).status == 200


@scenario
async def test_a_timeout_gives_its_place_back() -> None:
    database = MemoryDatabase()
    database.executing = False
    async with connect(database, in_flight_max=1, verdict_timeout_s=0.01) as client:
        for _ in range(3):
            answer = await client.request("PUT", "/v1/kv/a", b"1")
            assert answer.problem == "verdict-unknown"
        assert not database.log.index._waiting


@scenario
async def test_waiting_reads_are_bounded() -> None:
    database = MemoryDatabase()
    database.resolving = False
    async with connect(database, waiters_max=2, poll_s=0.001) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        waiting = [asyncio.create_task(client.request("GET", "/v1/kv/a")) for _ in range(2)]
        await until(lambda: database.log.asks >= 1)
        await settle()
        answer = await client.request("GET", "/v1/kv/a")
        assert (answer.status, answer.problem) == (503, "overloaded")
        assert (await client.request("GET", "/v1/kv/a?consistency=snapshot")).status == 404
        database.resolve()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}


@scenario
async def test_requests_are_bounded() -> None:
    database = MemoryDatabase()
    database.executing = False
    async with connect(database, requests_max=1) as client:
        waiting = asyncio.create_task(client.request("PUT", "/v1/kv/a", b"1"))
        await until(lambda: len(database.log.records) == 1)
        answer = await client.request("GET", "/v1/limits")
        assert (answer.status, answer.problem) == (503, "overloaded")
        database.executing = True
        database.run()
        assert (await waiting).status == 200
        assert (await client.request("GET", "/v1/limits")).status == 200


@pytest.mark.fault(14, "a body beyond the limit", "413")
@pytest.mark.parametrize(
    ("method", "target"), [("PUT", "/v1/kv/a"), ("POST", "/v1/transactions"), ("POST", "/v1/read")]
)
@pytest.mark.parametrize("declared", [True, False])
@scenario
async def test_bodies_are_bounded(method: str, target: str, *, declared: bool) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        body = b'"' + b"x" * TRANSACTION_BYTES_MAX + b'"'
        headers = {} if declared else {"content-length": "1"}
        answer = await client.request(method, target, body, headers)
        assert (answer.status, answer.problem) == (413, "too-large")
    assert database.log.records == []


@scenario
async def test_bodies_of_all_requests_are_bounded() -> None:
    database = MemoryDatabase()
    database.executing = False
    async with connect(database, bodies_bytes_max=1_000) as client:
        body = b'"' + b"x" * 600 + b'"'
        waiting = asyncio.create_task(client.request("PUT", "/v1/kv/a", body))
        await until(lambda: len(database.log.records) == 1)
        answer = await client.request("PUT", "/v1/kv/b", body)
        assert (answer.status, answer.problem) == (503, "overloaded")
        database.executing = True
        database.run()
        assert (await waiting).status == 200
        assert (await client.request("PUT", "/v1/kv/b", body)).status == 200
        metrics = (await client.request("GET", "/metrics")).body
        assert b"streamydb_facade_body_bytes 0.0" in metrics


@scenario
async def test_a_body_that_does_not_come() -> None:
    database = MemoryDatabase()
    app = create_app(
        database.model, database.log, database.changes, FacadeSettings(body_timeout_s=0.02)
    )
    client = InProcess(app)
    async with client:
        sent: list[Any] = []

        async def never() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await app(client._scope("PUT", "/v1/kv/a", {}), never, send)
    assert sent[0]["status"] == 408
    assert b"/problems/body-timeout" in sent[1]["body"]


@scenario
async def test_headers_and_addresses_are_bounded() -> None:
    async with connect(MemoryDatabase()) as client:
        large = await client.request("GET", "/v1/kv/a", headers={"x": "y" * 20_000})
        assert (large.status, large.problem) == (431, "headers-too-large")
        many = {f"x-{n}": "y" for n in range(5_000)}
        assert (await client.request("GET", "/v1/kv/a", headers=many)).status == 431
        long = await client.request("GET", "/v1/kv?prefix=" + "p" * 9_000)
        assert (long.status, long.problem) == (414, "uri-too-long")


@scenario
async def test_the_limits_are_published() -> None:
    async with connect(MemoryDatabase(), streams_max=7) as client:
        limits = (await client.request("GET", "/v1/limits")).json()
    assert {name: limits[name] for name in LIMITS} == LIMITS
    assert limits["facade"]["streams_max"] == 7
    assert "tokens" not in limits["facade"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=50))
def test_a_limiter_counts(steps: list[tuple[str, bool]]) -> None:
    limiter = Limiter("things", 3, 2)
    inside: list[tuple[str, Any]] = []
    for client, enters in steps:
        mine = [item for item in inside if item[0] == client]
        if enters:
            block = limiter.enter(client)
            if len(mine) == 2 or len(inside) == 3:
                with pytest.raises(ProblemError):
                    block.__enter__()
            else:
                block.__enter__()
                inside.append((client, block))
        elif mine:
            inside.remove(mine[0])
            mine[0][1].__exit__(None, None, None)
        assert limiter.total == len(inside)
    assert len(limiter._clients) == len({client for client, _ in inside})


def test_a_budget_is_given_back() -> None:
    budget = Budget(10)
    one, two = Reservation(budget), Reservation(budget)
    one.grow(6)
    two.grow(4)
    with pytest.raises(ProblemError):
        two.grow(1)
    assert budget.held == 10
    two.end()
    assert budget.held == 6
    one.end()
    one.end()
    assert budget.held == 0


def result_of(oracle: Oracle, offset: int, txn_id: str, size: int = 0) -> bytes:
    """The result of a transaction with a padded payload."""
    raw = b'{"id": "%s"%s}' % (txn_id.encode(), b" " * size)
    return next(o.value or b"" for o in oracle.apply(raw, 0, offset, 1) if o.topic == "results")


def test_the_index_of_results_is_bounded() -> None:
    oracle, index = Oracle("db"), ResultIndex(20_000)
    for offset in range(500):
        value = result_of(oracle, offset, f"t{offset}")
        index.add(decode_result(value), value)
    assert index.held <= 20_000
    assert len(index._kept) == len(index._by_id) < 50
    assert index.of("t499") is not None
    assert index.of("t0") is None
    assert index.at(LogPosition(0, 0)) is None


def test_the_index_knows_repetitions_and_reuse() -> None:
    oracle, index = Oracle("db"), ResultIndex(1 << 20)
    for offset, size in enumerate((0, 0, 3, 0)):
        value = result_of(oracle, offset, "t", size)
        index.add(decode_result(value), value)
        index.add(decode_result(value), value)  # the topic may hold it twice
    assert [getattr(index.at(LogPosition(0, n)), "status", None) for n in range(5)] == [
        "committed", "committed", "rejected", "committed", None,
    ]  # fmt: skip
    first = index.of("t")
    assert first is not None
    assert (first.status, position_of(first)) == ("committed", LogPosition(0, 0))


@pytest.mark.fault(24, "a client leaves while its request waits", "nothing is left of it")
@scenario
async def test_who_leaves_waits_no_more() -> None:
    index = ResultIndex(1 << 20)
    tasks = [asyncio.create_task(index.wait(LogPosition(0, 0))) for _ in range(3)]
    await settle()
    tasks[0].cancel()
    await settle()
    value = result_of(Oracle("db"), 0, "t")
    index.add(decode_result(value), value)
    assert [(await task).id for task in tasks[1:]] == ["t", "t"]
    assert index._waiting == {}


@scenario
async def test_a_client_that_leaves_within_its_body_is_no_fault_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        stream = await client.stream("/v1/kv/a", {"content-length": "10"}, method="PUT")
        assert stream.status == 0
        stream.leave()
        await stream.end()
        assert (stream.status, b"body-timeout" in stream.data) == (408, True)
        assert (await client.request("GET", "/metrics")).body.count(b"body-timeout")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert database.log.records == []

"""A facade that ends: whoever waits hears of it at once, and every answer has its end."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

from simulator.event_loop import VirtualLoop, run_virtual
from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.console.traffic import Traffic
from streamydb.facade.endpoints import ENDPOINTS
from streamydb.facade.gate import _cut_off
from streamydb.facade.metrics import FacadeMetrics
from streamydb.facade.router import Router
from streamydb.facade.server import listen, make_server
from streamydb.facade.waiting import Shutdown
from streamydb.procedures.modules import compile_module
from streamydb.testing.database import wait_for
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase
from tests.support.seeds import seeds
from tests.support.served import running
from tests.support.workflows import VOTER

HEAD = " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
NEVER_S = 3_600


class Facade:
    """A facade that is served, and connections to it."""

    def __init__(self, server: Any, port: int, stack: ExitStack) -> None:
        self.server = server
        self.port = port
        self._stack = stack

    def send(self, text: str) -> socket.socket:
        """Connect and send something."""
        channel = self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port), 30))
        channel.sendall(text.encode())
        return channel


@contextmanager
def served(database: MemoryDatabase, shutdown_s: float = NEVER_S) -> Iterator[Facade]:
    """Serve a database; at the end of the context the server has ended by itself.

    By default it would wait an hour for answers that do not come.
    """
    limits = FacadeSettings(
        port=0, heartbeat_s=600, verdict_timeout_s=600, body_timeout_s=600, head_timeout_s=600
    )
    with listen(limits) as listener, ExitStack() as stack:
        server = make_server(limits, database.model, database.log, database.changes)
        server.config.timeout_graceful_shutdown = shutdown_s  # type: ignore[assignment]
        with running(server, listener) as port:
            wait_for(lambda: server.started, "the start")
            yield Facade(server, port, stack)
            server.should_exit = True


def rest(channel: socket.socket) -> bytes:
    """All that comes until the connection ends."""
    data = b""
    while part := channel.recv(65_536):
        data += part
    return data


def under_way(facade: Facade, count: int) -> None:
    wait_for(lambda: len(facade.server.server_state.tasks) == count, f"{count} requests")


def problem(answer: bytes) -> Any:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    return json.loads(body)


def test_all_who_wait_hear_of_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    database = MemoryDatabase()
    deploy = compile_module("voter", VOTER.encode()).record
    database.modules.put(VOTER.encode())
    database.log.records.append(json.dumps({"id": "d", "deploy": deploy}).encode())
    database.run()
    with served(database) as facade:
        feed = facade.send(f"GET /v1/changes?since=0{HEAD}\r\n")
        poll = facade.send(f"GET /v1/streams/voter.votes?wait=600{HEAD}\r\n")
        half = [
            facade.send(f"{method} {path}{HEAD}Content-Length: 9\r\n\r\n1")
            for method, path in (
                ("PUT", "/v1/kv/a"), ("POST", "/v1/transactions"), ("POST", "/v1/read"),
                ("POST", "/v1/query"), ("POST", "/v1/sql"),
            )
        ]  # fmt: skip
        chunks = facade.send(f"PUT /v1/kv/a{HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n")
        silent, head = facade.send(""), facade.send(f"GET /v1/limits{HEAD}")
        under_way(facade, 8)
        facade.server.should_exit = True
        told = rest(feed)
        assert told.endswith(b"\r\n0\r\n\r\n")
        last = told.rpartition(b"event: error\ndata: ")[2].partition(b"\n")[0]
        assert json.loads(last)["type"] == "/problems/not-ready"
        answer = rest(poll)
        assert answer.startswith(b"HTTP/1.1 200")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["records"] == []
        for channel in (*half, chunks):
            assert problem(rest(channel))["type"] == "/problems/body-timeout"
        assert (rest(silent), rest(head)) == (b"", b"")
    assert len(database.log.records) == 1
    assert "Traceback" not in caplog.text
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_what_is_cut_off_gets_an_answer_that_is_true(caplog: pytest.LogCaptureFixture) -> None:
    database = MemoryDatabase()
    database.executing = False
    with served(database, shutdown_s=0.05) as facade:
        write = facade.send(f"PUT /v1/kv/a{HEAD}Content-Length: 1\r\n\r\n1")
        wait_for(lambda: len(database.log.records) == 1, "a transaction")
        read = facade.send(f"GET /v1/kv/a?min_version=1{HEAD}\r\n")
        under_way(facade, 2)
        facade.server.should_exit = True
        assert problem(rest(write))["type"] == "/problems/verdict-unknown"
        assert problem(rest(read))["type"] == "/problems/not-ready"
    assert "Traceback" not in caplog.text


def test_nothing_that_may_have_been_appended_is_said_to_be_none() -> None:
    router = Router(ENDPOINTS, FacadeMetrics(), Traffic(1))
    uncertain = set()
    for endpoint in ENDPOINTS:
        path = re.sub("{.*}", "a", endpoint.path)
        route = router.find({"method": endpoint.method, "path": path})
        if _cut_off(route).problem.uncertain:
            uncertain.add((endpoint.method, endpoint.path))
    assert uncertain == {
        ("PUT", "/v1/kv/{key}"), ("DELETE", "/v1/kv/{key}"), ("POST", "/v1/transactions"),
        ("POST", "/v1/sql"),
    }  # fmt: skip


@scenario
async def test_a_verdict_that_does_not_come_before_the_end_is_told_where_to_ask_for() -> None:
    database = MemoryDatabase()
    database.executing = False
    app = create_app(database.model, database.log, database.changes)
    async with InProcess(app) as client:
        waiting = asyncio.create_task(client.request("PUT", "/v1/kv/a", b"1"))
        await until(lambda: bool(database.log.records))
        for wait in app.ending._waits:
            wait._left_s = 0
        app.ending.begin()
        answer = await waiting
        assert answer.problem == "verdict-unknown"
        assert answer.headers["location"].endswith("?record=0:0")


@scenario
async def test_waits_are_shortened_and_never_made_longer() -> None:
    ending = Shutdown()

    async def waits(seconds: float, left_s: float = 0.0) -> str:
        try:
            async with ending.timeout(seconds, left_s):
                await asyncio.Event().wait()
        except TimeoutError:
            return "over"
        return "never"

    patient = [asyncio.create_task(waits(NEVER_S)), asyncio.create_task(waits(0.01, NEVER_S))]
    async with ending.timeout(NEVER_S, NEVER_S):
        await asyncio.wait(patient[1:])
        ending.begin()
        assert await asyncio.gather(*patient) == ["over", "over"]
    assert await waits(NEVER_S) == "over"
    assert ending.begun
    assert not ending._waits


@scenario
async def test_each_wait_ends_at_its_time_whichever_came_first() -> None:
    ending = Shutdown()

    async def waits(seconds: float) -> None:
        async with ending.timeout(NEVER_S), ending.timeout(seconds):
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(waits(each)) for each in (0.03, NEVER_S, 0.01, 0.0, 0.02)]
    left = tasks.pop(1)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [TimeoutError] * 4
    assert len(ending._waits) == 2
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert not ending._waits


class Wait(NamedTuple):
    """A block: when it begins, how long its work and its wait take, what a shutdown leaves it."""

    begins_s: float
    works_s: float
    waits_s: float
    left_s: float

    def expected(self, shutdown_s: float) -> tuple[float, bool]:
        """When it is over, and whether by the end of its wait."""
        ends_s = self.begins_s + self.waits_s
        ends_s = min(ends_s, max(self.begins_s, shutdown_s) + self.left_s)
        done_s = self.begins_s + self.works_s
        return min(done_s, ends_s), ends_s < done_s


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_any_waits_end_at_their_times(seed: int) -> None:
    dice, ending = random.Random(seed), Shutdown()
    # Work alone takes half a second more than some seconds: it never ends when a wait does.
    shutdown_s = dice.randrange(100)
    drawn = [
        Wait(*(dice.randrange(100) + part for part in (0, 0.5, 0, 0)))
        for _ in range(dice.choice([1, 3, 40]))
    ]

    async def over(wait: Wait, loop: VirtualLoop) -> tuple[float, bool]:
        await asyncio.sleep(wait.begins_s)
        late = False
        try:
            async with ending.timeout(wait.waits_s, wait.left_s):
                await asyncio.sleep(wait.works_s)
        except TimeoutError:
            late = True
        return round(loop.time(), 3), late

    async def run(loop: VirtualLoop) -> list[tuple[float, bool]]:
        loop.call_at(shutdown_s, ending.begin)
        return await asyncio.gather(*(over(wait, loop) for wait in drawn))

    assert run_virtual(run) == [wait.expected(shutdown_s) for wait in drawn]
    assert not ending._waits


@scenario
async def test_who_cancels_a_task_at_the_end_of_its_wait_is_heard() -> None:
    ending = Shutdown()

    async def wait() -> None:
        async with ending.timeout(NEVER_S):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    for each in tuple(ending._waits):
        each.end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

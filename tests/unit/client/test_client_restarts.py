"""A facade that restarts, slowly, within a client's timeout: only the time ends a call."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from streamydb.client import (
    AsyncClient,
    Client,
    ConnectionLostError,
    NotConnectedError,
    Options,
    OutcomeUnknownError,
    UnexpectedAnswerError,
    View,
    connect_async,
)
from streamydb.client import connect as connect_to
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.blocking.http import HttpTransport
from streamydb.client.connections import HttpOptions
from streamydb.client.session import Session
from streamydb.facade import FacadeSettings
from streamydb.testing.clients import MemoryHost
from streamydb.testing.database import wait_for
from streamydb.testing.memory import MemoryDatabase
from tests.support.served import Served, serving

DOWN_S = 29.0
URL = HttpOptions("http://facade.test")


def no_connection(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


def no_answer(_: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("reset by peer")


def status(code: int, **headers: str) -> Callable[[httpx.Request], httpx.Response]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: httpx.Response(code, headers=named)


TROUBLES: dict[str, Callable[[httpx.Request], httpx.Response]] = {
    "refused": no_connection,
    "reset": no_answer,
    "429": status(429),
    "502": status(502),
    "503": status(503, Retry_After="2"),
    "504": status(504),
}


class Facade:
    """Answers of a facade that is away for a time; the clock is moved by pauses only.

    Attributes:
        now_s: the time.
        requests: when each came.
        bodies: those of transactions.
    """

    def __init__(self, away_s: float, trouble: Callable[[httpx.Request], httpx.Response]) -> None:
        self.now_s = 0.0
        self.requests: list[float] = []
        self.bodies: list[bytes] = []
        self._away_s, self._trouble = away_s, trouble

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(self.now_s)
        if request.method == "POST" and request.url.path == "/v1/transactions":
            self.bodies.append(request.read())
        if self.now_s < self._away_s:
            return self._trouble(request)
        if request.url.path == "/v1/read":
            entry = {"key": "k", "value": 1, "version": 1, "ts_ms": 1}
            return httpx.Response(200, json={"seq": 1, "entries": {"k": entry}})
        txn_id = json.loads(self.bodies[-1])["id"] if request.method == "POST" else "t"
        named: dict[str, Any] = {
            "id": txn_id,
            "seq": 2,
            "ts_ms": 1,
            "status": "committed",
            "reads": {},
        }
        source = {"partition": 0, "offset": 1}
        return httpx.Response(200, json={**named, "failed": [], "code": None, "source": source})

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    async def pause_async(self, seconds: float) -> None:
        self.now_s += seconds

    def session(self, **options: Any) -> Session:
        return Session(Options(**options), clock=lambda: self.now_s)

    def blocking(self, **options: Any) -> Client:
        transport = HttpTransport(URL, httpx.MockTransport(self))
        return Client(transport, self.session(**options), self.pause)

    def call(self, driver: str, what: str, **options: Any) -> Any:
        """Do something through a driver."""

        def increment(view: Any) -> Any:
            view.put("k", view.get("k") + 1)

        async def increment_async(view: Any) -> Any:
            view.put("k", await view.get("k") + 1)

        if driver == "blocking":
            client = self.blocking(**options)
            calls = {
                "read": lambda: client.get("k"),
                "write": lambda: client.atomic("t").put("k", 1).commit().seq,
                "run": lambda: client.run(increment),
            }
            called: Any = calls[what]
            return called()

        async def call() -> Any:
            transport = AsyncHttpTransport(URL, httpx.MockTransport(self))
            async with AsyncClient(transport, self.session(**options), self.pause_async) as client:
                if what == "read":
                    return await client.get("k")
                if what == "write":
                    return (await client.atomic("t").put("k", 1).commit()).seq
                return await client.run(increment_async)

        return asyncio.run(call())


DRIVERS = pytest.mark.parametrize("driver", ["blocking", "awaiting"])


@pytest.mark.fault(
    46, "refused, reset, 429, 502, 503, 504 for 29 of 30 s, a virtual clock", "every call succeeds"
)
@DRIVERS
@pytest.mark.parametrize("what", ["read", "write", "run"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_call_outlasts_a_slow_restart(trouble: str, what: str, driver: str) -> None:
    facade = Facade(DOWN_S, TROUBLES[trouble])
    assert facade.call(driver, what) == {"read": 1, "write": 2, "run": None}[what]
    assert DOWN_S <= facade.now_s <= 30
    assert len(facade.requests) > 8
    assert len(set(facade.bodies)) == (what != "read")  # the same bytes each time
    pauses = [b - a for a, b in zip(facade.requests, facade.requests[1:], strict=False) if b > a]
    assert max(pauses) <= (3 if trouble == "503" else 1)
    assert (min(pauses[:-1]) >= 2) == (trouble == "503")  # as long as it asks


@DRIVERS
def test_when_the_time_ends_it_is_told_what_is_known(driver: str) -> None:
    for trouble, what, expected in (
        ("refused", "read", NotConnectedError),
        ("refused", "write", NotConnectedError),  # certainly not in the log
        ("reset", "read", ConnectionLostError),
        ("reset", "write", OutcomeUnknownError),
        ("503", "read", UnexpectedAnswerError),
        ("503", "run", UnexpectedAnswerError),
    ):
        facade = Facade(1_000, TROUBLES[trouble])
        with pytest.raises(expected):
            facade.call(driver, what, timeout_s=7)
        assert facade.now_s == pytest.approx(7)


def test_at_the_end_the_verdict_is_looked_for_and_nothing_is_sent() -> None:
    """The first answer is lost, then appends fail: the verdict may be there nevertheless."""
    facade = Facade(0, no_answer)
    troubles: Iterator[Callable[[httpx.Request], httpx.Response]] = iter([no_answer])

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return facade(request)
        facade.requests.append(facade.now_s)
        return next(troubles, no_connection)(request)

    client = Client(
        HttpTransport(URL, httpx.MockTransport(handle)), facade.session(timeout_s=5), facade.pause
    )
    assert client.atomic("t").put("k", 1).commit().seq == 2
    assert facade.requests[-1] == facade.now_s == pytest.approx(5)


def test_the_last_second_is_used_and_nothing_is_appended_after_the_time() -> None:
    for _ in range(20):
        facade = Facade(5.85, no_connection)
        assert facade.call("blocking", "write", timeout_s=6) == 2
    facade = Facade(6, no_connection)
    with pytest.raises(NotConnectedError):
        facade.call("blocking", "write", timeout_s=6)
    assert max(facade.requests) < 6


def test_what_never_passes_is_told_at_once() -> None:
    """The wrong address: somebody else answers, who does not pass anything on."""
    for code in (301, 400, 404, 405):
        facade = Facade(1_000, status(code))
        with pytest.raises(UnexpectedAnswerError):
            facade.call("blocking", "write")
        assert facade.now_s == 0


def test_a_machine_that_is_gone_does_not_take_all_the_time() -> None:
    waits: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        raise httpx.ReadTimeout("silence")

    facade = Facade(0, no_answer)
    client = Client(HttpTransport(URL, httpx.MockTransport(handle)), facade.session(), facade.pause)
    with pytest.raises(OutcomeUnknownError):
        client.put("k", 1)
    assert max(waits) <= 15
    assert len(waits) > 8


def test_a_time_of_day_in_retry_after_counts_from_the_answer() -> None:
    date = {"Date": "Wed, 21 Oct 2015 07:28:00 GMT"}
    later = {**date, "Retry_After": "Wed, 21 Oct 2015 07:28:09 GMT"}
    for headers, least in ((later, 9), ({**date, "Retry_After": "soon"}, 0)):
        facade = Facade(0.001, status(503, **headers))
        assert facade.call("blocking", "read") == 1
        assert least <= facade.now_s <= least + 1


@pytest.mark.fault(46, "Kafka is away for many attempts, both transports", "every call succeeds")
def test_a_log_that_is_away_for_long(connect: Callable[..., Any], host: MemoryHost) -> None:
    left = [0]

    def count_down() -> float:
        left[0] -= 1
        host.database.log.refusing = left[0] > 0
        return 0.5

    client = connect(session=Session(Options(timeout_s=600), host.faults.clock, count_down))
    calls: tuple[Callable[[], Any], ...] = (
        lambda: client.put("n", 1).seq,
        lambda: client.get("n"),
        lambda: client.run(increment),
        lambda: client.atomic().add("n", 1).read("n").commit().reads["n"],
    )
    for expected, call in zip((1, 1, 2, 3), calls, strict=True):
        left[0], host.database.log.refusing = 20, True
        assert call() == expected
        assert left[0] == 0
    assert len(host.database.log.records) == 3


class Restarting:
    """A facade on a fixed port over one database, that is stopped and started again.

    Attributes:
        url: where it is served.
        database: outlives the facades.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.database = MemoryDatabase()
        self._stack = stack
        self._running = ExitStack()
        self.served: Served = self._start(0)
        self.url = self.served.url
        self._port = int(self.url.rpartition(":")[2])

    def _start(self, port: int) -> Served:
        running = serving(FacadeSettings(port=port), self.database)
        self.served = self._stack.enter_context(self._running).enter_context(running)
        return self.served

    def restart(self, down_s: float) -> None:
        """Cut all connections, be away, be there again."""
        self.served.cut()
        self._running.close()
        back_s = time.monotonic() + down_s
        wait_for(lambda: time.monotonic() > back_s, "the end of the break")
        self._start(self._port)


@contextmanager
def restarting(down_s: float) -> Iterator[Restarting]:
    """A facade that restarts while the body runs."""
    with ExitStack() as stack:
        facade = Restarting(stack)

        def restart() -> None:
            wait_for(lambda: len(facade.database.log.records) > 5, "calls under way")
            facade.restart(down_s)

        thread = threading.Thread(target=restart)
        thread.start()
        try:
            yield facade
        finally:
            thread.join()


def increment(view: View) -> int:
    value: int = view.get("n", 0) + 1
    view.put("n", value)
    return value


@pytest.mark.fault(
    46, "a served facade is away for 6 s in the middle of calls",
    "all calls succeed, each once",
)  # fmt: skip
def test_calls_go_on_over_real_restarts() -> None:
    taken: list[int] = []
    added = 0
    with restarting(6) as facade, connect_to(facade.url) as client, client.watch("n") as watch:
        ends = time.monotonic() + 8
        while time.monotonic() < ends:
            taken.append(client.run(increment))
            client.atomic().add("m", 1).commit()
            added += 1
        assert taken == list(range(1, len(taken) + 1))
        assert (client.get("n"), client.get("m")) == (len(taken), added)
        assert [next(watch).value for _ in taken] == taken


def test_the_same_for_coroutines() -> None:
    async def increment_async(view: Any) -> int:
        value: int = await view.get("n", 0) + 1
        view.put("n", value)
        return value

    async def work(url: str) -> None:
        async with connect_async(url) as client:
            taken: list[int] = []
            ends = time.monotonic() + 7
            while time.monotonic() < ends:
                taken += await asyncio.gather(*(client.run(increment_async) for _ in range(3)))
            assert sorted(taken) == list(range(1, len(taken) + 1))
            assert await client.get("n") == len(taken)

    with restarting(5) as facade:
        asyncio.run(work(facade.url))

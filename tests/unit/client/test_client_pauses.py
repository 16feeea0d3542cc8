"""A client or watch that is closed during the pause before the next attempt ends at once.

The facade has no time for an hour, and the client would wait for as long.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest

from streamydb.client import (
    AsyncClient,
    Client,
    ClientError,
    ClosedError,
    Options,
    OutcomeUnknownError,
    Session,
)
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.blocking.http import HttpTransport
from streamydb.client.blocking.transports import complete
from streamydb.client.connections import HttpOptions
from streamydb.client.lifetimes import AsyncLifetime, Lifetime
from streamydb.testing.database import wait_for
from streamydb.testing.in_process import scenario, until

LONG: Final = 10_000.0
NOWHERE: Final = HttpOptions("http://127.0.0.1:9")
BUSY: Final = httpx.MockTransport(lambda _: httpx.Response(503, headers={"Retry-After": "3600"}))

pytestmark = pytest.mark.timeout(60)

CALLS: Final[dict[str, Callable[[Any], Any]]] = {
    "get": lambda client: client.get("a"),
    "put": lambda client: client.put("a", 1),
    "sql": lambda client: client.sql("select 1"),
    "stream": lambda client: next(client.stream("a.b")),
    "watch": lambda client: next(client.watch(since=0)),
    "start": lambda client: client.watch().__enter__(),
}
"""What pauses, by name; the same for coroutines by `_awaited`."""


def _awaited(name: str, client: Any) -> Any:
    given: dict[str, Callable[[], Any]] = {
        "stream": lambda: anext(client.stream("a.b")),
        "watch": lambda: anext(client.watch(since=0)),
        "start": lambda: client.watch().__aenter__(),
    }
    return given.get(name, lambda: CALLS[name](client))()


def _session() -> Session:
    return Session(Options(timeout_s=LONG, reconnect_s=LONG))


def _expected(name: str) -> type[ClientError]:
    return OutcomeUnknownError if name == "put" else ClosedError


class Caller:
    """A thread that makes a call."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.raised: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except (ClientError, StopIteration) as error:
            self.raised = error

    def ended(self) -> bool:
        self._thread.join(10)
        return not self._thread.is_alive()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_pauses_ends_with_its_client(name: str) -> None:
    client = Client(HttpTransport(NOWHERE, BUSY), _session())
    caller = Caller(lambda: CALLS[name](client))
    wait_for(lambda: bool(client._awaiting._lifetime.pauses), "a pause")
    client.close()
    assert caller.ended()
    assert type(caller.raised) is _expected(name)


def test_a_watch_that_pauses_ends_when_it_is_closed() -> None:
    client = Client(HttpTransport(NOWHERE, BUSY), _session())
    watch, other = client.watch(since=0), client.watch(since=0)
    caller, going_on = Caller(lambda: next(watch)), Caller(lambda: next(other))
    wait_for(lambda: len(client._awaiting._lifetime.pauses) == 2, "two pauses")
    watch.close()
    assert caller.ended()
    assert isinstance(caller.raised, StopIteration)
    assert len(client._awaiting._lifetime.pauses) == 1, "the other one goes on"
    client.close()
    assert going_on.ended()
    assert isinstance(going_on.raised, ClosedError)


@pytest.mark.parametrize("name", CALLS)
@scenario
async def test_the_same_for_tasks(name: str) -> None:
    client = AsyncClient(AsyncHttpTransport(NOWHERE, BUSY), _session())
    task = asyncio.ensure_future(_awaited(name, client))
    await until(lambda: bool(client._lifetime.pauses))
    async with asyncio.timeout(10):
        await client.close()
        with pytest.raises(_expected(name)):
            await task


@scenario
async def test_the_same_for_a_watch_of_tasks() -> None:
    client = AsyncClient(AsyncHttpTransport(NOWHERE, BUSY), _session())
    watch = client.watch(since=0)

    async def taken() -> list[Any]:
        return [change async for change in watch]

    task = asyncio.create_task(taken())
    await until(lambda: bool(client._lifetime.pauses))
    async with asyncio.timeout(10):
        await watch.close()
        assert await task == []
    assert not client._lifetime.pauses, "nothing is left behind"
    await client.close()


@pytest.mark.parametrize("since", [None, 0])
def test_a_closed_watch_is_not_entered(since: int | None) -> None:
    client = Client(HttpTransport(NOWHERE, BUSY), _session())
    watch = client.watch(since=since)
    watch.close()
    with pytest.raises(ClosedError, match="watch is closed"):
        watch.__enter__()
    assert list(watch) == []


def test_no_pause_begins_after_the_end() -> None:
    client = Lifetime("client")
    watch = client.within("watch")
    client.close()
    for each in (client, watch):
        with pytest.raises(ClosedError, match="client is closed"):
            complete(each.pause(LONG))


@scenario
async def test_a_pause_that_nobody_ends_lasts_as_long_as_it_is_meant_to() -> None:
    await AsyncLifetime("client").within("watch").pause(0.001)
    complete(Lifetime("client").within("watch").pause(0.001))

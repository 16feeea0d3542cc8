"""A client without a facade ends in time: its calls when Kafka does not answer, and its close."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import streamydb
from streamydb.client import (
    Client,
    ClientError,
    ClosedError,
    ConnectionLostError,
    Options,
    OutcomeUnknownError,
    Session,
)
from streamydb.client.blocking.transports import complete
from streamydb.client.portal import BlockingTransport, Portal
from streamydb.client.problems import LogUnavailableError, ReadModelBehindError
from streamydb.facade import FacadeSettings, direct
from streamydb.facade.direct import DirectTransport
from streamydb.testing.clients import MemoryHost
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryChanges

SLOW = FacadeSettings(append_timeout_s=600, read_timeout_s=600, verdict_timeout_s=600)
BRIEF = Options(timeout_s=0.05, backoff_s=0.001, backoff_max_s=0.002)

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "MARGIN_S", 0.1)


async def _for_ever(*_: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.usefixtures("_soon")
def test_an_append_without_an_answer_is_unknown_in_time() -> None:
    with MemoryHost(SLOW) as host, host.connect("direct", options=BRIEF) as client:
        stalled = host.do(asyncio.Event)
        host.database.log.stalled = stalled
        with pytest.raises(OutcomeUnknownError) as raised:
            client.put("a", 1)
        with pytest.raises(ReadModelBehindError):
            client.get("a")
        host.do(stalled.set)
        assert raised.value.send_again().seq == 1


@pytest.mark.usefixtures("_soon")
def test_a_search_without_an_end_is_given_up_in_time() -> None:
    with MemoryHost(SLOW) as host, host.connect("direct", options=BRIEF) as client:
        host.database.log.search = _for_ever  # type: ignore[assignment,method-assign]
        with pytest.raises(ConnectionLostError):
            client.verdict("a")


@pytest.mark.usefixtures("_soon")
def test_nothing_is_sent_before_there_is_a_connection() -> None:
    with MemoryHost(SLOW) as host, host.connect("direct", options=BRIEF) as client:
        log = host.database.log
        start, log.start = log.start, _for_ever  # type: ignore[method-assign]
        with pytest.raises(LogUnavailableError):
            client.put("a", 1)
        assert log.records == []
        assert client.get("a", consistency="snapshot") is None
        client.close()
        log.start = start  # type: ignore[method-assign]
        host.portal.call(host._direct.close())
        assert client_put(host) == 1


def client_put(host: MemoryHost) -> int:
    with host.connect("direct") as client:
        return client.put("a", 1).seq


class Closing:
    """A transport whose client is closed while an answer is under way."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.client: Any = None

    async def send(self, request: Any) -> Any:
        await self.inner.send(request)
        self.client.close()
        raise ConnectionLostError("it broke")

    async def close(self) -> None:
        """The host ends it."""


def test_what_was_sent_before_a_client_was_closed_is_unknown() -> None:
    with MemoryHost() as host, host.connect() as inner:
        transport: Any = Closing(inner._transport)
        transport.client = Client(transport, Session())
        with pytest.raises(OutcomeUnknownError):
            transport.client.put("a", 1)
        assert inner.get("a") == 1
        transport.client = Client(transport, Session())
        with pytest.raises(ClosedError):
            transport.client.get("a")


def test_what_is_under_way_when_a_client_without_a_facade_is_closed_is_unknown() -> None:
    database, raised = MemoryDatabase(), list[BaseException]()
    portal = Portal()
    stalled = portal.call(_made(asyncio.Event))
    database.log.stalled = stalled
    inner = DirectTransport(database.model, database.log, MemoryChanges(database.changes), SLOW)
    client = Client(BlockingTransport(portal, inner), Session())

    def put() -> None:
        try:
            client.put("a", 1)
        except ClientError as error:
            raised.append(error)

    waiting = portal.call(_made(asyncio.Event))
    append = database.log.append

    async def noted(*given: Any) -> Any:
        waiting.set()
        return await append(*given)

    database.log.append = noted  # type: ignore[assignment,method-assign]
    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    portal.call(waiting.wait())
    client.close()
    thread.join(30)
    assert [type(error) for error in raised] == [OutcomeUnknownError]


async def _made(function: Any) -> Any:
    return function()


def test_a_request_of_a_closed_connection_is_refused() -> None:
    client = streamydb.connect("http://127.0.0.1:9")
    complete(client._transport.close())
    for ask in (client.get, lambda key: next(client.watch(key, since=0))):
        with pytest.raises(ClosedError):
            ask("a")


def test_what_comes_while_a_portal_closes_is_refused() -> None:
    portal = Portal()
    ended = portal.loop.shutdown_asyncgens
    refused: list[BaseException] = []

    def call() -> None:
        try:
            portal.call(asyncio.sleep(0))
        except ClosedError as error:
            refused.append(error)

    late = threading.Thread(target=call, daemon=True)

    async def last() -> None:
        late.start()
        late.join(5)
        await ended()

    portal.loop.shutdown_asyncgens = last  # type: ignore[method-assign]
    portal.close()
    assert len(refused) == 1
    portal.close()


def test_all_is_closed_whatever_a_part_raises() -> None:
    database, closed = MemoryDatabase(), threading.Event()

    async def failed() -> None:
        raise OSError("it cannot be stopped")

    database.changes.stop = failed  # type: ignore[method-assign]
    transport = DirectTransport(database.model, database.log, database.changes, on_close=closed.set)
    portal = Portal()
    portal.call(transport._connected())
    blocking = BlockingTransport(portal, transport)
    with pytest.raises(OSError, match="cannot be stopped"):
        complete(blocking.close())
    assert closed.is_set()
    assert not database.log.running
    assert portal.loop.is_closed()
    complete(blocking.close())

"""A database in memory with clients of it, for tests: those of streamy-db, and yours.

    with MemoryHost() as host, host.connect() as client:
        client.put("a", 1)

Behind the clients is the facade's application, or the direct transport, over the database of
`streamydb.testing.memory`, whose stages can be stopped. `Faults` breaks connections.
`Awaited` runs a test that is written for threads on the client for coroutines.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

import httpx

from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.awaiting.transports import AsyncStream, AsyncTransport
from streamydb.client.awaiting.views import AsyncAtomic
from streamydb.client.awaiting.watches import AsyncWatch
from streamydb.client.blocking.client import Client
from streamydb.client.blocking.http import HttpTransport
from streamydb.client.blocking.transports import Stream, Transport
from streamydb.client.connections import HttpOptions
from streamydb.client.errors import ConnectionLostError, NotConnectedError, OutcomeUnknownError
from streamydb.client.portal import BlockingTransport, Portal
from streamydb.client.requests import Event, Open, Request
from streamydb.client.session import Options, Session
from streamydb.facade.app import create_app
from streamydb.facade.auth import Tokens
from streamydb.facade.direct import DirectTransport
from streamydb.facade.settings import FacadeSettings
from streamydb.testing.in_process import EventStream, InProcess
from streamydb.testing.memory import MemoryChanges, MemoryDatabase

__all__ = ["Awaited", "Faults", "FaultyAsyncTransport", "FaultyTransport", "Kind", "MemoryHost"]

Kind: TypeAlias = Literal["http", "direct"]
_T = TypeVar("_T")
_PAUSE_S: Final = 0.001


class Faults:
    """Breaks connections: how many of the next requests and streams fail, and how.

    Attributes:
        refused: requests that are not sent.
        lost: requests whose answers are lost.
        cut: streams that are cut, each after the number of events given.
        sent: how many requests of each kind were performed.
        pauses: the pauses that clients wanted, in seconds.
        clock: seconds of a clock for which the pauses of the same thread or task are as long as
            they were meant to be, although nobody waits for them.
    """

    def __init__(self) -> None:
        """Break nothing."""
        self.refused = self.lost = 0
        self.cut: list[int] = []
        self.sent: Counter[str] = Counter()
        self.pauses: list[float] = []
        self._skipped: ContextVar[float] = ContextVar("skipped", default=0.0)

    def clock(self) -> float:
        """Return the time."""
        return time.monotonic() + self._skipped.get()

    def pause(self, seconds: float) -> None:
        """Note a pause, and make it short."""
        time.sleep(self._shortened(seconds))

    async def pause_async(self, seconds: float) -> None:
        """Note a pause, and make it short."""
        await asyncio.sleep(self._shortened(seconds))

    def _shortened(self, seconds: float) -> float:
        self.pauses.append(seconds)
        short = min(seconds, _PAUSE_S)
        self._skipped.set(self._skipped.get() + seconds - short)
        return short

    def before(self, request: Request[Any]) -> None:
        """Refuse a request, if it is to be."""
        if self.refused > 0:
            self.refused -= 1
            raise NotConnectedError("refused by a test")
        self.sent[type(request).__name__] += 1

    def after(self) -> None:
        """Lose an answer, if it is to be."""
        if self.lost > 0:
            self.lost -= 1
            raise ConnectionLostError("lost by a test")

    def cutting(self) -> _Cut:
        """Return what cuts the stream that is opened now."""
        return _Cut(self.cut.pop(0) if self.cut else None)


class _Cut:
    """Cuts one stream after some events."""

    def __init__(self, left: int | None) -> None:
        """Let `left` events pass, all if it is None."""
        self._left = left

    def check(self) -> None:
        """Cut before anything is received."""
        if self._left == 0:
            raise ConnectionLostError("cut by a test")

    def pass_on(self, events: list[Event]) -> list[Event]:
        """Let events pass."""
        if self._left is None:
            return events
        passed = events[: self._left]
        self._left -= len(passed)
        return passed


class FaultyTransport:
    """A transport for threads with faults."""

    def __init__(self, inner: Transport, faults: Faults) -> None:
        """Break `inner`, which is not closed with this."""
        self._inner = inner
        self._faults = faults

    def send(self, request: Request[Any]) -> Any:
        """Perform a request."""
        self._faults.before(request)
        try:
            return self._inner.send(request)
        finally:
            self._faults.after()

    def open(self, request: Open) -> Stream:
        """Open a stream."""
        self._faults.before(request)
        return _FaultyStream(self._inner.open(request), self._faults.cutting())

    def close(self) -> None:
        """End."""


class _FaultyStream:
    def __init__(self, inner: Stream, cut: _Cut) -> None:
        self._inner = inner
        self._cut = cut

    def receive(self) -> list[Event]:
        self._cut.check()
        return self._cut.pass_on(self._inner.receive())

    def close(self) -> None:
        self._inner.close()


class FaultyAsyncTransport:
    """A transport for coroutines with faults."""

    def __init__(self, inner: AsyncTransport, faults: Faults) -> None:
        """Break `inner`, which is not closed with this."""
        self._inner = inner
        self._faults = faults

    async def send(self, request: Request[Any]) -> Any:
        """Perform a request."""
        self._faults.before(request)
        try:
            return await self._inner.send(request)
        finally:
            self._faults.after()

    async def open(self, request: Open) -> AsyncStream:
        """Open a stream."""
        self._faults.before(request)
        return _FaultyAsyncStream(await self._inner.open(request), self._faults.cutting())

    async def close(self) -> None:
        """End."""


class _FaultyAsyncStream:
    def __init__(self, inner: AsyncStream, cut: _Cut) -> None:
        self._inner = inner
        self._cut = cut

    async def receive(self) -> list[Event]:
        self._cut.check()
        return self._cut.pass_on(await self._inner.receive())

    async def close(self) -> None:
        await self._inner.close()


class MemoryHost:
    """A database in memory, served in a thread of its own to clients of any kind.

    Args:
        settings: the facade's limits.
        tokens: who may do what.
        database: another one than with the default settings.

    Attributes:
        database: its stages can be stopped; to let one go on, use `resume`.
        faults: breaks the connections of all clients.
        portal: the loop that it lives in.
    """

    def __init__(
        self, settings: FacadeSettings | None = None, tokens: Tokens | None = None,
        database: MemoryDatabase | None = None,
    ) -> None:
        """Build the facade; it begins to serve with `with`."""
        self.database = MemoryDatabase() if database is None else database
        self.faults = Faults()
        self.portal = Portal()
        self._settings = FacadeSettings() if settings is None else settings
        database = self.database
        self._facade = InProcess(
            create_app(database.model, database.log, database.changes, self._settings, tokens)
        )
        self._direct = DirectTransport(
            database.model, database.log, MemoryChanges(database.changes), self._settings
        )

    def __enter__(self) -> Self:
        """Begin to serve."""
        self.portal.call(self._facade.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End."""
        self.portal.call(self._direct.close())
        self.portal.call(self._facade.__aexit__(kind, error, traceback))
        self.portal.close()

    def resume(self, *, executing: bool = True, resolving: bool = True) -> None:
        """Let the stages of the database go on, and have them do what has piled up."""
        self.database.executing, self.database.resolving = executing, resolving
        self.do(self.database.run)

    def do(self, function: Callable[[], _T]) -> _T:
        """Call a function in the loop of the database."""

        async def called() -> _T:
            return function()

        return self.portal.call(called())

    def connect(
        self,
        kind: Kind = "http",
        *,
        options: Options | None = None,
        token: str | None = None,
        session: Session | None = None,
    ) -> Client:
        """Return a client for threads."""
        transport: Transport
        if kind == "http":
            options_http = HttpOptions("http://127.0.0.1:8080", token)
            transport = HttpTransport(options_http, _Network(self.portal, self._facade))
        else:
            transport = BlockingTransport(self.portal, self._direct, owner=False)
        session = session or Session(options or Options(), self.faults.clock)
        return Client(FaultyTransport(transport, self.faults), session, self.faults.pause)

    def connect_async(
        self,
        kind: Kind = "http",
        *,
        options: Options | None = None,
        token: str | None = None,
        session: Session | None = None,
    ) -> AsyncClient:
        """Return a client for coroutines, a direct one for those in the host's loop only."""
        transport: AsyncTransport
        if kind == "http":
            options_http = HttpOptions("http://127.0.0.1:8080", token)
            transport = AsyncHttpTransport(options_http, _Network(self.portal, self._facade))
        else:
            transport = self._direct
        session = session or Session(options or Options(), self.faults.clock)
        faulty = FaultyAsyncTransport(transport, self.faults)
        return AsyncClient(faulty, session, self.faults.pause_async)


class _Network(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Carries httpx's requests to an application in the loop of a portal, streams too."""

    def __init__(self, portal: Portal, facade: InProcess) -> None:
        self._portal = portal
        self._facade = facade

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Serve a request of a thread."""
        return self._portal.call(self._serve(request, request.read()))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Serve a request of a coroutine, whatever its loop."""
        serving = self._serve(request, await request.aread())
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(serving, self._portal.loop)
        )

    async def _serve(self, request: httpx.Request, body: bytes) -> httpx.Response:
        target = request.url.raw_path.decode()
        headers = {name.lower(): value for name, value in request.headers.items()}
        if request.url.path == "/v1/changes":
            stream = await self._facade.stream(target, headers)
            streamed = _Body(self._portal, stream)
            return httpx.Response(stream.status, headers=stream.headers, stream=streamed)
        answer = await self._facade.request(request.method, target, body, headers)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a stream, as it comes."""

    def __init__(self, portal: Portal, stream: EventStream) -> None:
        self._portal = portal
        self._stream = stream
        self._given = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield what has come."""
        while chunk := self._portal.call(self._more()):
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield what has come."""
        while True:
            future = asyncio.run_coroutine_threadsafe(self._more(), self._portal.loop)
            chunk = await asyncio.wrap_future(future)
            if not chunk:
                return
            yield chunk

    async def _more(self) -> bytes:
        stream = self._stream
        while len(stream.data) == self._given and not stream.ended:
            await stream.news()
        chunk = stream.data[self._given :]
        self._given += len(chunk)
        return chunk

    def close(self) -> None:
        """Drop the connection."""
        self._portal.loop.call_soon_threadsafe(self._stream.leave)

    async def aclose(self) -> None:
        """Drop the connection."""
        self.close()


class Awaited:
    """A client for coroutines with the methods of the one for threads.

    Its calls run in a portal's loop, functions under `run` in threads.
    """

    def __init__(self, portal: Portal, inner: Any) -> None:
        """Wrap an `AsyncClient`, or what one of its methods returned."""
        self._portal = portal
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """Return an attribute, a method made blocking."""
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **named: Any) -> Any:
            if name == "run":
                args = (self._in_thread(args[0]), *args[1:])
            return self._given(value(*args, **named))

        return call

    def __enter__(self) -> Self:
        """Enter the inner one."""
        self._given(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the inner one."""
        self._given(self._inner.__aexit__(*error))

    def __iter__(self) -> Self:
        """Return this."""
        return self

    def __next__(self) -> Any:
        """Return the next item of the inner one."""
        return self._given(self._inner.__anext__())

    def _given(self, value: Any) -> Any:
        """Return what a method returned, made blocking."""
        if inspect.isawaitable(value):
            try:
                return self._given(self._portal.call(_awaited(value)))
            except OutcomeUnknownError as error:
                ask, send_again = error.ask, error.send_again
                error.ask = lambda: self._given(ask())
                error.send_again = lambda: self._given(send_again())
                raise
        if inspect.isasyncgen(value):
            return self._items(value)
        if isinstance(value, AsyncAtomic | AsyncWatch):
            return Awaited(self._portal, value)
        return value

    def _items(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()
        while (item := self._portal.call(_awaited(anext(items, end)))) is not end:
            yield item

    def _in_thread(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function for the view of coroutines of one for that of threads."""

        async def called(view: Any) -> Any:
            return await asyncio.to_thread(function, Awaited(self._portal, view))

        return called


async def _awaited(value: Any) -> Any:
    return await value

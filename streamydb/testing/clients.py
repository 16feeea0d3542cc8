"""A database in memory with clients of it, for tests: those of streamy-db, and yours.

    with MemoryHost() as host, host.connect() as client:
        client.put("a", 1)

Behind the clients is the facade's application, or the direct transport, over the database of
`streamydb.testing.memory`, whose stages can be stopped. `testing.faults` breaks connections.
`Awaited` runs a test that is written for threads on the client for coroutines.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal, Self, TypeAlias, TypeVar

import httpx

from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.http import AsyncHttpTransport
from streamydb.client.awaiting.transports import AsyncTransport
from streamydb.client.awaiting.views import AsyncAtomic, AsyncRecords, AsyncWatch
from streamydb.client.blocking.client import Client
from streamydb.client.blocking.http import HttpTransport
from streamydb.client.connections import HttpOptions
from streamydb.client.errors import OutcomeUnknownError
from streamydb.client.portal import BlockingTransport, Portal
from streamydb.client.session import Options, Session
from streamydb.facade.app import create_app
from streamydb.facade.auth import Tokens
from streamydb.facade.direct import DirectTransport
from streamydb.facade.settings import FacadeSettings
from streamydb.testing.faults import Faults, FaultyTransport
from streamydb.testing.in_process import EventStream, InProcess
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryChanges

Kind: TypeAlias = Literal["http", "direct"]
_T = TypeVar("_T")


class MemoryHost:
    """A database in memory, served in a thread of its own to clients of any kind.

    Attributes:
        database: its stages can be stopped; to let one go on, use `resume`.
        faults: breaks the connections of all clients.
        portal: the loop that it lives in.
    """

    def __init__(
        self,
        settings: FacadeSettings | None = None,
        tokens: Tokens | None = None,
        database: MemoryDatabase | None = None,
    ) -> None:
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
        self.portal.call(self._facade.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.portal.call(self._direct.close())
        self.portal.call(self._facade.__aexit__(*error))
        self.portal.close()

    def resume(self, *, executing: bool = True, resolving: bool = True) -> None:
        """Let the stages of the database go on, and have them do what has piled up."""
        self.database.executing, self.database.resolving = executing, resolving
        self.do(self.database.run)

    def do(self, function: Callable[[], _T]) -> _T:
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
        session = session or Session(options or Options(), self.faults.clock)
        transport: AsyncTransport = BlockingTransport(self.portal, self._direct, owner=False)
        if kind == "http":
            transport = self._http(HttpTransport, token, session)
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
        session = session or Session(options or Options(), self.faults.clock)
        transport: AsyncTransport = self._direct
        if kind == "http":
            transport = self._http(AsyncHttpTransport, token, session)
        faulty = FaultyTransport(transport, self.faults)
        return AsyncClient(faulty, session, self.faults.pause_async)

    def _http(
        self, transport: type[AsyncHttpTransport], token: str | None, session: Session
    ) -> AsyncHttpTransport:
        network: Any = _Network(self.portal, self._facade)
        options = HttpOptions("http://127.0.0.1:8080", token)
        return transport(options, network, session.history)


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
            streamed = _StreamedBody(self._portal, stream)
            return httpx.Response(stream.status, headers=stream.headers, stream=streamed)
        answer = await self._facade.request(request.method, target, body, headers)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)


class _StreamedBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of a stream, as it comes."""

    def __init__(self, portal: Portal, stream: EventStream) -> None:
        self._portal = portal
        self._stream = stream
        self._given = 0

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._portal.call(self._more()):
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
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
        self._portal.loop.call_soon_threadsafe(self._stream.leave)

    async def aclose(self) -> None:
        self.close()


class Awaited:
    """A client for coroutines with the methods of the one for threads.

    Its calls run in a portal's loop, functions under `run` in threads.
    """

    def __init__(self, portal: Portal, inner: Any) -> None:
        self._portal = portal
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **named: Any) -> Any:
            if name == "run":
                # A function for the view of coroutines of one for that of threads.
                function = args[0]

                async def called(view: Any) -> Any:
                    return await asyncio.to_thread(function, Awaited(self._portal, view))

                args = (called, *args[1:])
            return self._given(value(*args, **named))

        return call

    def __enter__(self) -> Self:
        self._given(self._inner.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._given(self._inner.__aexit__(*error))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return self._given(self._inner.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def _given(self, value: Any) -> Any:
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
        if isinstance(value, AsyncAtomic | AsyncRecords | AsyncWatch):
            return Awaited(self._portal, value)
        return value

    def _items(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()
        while (item := self._portal.call(_awaited(anext(items, end)))) is not end:
            yield item


async def _awaited(value: Any) -> Any:
    return await value

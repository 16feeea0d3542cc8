"""The HTTP transport: httpx, with connections that are kept and reused."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any, ClassVar
from weakref import WeakSet, ref

import httpx

from streamydb.client import connections
from streamydb.client.connections import HttpOptions
from streamydb.client.errors import ConnectionLostError
from streamydb.client.http import (
    EventParser,
    HttpAnswer,
    Tags,
    build,
    check_tag,
    decode,
    encode,
    encode_open,
    raise_for_status,
    wire_of,
)
from streamydb.client.requests import Event, Open, Request
from streamydb.client.session import Generation


class AsyncHttpStream:
    """An event stream; see `AsyncStream`."""

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer
        self._chunks = self._bytes()
        self._parser = EventParser()

    async def receive(self) -> list[Event]:
        """Wait for the next bytes; return the events that they complete."""
        try:
            chunk = await self._next()
        except (httpx.RequestError, httpx.StreamError) as error:
            raise connections.lost(error) from error
        if chunk is None:
            raise ConnectionLostError("The stream of changes has ended.")
        return self._parser.feed(chunk)

    async def close(self) -> None:
        connections.wake(self._answer)
        await self._end()

    def _bytes(self) -> Any:
        return self._answer.aiter_bytes()

    async def _next(self) -> bytes | None:
        return await anext(self._chunks, None)

    async def _end(self) -> None:
        await self._answer.aclose()


class AsyncHttpTransport:
    """Performs requests over HTTP; see `AsyncTransport`."""

    stream: ClassVar[type[AsyncHttpStream]] = AsyncHttpStream

    def __init__(
        self,
        options: HttpOptions,
        transport: httpx.AsyncBaseTransport | None = None,
        history: Generation | None = None,
    ) -> None:
        arguments = options.arguments(network=transport is None)
        self._begin(httpx.AsyncClient(**arguments, transport=transport), history)

    def _begin(self, client: Any, history: Generation | None) -> None:
        self._history = Generation() if history is None else history
        self._client = client
        self._streams: set[ref[AsyncHttpStream]] = set()
        self._tags = Tags()
        self._wires: WeakSet[Any] = WeakSet()

    async def send(self, request: Request[Any]) -> Any:
        try:
            sent = build(self._client, encode(request), next(self._tags), self._history)
            answer = await self._send(sent)
        except httpx.RequestError as error:
            raise connections.fault(error) from error
        except RuntimeError:
            connections.raise_if_closed(self._client)
            raise
        self._take(answer)
        whole = HttpAnswer(answer.status_code, answer.headers, answer.content)
        self._history.hear(*whole)
        return decode(request, whole)

    async def open(self, request: Open) -> AsyncHttpStream:
        async with AsyncExitStack() as stack:
            try:
                tag = next(self._tags)
                sent = build(self._client, encode_open(request), tag, self._history)
                answer = await self._send(sent, stream=True)
                stream = self.stream(answer)
                stack.push_async_callback(stream.close)
                self._take(answer)
                if not answer.is_success:
                    await self._read(answer)
            except httpx.RequestError as error:
                raise connections.fault(error) from error
            except RuntimeError:
                connections.raise_if_closed(self._client)
                raise
            body = b"" if answer.is_success else answer.content
            whole = HttpAnswer(answer.status_code, answer.headers, body)
            self._history.hear(*whole)
            raise_for_status(whole)
            stack.pop_all()
        self._streams.add(ref(stream, self._streams.discard))
        return stream

    async def close(self) -> None:
        for known in tuple(self._streams):
            stream = known()
            if stream is not None:
                await stream.close()
        await self._end()

    async def _send(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        answer: httpx.Response | Awaitable[httpx.Response]
        answer = self._client.send(request, stream=stream)
        return answer if isinstance(answer, httpx.Response) else await answer

    async def _read(self, answer: httpx.Response) -> None:
        await answer.aread()

    async def _end(self) -> None:
        await self._client.aclose()

    def leave(self) -> None:
        """Let go of the connections, in a child of a fork: they are the parent's."""
        connections.abandon(self._wires)

    def _take(self, answer: httpx.Response) -> None:
        """Note the connection that an answer came on; refuse what is none to its request."""
        wire = wire_of(answer)
        if wire is not None:
            self._wires.add(wire)
        check_tag(answer)

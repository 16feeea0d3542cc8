"""The changes, and the records of a stream, as iterators for coroutines."""

from __future__ import annotations

from typing import Any, Self

from streamydb.client.awaiting.transports import AsyncStream, AsyncTransport, Perform, drive
from streamydb.client.errors import ClosedError
from streamydb.client.lifetimes import AsyncLifetime
from streamydb.client.requests import Change, Open, Pause, Receive, Request
from streamydb.client.watch_core import FollowedStream, Watching
from streamydb.records.emission import Emitted


class AsyncWatch:
    """The changes, as an iterator that connects again by itself; close it, or use `async with`.

    It ends when it is closed, also while somebody waits for the next change in another task.
    """

    def __init__(
        self, perform: Perform, transport: AsyncTransport, watching: Watching, within: AsyncLifetime
    ) -> None:
        self._others = perform
        self._transport = transport
        self._watching = watching
        self._stream: AsyncStream | None = None
        self._lifetime = AsyncLifetime("watch", within)

    @property
    def seq(self) -> int | None:
        """All changes up to it have been given; `watch(since=...)` goes on after it."""
        return self._watching.seq

    async def __aenter__(self) -> Self:
        self._lifetime.check()
        await drive(self._watching.start(), self._perform)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        try:
            return await drive(self._watching.next(), self._perform)
        except ClosedError:
            if self._lifetime.over:
                raise StopAsyncIteration from None
            raise

    async def close(self) -> None:
        """End; who waits for a change waits no longer."""
        self._lifetime.close()
        await self._leave()

    async def _perform(self, request: Request[Any]) -> Any:
        self._lifetime.check()
        stream = self._stream
        if isinstance(request, Pause):
            return await self._lifetime.pause(request.seconds)
        if isinstance(request, Open):
            return await self._open(request)
        if not isinstance(request, Receive) or stream is None:
            return await self._others(request)
        try:
            return await stream.receive()
        except Exception:
            self._lifetime.check()
            raise

    async def _open(self, request: Open) -> None:
        await self._leave()
        self._stream = await self._transport.open(request)
        if self._lifetime.over:  # meanwhile
            await self._leave()
            self._lifetime.check()

    async def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()


class AsyncRecords:
    """The records of a stream, as an iterator; a wait that is cut off does not end it."""

    def __init__(self, perform: Perform, following: FollowedStream) -> None:
        self._perform = perform
        self._following = following

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Emitted:
        record = await drive(self._following.next(), self._perform)
        if record is None:
            raise StopAsyncIteration
        return record

"""The changes as an iterator for coroutines."""

from __future__ import annotations

from typing import Any, Self

from streamydb.client.awaiting.driving import Perform, drive
from streamydb.client.awaiting.transports import AsyncStream, AsyncTransport
from streamydb.client.requests import Change, Open, Receive, Request
from streamydb.client.watch_core import Watching

__all__ = ["AsyncWatch"]


class AsyncWatch:
    """The changes, as an iterator that connects again by itself; close it, or use `async with`."""

    def __init__(
        self, perform: Perform, transport: AsyncTransport, watching: Watching
    ) -> None:
        """Nothing is opened yet."""
        self._others = perform
        self._transport = transport
        self._watching = watching
        self._stream: AsyncStream | None = None

    @property
    def seq(self) -> int | None:
        """All changes up to it have been given; `watch(since=...)` goes on after it."""
        return self._watching.seq

    async def __aenter__(self) -> Self:
        """Begin now."""
        await drive(self._watching.start(), self._perform)
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close."""
        await self.close()

    def __aiter__(self) -> Self:
        """Return the watch itself."""
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change."""
        return await drive(self._watching.next(), self._perform)

    async def close(self) -> None:
        """Close the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()

    async def _perform(self, request: Request[Any]) -> Any:
        if isinstance(request, Open):
            await self.close()
            self._stream = await self._transport.open(request)
            return None
        if isinstance(request, Receive) and self._stream is not None:
            return await self._stream.receive()
        return await self._others(request)

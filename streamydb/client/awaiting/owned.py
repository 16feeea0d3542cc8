"""Transports that belong to one process: a child of a fork makes its own, and its own streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from streamydb.client.awaiting.transports import AsyncStream, AsyncTransport
from streamydb.client.errors import ConnectionLostError
from streamydb.client.forks import AsyncOwned
from streamydb.client.requests import Event, Open, Request

_T = TypeVar("_T", bound=AsyncTransport)


class AsyncOwnedTransport:
    """A transport for each process that uses it, made at once here; see `AsyncTransport` and
    `Owned`.
    """

    def __init__(self, make: Callable[[], _T], leave: Callable[[_T], None] | None = None) -> None:
        self._owned = AsyncOwned(make, leave)
        self._owned.make()

    async def send(self, request: Request[Any]) -> Any:
        """Perform a request."""
        return await self._owned.get().send(request)

    async def open(self, request: Open) -> AsyncOwnedStream:
        """Open a stream of changes."""
        return AsyncOwnedStream(await self._owned.get().open(request))

    async def close(self) -> None:
        """End this process's; what another one has goes on."""
        transport = self._owned.made()
        if transport is not None:
            await transport.close()


class AsyncOwnedStream:
    """A stream of the process that opened it; see `AsyncStream`."""

    def __init__(self, stream: AsyncStream) -> None:
        self._owned: AsyncOwned[AsyncStream] = AsyncOwned(_of_another)
        self._owned.put(stream)

    async def receive(self) -> list[Event]:
        """Wait for events."""
        return await self._owned.get().receive()

    async def close(self) -> None:
        """End it, unless it is another process's."""
        stream = self._owned.made()
        if stream is not None:
            await stream.close()


def _of_another() -> NoReturn:
    raise ConnectionLostError("The stream of changes was opened by another process.")

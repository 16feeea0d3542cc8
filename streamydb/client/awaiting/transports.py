"""Transports, which carry requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, NoReturn, Protocol, TypeAlias, TypeVar

from streamydb.client.errors import ConnectionLostError
from streamydb.client.forks import AsyncOwned, Owned
from streamydb.client.requests import Event, Open, Request


class AsyncStream(Protocol):
    """An open stream of changes."""

    async def receive(self) -> list[Event]:
        """Wait for events; `ClientError` when the stream has ended."""

    async def close(self) -> None:
        """End it."""


class AsyncTransport(Protocol):
    """Performs the requests of the core, and opens streams. For coroutines of one event loop."""

    async def send(self, request: Request[Any]) -> Any:
        """Perform a request; every failure is a `ClientError`."""

    async def open(self, request: Open) -> AsyncStream:
        """Open a stream of changes."""

    async def close(self) -> None:
        """End."""


Perform: TypeAlias = Callable[[Request[Any]], Awaitable[Any]]


_Transport = TypeVar("_Transport", bound=AsyncTransport)


class AsyncOwnedTransport:
    """A transport for each process that uses it; see `AsyncTransport` and `Owned`."""

    kind: ClassVar[type[Owned[Any]]] = AsyncOwned

    def __init__(
        self, make: Callable[[], _Transport], leave: Callable[[_Transport], None] | None = None
    ) -> None:
        self._owned: Owned[AsyncTransport] = self.kind(make, leave)
        self._owned.make()

    async def send(self, request: Request[Any]) -> Any:
        return await self._owned.get().send(request)

    async def open(self, request: Open) -> AsyncOwnedStream:
        return AsyncOwnedStream(await self._owned.get().open(request), self.kind)

    async def close(self) -> None:
        transport = self._owned.made()
        if transport is not None:
            await transport.close()


class AsyncOwnedStream:
    """A stream of the process that opened it; see `AsyncStream`."""

    def __init__(self, stream: AsyncStream, kind: type[Owned[Any]]) -> None:
        self._owned: Owned[AsyncStream] = kind(_of_another)
        self._owned.put(stream)

    async def receive(self) -> list[Event]:
        return await self._owned.get().receive()

    async def close(self) -> None:
        stream = self._owned.made()
        if stream is not None:
            await stream.close()


def _of_another() -> NoReturn:
    raise ConnectionLostError("The stream of changes was opened by another process.")

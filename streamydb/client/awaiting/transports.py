"""The interfaces of a transport, which carries requests."""

from __future__ import annotations

from typing import Any, Protocol

from streamydb.client.requests import Event, Open, Request


class AsyncStream(Protocol):
    """An open stream of changes."""

    async def receive(self) -> list[Event]:
        """Wait for events; `ClientError` when the stream has ended."""

    async def close(self) -> None:
        """End it."""


class AsyncTransport(Protocol):
    """Performs `Read`, `Scan`, `Query`, `Send` and `Ask`, and opens streams.

    For coroutines of one event loop.
    """

    async def send(self, request: Request[Any]) -> Any:
        """Perform a request; every failure is a `ClientError`."""

    async def open(self, request: Open) -> AsyncStream:
        """Open a stream of changes."""

    async def close(self) -> None:
        """End."""

"""What carries requests: the two interfaces that a driver needs, blocking and awaiting."""

from __future__ import annotations

from typing import Any, Protocol

from streamydb.client.requests import Event, Open, Request

__all__ = ["AsyncStream", "AsyncTransport", "Stream", "Transport"]


class Stream(Protocol):
    """An open stream of changes."""

    def receive(self) -> list[Event]:
        """Wait for events; `ClientError` when the stream has ended."""

    def close(self) -> None:
        """End it."""


class Transport(Protocol):
    """Performs `Read`, `Scan`, `Query`, `Send` and `Ask`, and opens streams. Thread-safe."""

    def send(self, request: Request[Any]) -> Any:
        """Perform a request; every failure is a `ClientError`."""

    def open(self, request: Open) -> Stream:
        """Open a stream of changes."""

    def close(self) -> None:
        """End."""


class AsyncStream(Protocol):
    """As `Stream`, for coroutines."""

    async def receive(self) -> list[Event]:
        """Wait for events; `ClientError` when the stream has ended."""

    async def close(self) -> None:
        """End it."""


class AsyncTransport(Protocol):
    """As `Transport`, for coroutines of one event loop."""

    async def send(self, request: Request[Any]) -> Any:
        """Perform a request; every failure is a `ClientError`."""

    async def open(self, request: Open) -> AsyncStream:
        """Open a stream of changes."""

    async def close(self) -> None:
        """End."""

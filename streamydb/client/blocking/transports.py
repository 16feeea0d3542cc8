# Written by tools/blocking.py from `awaiting`: change that one.
"""The interfaces of a transport, which carries requests."""

from __future__ import annotations

from typing import Any, Protocol

from streamydb.client.requests import Event, Open, Request


class Stream(Protocol):
    """An open stream of changes."""

    def receive(self) -> list[Event]:
        """Wait for events; `ClientError` when the stream has ended."""

    def close(self) -> None:
        """End it."""


class Transport(Protocol):
    """Performs `Read`, `Scan`, `Query`, `Send` and `Ask`, and opens streams.

    For any number of threads.
    """

    def send(self, request: Request[Any]) -> Any:
        """Perform a request; every failure is a `ClientError`."""

    def open(self, request: Open) -> Stream:
        """Open a stream of changes."""

    def close(self) -> None:
        """End."""

# Written by tools/blocking.py from `awaiting`: change that one.
"""Transports that belong to one process: a child of a fork makes its own, and its own streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from streamydb.client.blocking.transports import Stream, Transport
from streamydb.client.errors import ConnectionLostError
from streamydb.client.forks import Owned
from streamydb.client.requests import Event, Open, Request

_T = TypeVar("_T", bound=Transport)


class OwnedTransport:
    """A transport for each process that uses it, made at once here; see `Transport` and
    `Owned`.
    """

    def __init__(self, make: Callable[[], _T], leave: Callable[[_T], None] | None = None) -> None:
        self._owned = Owned(make, leave)
        self._owned.make()

    def send(self, request: Request[Any]) -> Any:
        """Perform a request."""
        return self._owned.get().send(request)

    def open(self, request: Open) -> OwnedStream:
        """Open a stream of changes."""
        return OwnedStream(self._owned.get().open(request))

    def close(self) -> None:
        """End this process's; what another one has goes on."""
        transport = self._owned.made()
        if transport is not None:
            transport.close()


class OwnedStream:
    """A stream of the process that opened it; see `Stream`."""

    def __init__(self, stream: Stream) -> None:
        self._owned: Owned[Stream] = Owned(_of_another)
        self._owned.put(stream)

    def receive(self) -> list[Event]:
        """Wait for events."""
        return self._owned.get().receive()

    def close(self) -> None:
        """End it, unless it is another process's."""
        stream = self._owned.made()
        if stream is not None:
            stream.close()


def _of_another() -> NoReturn:
    raise ConnectionLostError("The stream of changes was opened by another process.")

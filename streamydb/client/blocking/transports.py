# Written by tools/blocking.py from `awaiting`: change that one.
"""Transports, which carry requests, and the driver, which runs a flow with their answers.

A flow is a generator that yields requests, of whatever kind, and is sent the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

from streamydb.client.errors import ConnectionLostError
from streamydb.client.forks import Owned
from streamydb.client.requests import Event, Open, Request


class Stream(Protocol):
    """An open stream of changes."""

    def receive(self) -> list[Event]:
        """Wait for events; `ClientError` when the stream has ended."""

    def close(self) -> None:
        """End it."""


class Transport(Protocol):
    """Performs the requests of the core, and opens streams. For any number of threads."""

    def send(self, request: Request[Any]) -> Any:
        """Perform a request; every failure is a `ClientError`."""

    def open(self, request: Open) -> Stream:
        """Open a stream of changes."""

    def close(self) -> None:
        """End."""


_R = TypeVar("_R")
_T = TypeVar("_T")
Perform: TypeAlias = Callable[[Request[Any]], Any]


def drive(flow: Generator[_R, Any, _T], perform: Callable[[_R], Any]) -> _T:
    try:
        request = next(flow)
        while True:
            try:
                answer = perform(request)
            except Exception as error:  # noqa: BLE001 - the flow decides what it means
                request = flow.throw(error)
            else:
                request = flow.send(answer)
    except StopIteration as end:
        value: _T = end.value
        return value
    finally:
        flow.close()


_Transport = TypeVar("_Transport", bound=Transport)


class OwnedTransport:
    """A transport for each process that uses it; see `Transport` and `Owned`."""

    def __init__(
        self, make: Callable[[], _Transport], leave: Callable[[_Transport], None] | None = None
    ) -> None:
        self._owned = Owned(make, leave)
        self._owned.make()

    def send(self, request: Request[Any]) -> Any:
        return self._owned.get().send(request)

    def open(self, request: Open) -> OwnedStream:
        return OwnedStream(self._owned.get().open(request))

    def close(self) -> None:
        transport = self._owned.made()
        if transport is not None:
            transport.close()


class OwnedStream:
    """A stream of the process that opened it; see `Stream`."""

    def __init__(self, stream: Stream) -> None:
        self._owned: Owned[Stream] = Owned(_of_another)
        self._owned.put(stream)

    def receive(self) -> list[Event]:
        return self._owned.get().receive()

    def close(self) -> None:
        stream = self._owned.made()
        if stream is not None:
            stream.close()


def _of_another() -> NoReturn:
    raise ConnectionLostError("The stream of changes was opened by another process.")

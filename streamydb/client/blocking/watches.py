# Written by tools/blocking.py from `awaiting`: change that one.
"""The changes as an iterator for threads."""

from __future__ import annotations

from typing import Any, Self

from streamydb.client.blocking.driving import Perform, drive
from streamydb.client.blocking.transports import Stream, Transport
from streamydb.client.requests import Change, Open, Receive, Request
from streamydb.client.watch_core import Watching

__all__ = ["Watch"]


class Watch:
    """The changes, as an iterator that connects again by itself; close it, or use `with`."""

    def __init__(self, perform: Perform, transport: Transport, watching: Watching) -> None:
        """Nothing is opened yet."""
        self._others = perform
        self._transport = transport
        self._watching = watching
        self._stream: Stream | None = None

    @property
    def seq(self) -> int | None:
        """All changes up to it have been given; `watch(since=...)` goes on after it."""
        return self._watching.seq

    def __enter__(self) -> Self:
        """Begin now."""
        drive(self._watching.start(), self._perform)
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

    def __iter__(self) -> Self:
        """Return the watch itself."""
        return self

    def __next__(self) -> Change:
        """Wait for the next change."""
        return drive(self._watching.next(), self._perform)

    def close(self) -> None:
        """Close the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _perform(self, request: Request[Any]) -> Any:
        if isinstance(request, Open):
            self.close()
            self._stream = self._transport.open(request)
            return None
        if isinstance(request, Receive) and self._stream is not None:
            return self._stream.receive()
        return self._others(request)

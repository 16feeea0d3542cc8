# Written by tools/blocking.py from `awaiting`: change that one.
"""The changes, and the records of a stream, as iterators for threads."""

from __future__ import annotations

from typing import Any, Self

from streamydb.client.blocking.transports import Perform, Stream, Transport, drive
from streamydb.client.errors import ClosedError
from streamydb.client.lifetimes import Lifetime
from streamydb.client.requests import Change, Open, Pause, Receive, Request
from streamydb.client.watch_core import FollowedStream, Watching
from streamydb.records.emission import Emitted


class Watch:
    """The changes, as an iterator that connects again by itself; close it, or use `with`.

    It ends when it is closed, also while somebody waits for the next change in another thread.
    """

    def __init__(
        self, perform: Perform, transport: Transport, watching: Watching, within: Lifetime
    ) -> None:
        self._others = perform
        self._transport = transport
        self._watching = watching
        self._stream: Stream | None = None
        self._lifetime = Lifetime("watch", within)

    @property
    def seq(self) -> int | None:
        """All changes up to it have been given; `watch(since=...)` goes on after it."""
        return self._watching.seq

    def __enter__(self) -> Self:
        self._lifetime.check()
        drive(self._watching.start(), self._perform)
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        try:
            return drive(self._watching.next(), self._perform)
        except ClosedError:
            if self._lifetime.over:
                raise StopIteration from None
            raise

    def close(self) -> None:
        """End; who waits for a change waits no longer."""
        self._lifetime.close()
        self._leave()

    def _perform(self, request: Request[Any]) -> Any:
        self._lifetime.check()
        stream = self._stream
        if isinstance(request, Pause):
            return self._lifetime.pause(request.seconds)
        if isinstance(request, Open):
            return self._open(request)
        if not isinstance(request, Receive) or stream is None:
            return self._others(request)
        try:
            return stream.receive()
        except Exception:
            self._lifetime.check()
            raise

    def _open(self, request: Open) -> None:
        self._leave()
        self._stream = self._transport.open(request)
        if self._lifetime.over:  # meanwhile
            self._leave()
            self._lifetime.check()

    def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


class Records:
    """The records of a stream, as an iterator; a wait that is cut off does not end it."""

    def __init__(self, perform: Perform, following: FollowedStream) -> None:
        self._perform = perform
        self._following = following

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Emitted:
        record = drive(self._following.next(), self._perform)
        if record is None:
            raise StopIteration
        return record

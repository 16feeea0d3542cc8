# Written by tools/blocking.py from `awaiting`: change that one.
"""The objects that callers hold: transactions call by call, the view under `run`, iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET, UnsetType

from streamydb.client.attempts import Attempt
from streamydb.client.blocking.transports import Perform, Stream, Transport, drive
from streamydb.client.errors import ClosedError
from streamydb.client.lifetimes import Lifetime
from streamydb.client.requests import Change, Entry, Open, Pause, Receive, Request
from streamydb.client.transactions import Builder, Committed, as_list
from streamydb.client.watch_core import FollowedStream, Watching
from streamydb.records.emission import Emitted

if TYPE_CHECKING:
    from streamydb.client.blocking.client import Client


class Atomic(Builder):
    """A transaction that is put together call by call, then committed.

    client.atomic().check("stock", ge=1).add("stock", -1).put("order/7", "open").commit()
    """

    def __init__(
        self, client: Client, txn_id: str | Callable[[], str], deadline_ms: int | None = None
    ) -> None:
        super().__init__(txn_id, deadline_ms)
        self._client = client

    def commit(self, *, timeout_s: float | None = None) -> Committed:
        """Execute it; raises as `Client.transaction`."""
        fresh, own = self.is_fresh, self.deadline_ms is None

        def dated() -> int:
            self.deadline_ms = self._client.session.deadline_ms(timeout_s)
            return self.deadline_ms

        if own:
            dated()
        return self._client._send(  # noqa: SLF001 - of this package
            self.prepare(), timeout_s, fresh=fresh, dated=dated if own else None
        )


class View:
    """The view of a function under `run`: a snapshot, and the function's own writes over it."""

    def __init__(self, perform: Perform, attempt: Attempt) -> None:
        self._perform = perform
        self._attempt = attempt

    @property
    def seq(self) -> int | None:
        """The seq of the snapshot; None before the first read."""
        return self._attempt.seq

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, own writes included; `default` if it is absent."""
        found = self.read([key])
        return default if found[key] is None else found[key]

    def read(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values of keys in one request; None for those that are absent."""
        found = drive(self._attempt.entries(as_list(keys)), self._perform)
        return {key: entry.value for key, entry in found.items()}

    def scan(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Entry]:
        """Yield the entries of a range, with what had been written when the scan began.

        The function then writes only if the range has an end, and none of the database's own keys.
        """
        wanted = self._attempt.scan(prefix, start, end, limit)
        while page := drive(self._attempt.page(wanted), self._perform):
            for stored in page:
                yield stored.entry()

    def put(self, key: str, value: Any, *, ttl_ms: int | UnsetType = UNSET) -> None:
        """Store a value when the function has ended; reads and later scans see it.

        The key ends ``ttl_ms`` after the commit, or never.
        """
        self._attempt.put(key, value, ttl_ms)

    def delete(self, key: str) -> None:
        """Remove a key when the function has ended."""
        self._attempt.delete(key)


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

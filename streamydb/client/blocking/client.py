"""The client for threads: its public methods, made from those of `AsyncClient`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeVar

from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.transports import AsyncTransport
from streamydb.client.awaiting.views import (
    AsyncRecords,
    AsyncView,
    AsyncWatch,
    AtomicBuilder,
    Writes,
)
from streamydb.client.blocking.transports import blocking, blocking_items, complete, wrapping
from streamydb.client.lifetimes import Lifetime
from streamydb.client.requests import Change, Consistency
from streamydb.client.session import Session
from streamydb.client.transactions import Committed
from streamydb.records.emission import Emitted

_T_co = TypeVar("_T_co", covariant=True)


class Atomic(AtomicBuilder):
    """A transaction that is put together call by call, then committed.

    client.atomic().check("stock", ge=1).add("stock", -1).put("order/7", "open").commit()
    """

    def commit(self, *, timeout_s: float | None = None) -> Committed:
        """Execute it; raises as `Client.transaction`."""
        return complete(self._commit(timeout_s))


class View(Writes):
    """The view of a function under `run`: a snapshot, and the function's own writes over it."""

    def __init__(self, awaiting: AsyncView) -> None:
        self._awaiting = awaiting
        self.attempt = awaiting.attempt

    get = blocking(AsyncView.get)
    read = blocking(AsyncView.read)
    scan = blocking_items(AsyncView.scan)


class Records:
    """The records of a stream, as an iterator; a wait that is cut off does not end it."""

    def __init__(self, awaiting: AsyncRecords) -> None:
        self._awaiting = awaiting

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Emitted:
        return _next(self._awaiting)


class Watch:
    """The changes, as an iterator that connects again by itself; close it, or use `with`.

    It ends when it is closed, also while somebody waits for the next change in another thread.
    """

    def __init__(self, awaiting: AsyncWatch) -> None:
        self._awaiting = awaiting

    @property
    def seq(self) -> int | None:
        """All changes up to it have been given; `watch(since=...)` goes on after it."""
        return self._awaiting.seq

    def __enter__(self) -> Self:
        complete(self._awaiting.__aenter__())
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        return _next(self._awaiting)

    close = blocking(AsyncWatch.close)


class _Items(Protocol[_T_co]):
    async def __anext__(self) -> _T_co: ...


def _next(items: _Items[_T_co]) -> _T_co:
    try:
        return complete(items.__anext__())
    except StopAsyncIteration:
        raise StopIteration from None


_T = TypeVar("_T")


class _InThread(AsyncClient):
    """A client whose transport and pauses block; so do the calls that its errors offer."""

    lifetime = Lifetime

    @staticmethod
    def later(call: Callable[[], Coroutine[Any, Any, Committed]]) -> Callable[[], Any]:
        return lambda: complete(call())


class Client:
    """A connection to a database, for any number of threads; `streamydb.connect` makes it.

    Attributes:
        session: what it remembers; `session.seq` is the highest seq it has seen.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        session: Session,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        """Speak through a `transport` that blocks; `sleep` stands in for real pauses."""
        self.session = session
        self._transport = transport
        self._awaiting = _InThread(transport, session, sleep)

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

    close = blocking(AsyncClient.close)
    get = blocking(AsyncClient.get)
    entry = blocking(AsyncClient.entry)
    read = blocking(AsyncClient.read)
    scan = blocking_items(AsyncClient.scan)
    query = blocking(AsyncClient.query)
    sql = blocking(AsyncClient.sql)
    sql_transaction = blocking(AsyncClient.sql_transaction)
    put = blocking(AsyncClient.put)
    delete = blocking(AsyncClient.delete)
    transaction = blocking(AsyncClient.transaction)
    call = blocking(AsyncClient.call)
    send = blocking(AsyncClient.send)
    verdict = blocking(AsyncClient.verdict)
    watch = wrapping(AsyncClient.watch, Watch)
    stream = wrapping(AsyncClient.stream, Records)

    def atomic(self, txn_id: str | None = None, *, deadline_ms: int | None = None) -> Atomic:
        """Begin a transaction that is put together call by call; see `AsyncClient.atomic`."""
        given = self.session.new_id if txn_id is None else txn_id
        return Atomic(self._awaiting, given, deadline_ms)

    def run(
        self,
        function: Callable[[View], _T],
        *,
        consistency: Consistency | None = None,
        conflicts_max: int | None = None,
    ) -> _T:
        """Execute a function as a transaction and return what it returns.

        It reads and writes through the view that it is given; see `AsyncClient.run`.
        """

        async def called(view: AsyncView) -> _T:
            return function(View(view))

        given = self._awaiting.run(called, consistency=consistency, conflicts_max=conflicts_max)
        return complete(given)

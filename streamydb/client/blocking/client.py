"""The client for threads: its public methods, made from those of `AsyncClient`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from streamydb.client.awaiting.client import AsyncClient
from streamydb.client.awaiting.transports import AsyncTransport
from streamydb.client.awaiting.views import AsyncView
from streamydb.client.blocking.transports import blocking, blocking_items, complete, wrapping
from streamydb.client.blocking.views import Atomic, Records, View, Watch
from streamydb.client.lifetimes import Lifetime
from streamydb.client.requests import Consistency
from streamydb.client.session import Session
from streamydb.client.transactions import Committed

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

"""The objects that callers hold, for threads; see `streamydb.client.awaiting.views`."""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

from streamydb.client.awaiting.views import (
    AsyncRecords,
    AsyncView,
    AsyncWatch,
    AtomicBuilder,
    Writes,
)
from streamydb.client.blocking.transports import blocking, blocking_items, complete
from streamydb.client.requests import Change
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

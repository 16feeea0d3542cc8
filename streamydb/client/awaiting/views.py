"""The objects that callers hold: transactions call by call, the view under `run`, iterators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET, UnsetType

from streamydb.client.attempts import Attempt
from streamydb.client.awaiting.transports import AsyncStream, AsyncTransport, Perform
from streamydb.client.core import drive
from streamydb.client.errors import ClosedError
from streamydb.client.lifetimes import AsyncLifetime
from streamydb.client.requests import Change, Entry, Open, Pause, Receive, Request
from streamydb.client.transactions import Builder, Committed, as_list
from streamydb.client.watch_core import FollowedStream, Watching
from streamydb.records.emission import Emitted
from streamydb.records.ranges import ScanRange

if TYPE_CHECKING:
    from streamydb.client.awaiting.client import AsyncClient


class AtomicBuilder(Builder):
    """A transaction of a client."""

    def __init__(
        self, client: AsyncClient, txn_id: str | Callable[[], str], deadline_ms: int | None = None
    ) -> None:
        super().__init__(txn_id, deadline_ms)
        self._client = client

    async def _commit(self, timeout_s: float | None) -> Committed:
        fresh, own = self.is_fresh, self.deadline_ms is None

        def dated() -> int:
            self.deadline_ms = self._client.session.deadline_ms(timeout_s)
            return self.deadline_ms

        if own:
            dated()
        return await self._client._send(  # noqa: SLF001 - of this package
            self.prepare(), timeout_s, fresh=fresh, dated=dated if own else None
        )


class AsyncAtomic(AtomicBuilder):
    """A transaction that is put together call by call, then committed.

    await client.atomic().check("stock", ge=1).add("stock", -1).put("order/7", "open").commit()
    """

    async def commit(self, *, timeout_s: float | None = None) -> Committed:
        """Execute it; raises as `AsyncClient.transaction`."""
        return await self._commit(timeout_s)


class Writes:
    """The snapshot and the writes of a function under `run`."""

    attempt: Attempt

    @property
    def seq(self) -> int | None:
        """The seq of the snapshot; None before the first read."""
        return self.attempt.seq

    def put(self, key: str, value: Any, *, ttl_ms: int | UnsetType = UNSET) -> None:
        """Store a value when the function has ended; reads and later scans see it.

        The key ends ``ttl_ms`` after the commit, or never.
        """
        self.attempt.put(key, value, ttl_ms)

    def delete(self, key: str) -> None:
        """Remove a key when the function has ended."""
        self.attempt.delete(key)


class AsyncView(Writes):
    """The view of a function under `run`: a snapshot, and the function's own writes over it."""

    def __init__(self, perform: Perform, attempt: Attempt) -> None:
        self._perform = perform
        self.attempt = attempt

    async def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, own writes included; `default` if it is absent."""
        value = (await self.read([key]))[key]
        return default if value is None else value

    async def read(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values of keys in one request; None for those that are absent."""
        entries = await drive(self.attempt.entries(as_list(keys)), self._perform)
        return {key: entry.value for key, entry in entries.items()}

    async def scan(
        self,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Entry]:
        """Yield the entries of a range, with what had been written when the scan began.

        The function then writes only if the range has an end, and none of the database's own keys.
        """
        wanted = self.attempt.scan(ScanRange(prefix, start, end), limit)
        while page := await drive(self.attempt.page(wanted), self._perform):
            for stored in page:
                yield stored.entry()


class AsyncWatch:
    """The changes, as an iterator that connects again by itself; close it, or use `async with`.

    It ends when it is closed, also while somebody waits for the next change in another task.
    """

    def __init__(
        self, perform: Perform, transport: AsyncTransport, watching: Watching, within: AsyncLifetime
    ) -> None:
        self._others = perform
        self._transport = transport
        self._watching = watching
        self._stream: AsyncStream | None = None
        self._lifetime = within.within("watch")

    @property
    def seq(self) -> int | None:
        """All changes up to it have been given; `watch(since=...)` goes on after it."""
        return self._watching.seq

    async def __aenter__(self) -> Self:
        self._lifetime.check()
        await drive(self._watching.start(), self._perform)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        try:
            return await drive(self._watching.next(), self._perform)
        except ClosedError:
            if self._lifetime.over:
                raise StopAsyncIteration from None
            raise

    async def close(self) -> None:
        """End; who waits for a change waits no longer."""
        self._lifetime.close()
        await self._leave()

    async def _perform(self, request: Request[Any]) -> Any:
        self._lifetime.check()
        stream = self._stream
        if isinstance(request, Pause):
            return await self._lifetime.pause(request.seconds)
        if isinstance(request, Open):
            return await self._open(request)
        if not isinstance(request, Receive) or stream is None:
            return await self._others(request)
        try:
            return await stream.receive()
        except Exception:
            self._lifetime.check()
            raise

    async def _open(self, request: Open) -> None:
        await self._leave()
        self._stream = await self._transport.open(request)
        if self._lifetime.over:  # meanwhile
            await self._leave()
            self._lifetime.check()

    async def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()


class AsyncRecords:
    """The records of a stream, as an iterator; a wait that is cut off does not end it."""

    def __init__(self, perform: Perform, following: FollowedStream) -> None:
        self._perform = perform
        self._following = following

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Emitted:
        record = await drive(self._following.next(), self._perform)
        if record is None:
            raise StopAsyncIteration
        return record

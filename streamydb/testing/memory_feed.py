"""The changes and streams of a database in memory (see `testing.memory`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from streamydb.facade.ports import ChangeBatch, PageBounds, StreamRow, StreamSpan
from streamydb.facade.stream_pages import fresh

__all__ = ["MemoryChanges", "MemoryStreams"]


class MemoryChanges:
    """The changes, as batches; one for each feed, and all of a database have the same.

    Attributes:
        all: the batches so far.
        peers: all those that have the same batches.
        ended: why it publishes no more; a start mends that.
    """

    def __init__(self, other: MemoryChanges | None = None) -> None:
        """Begin without any, or with those of another one."""
        self.all: list[ChangeBatch] = [] if other is None else other.all
        self.peers: list[MemoryChanges] = [] if other is None else other.peers
        self.peers.append(self)
        self._publish: Callable[[ChangeBatch], None] | None = None
        self._came = asyncio.Event()
        self.ended: str | None = None
        shared = None if other is None else other.streams
        self.streams: MemoryStreams = MemoryStreams(shared)

    async def start(self, publish: Callable[[ChangeBatch], None]) -> int:
        """Publish from now on."""
        self._publish, self.ended = publish, None
        return self.all[-1].resolved if self.all else 0

    async def stop(self) -> None:
        """Publish no more."""
        self._publish = None

    async def history(self, since: int) -> AsyncGenerator[ChangeBatch, None]:
        """Yield all batches after a seq, old and new."""
        position = since
        while True:
            came = self._came
            for batch in [batch for batch in self.all if batch.resolved > position]:
                position = batch.resolved
                yield batch
            await came.wait()

    def fault(self) -> str | None:
        """Return why it publishes no more."""
        return self.ended

    def end(self, fault: str) -> None:
        """Publish no more."""
        self._publish, self.ended = None, fault

    def put(self, batch: ChangeBatch) -> None:
        """Add a batch."""
        self.all.append(batch)
        for each in self.peers:
            each.tell(batch)

    def tell(self, batch: ChangeBatch) -> None:
        """Publish a batch that was added."""
        if self._publish is not None:
            self._publish(batch)
        self._came.set()
        self._came = asyncio.Event()


class MemoryStreams:
    """The streams: one partition, the same for all of a database.

    Attributes:
        all: the records so far.
        peers: all those that have the same records.
        ended: what is wrong, if something is.
    """

    def __init__(self, other: MemoryStreams | None = None) -> None:
        """Begin without any, or with those of another one."""
        self.all: list[StreamRow] = [] if other is None else other.all
        self.peers: list[MemoryStreams] = [] if other is None else other.peers
        self.peers.append(self)
        self.ended: str | None = None
        self._failed = False
        self._publish: Callable[[Sequence[StreamRow]], None] = lambda _: None

    async def start(self, publish: Callable[[Sequence[StreamRow]], None]) -> Mapping[int, int]:
        """Publish from now on."""
        self._publish, self._failed = publish, False
        return {0: len(self.all)}

    async def stop(self) -> None:
        """Publish no more."""
        self._publish = lambda _: None

    async def offset_after(
        self,
        partition: int,  # noqa: ARG002 - the port
        seq: int,  # noqa: ARG002
        ts_ms: int,  # noqa: ARG002
        patience_s: float,  # noqa: ARG002
    ) -> int:
        """The beginning."""
        return 0

    async def history(self, wanted: StreamSpan, bounds: PageBounds) -> tuple[list[StreamRow], int]:
        """Return records that were put before."""
        rows = [row for row in self.all[wanted.begin : wanted.end] if row.key == wanted.stream]
        found = list(fresh(wanted.after, rows))[: bounds.records_max]
        return found, found[-1].offset + 1 if len(found) == bounds.records_max else wanted.end

    def fault(self) -> str | None:
        """Return what is wrong."""
        return self.ended

    def failed(self) -> bool:
        """Return True if it publishes no more."""
        return self._failed

    def fail(self) -> None:
        """Publish no more, until it is started again."""
        self._publish, self._failed = lambda _: None, True

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record."""
        row = StreamRow(0, len(self.all), key, value)
        self.all.append(row)
        for each in self.peers:
            each.tell(row)

    def tell(self, row: StreamRow) -> None:
        """Publish a record that was added."""
        self._publish([row])

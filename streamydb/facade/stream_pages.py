"""The records of streams, page by page, for any number of readers that wait for more.

The latest records of the topic are kept, bounded in bytes, so that those who wait cost Kafka no
request. A page that begins before them is read from the topic, a few such at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from streamydb.facade.bounds import Limiter
from streamydb.facade.ports import PageBounds, StreamRow, StreamSource, StreamSpan
from streamydb.facade.waiting import Shutdown
from streamydb.kafka.errors import LogFaultError
from streamydb.records.emission import partition_of, place_of

_OVERHEAD_BYTES: Final = 300
_UNKNOWN: Final = -1


class StreamPosition(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """The place of a reader of a stream: after (seq, index), which lies before ``offset``.

    ``offset`` is negative when only Kafka can tell where to go on.
    """

    stream: str
    seq: int = 0
    index: int = 0
    offset: int = _UNKNOWN


class EmittedPage(NamedTuple):
    """Records as they lie in the topic, where they end, and whether there is more by now."""

    values: list[bytes]
    place: StreamPosition
    more: bool


class _Arrival:
    def __init__(self) -> None:
        self.came = asyncio.Event()
        self.readers = 0


class StreamFeed:
    """The latest records of all streams; used in one event loop."""

    def __init__(
        self,
        source: StreamSource,
        bytes_max: int,
        catch_ups_max: int,
        ending: Shutdown | None = None,
    ) -> None:
        self._ending = Shutdown() if ending is None else ending
        self._source = source
        self._bytes_max = bytes_max
        self._catch_ups = Limiter("reads of old records of streams", catch_ups_max)
        self._order: deque[StreamRow] = deque()
        self._kept: dict[bytes, deque[StreamRow]] = {}
        self._news: dict[bytes, _Arrival] = {}
        self._bytes = 0
        self._floors: dict[int, int] = {}
        self._starting = asyncio.Lock()

    @property
    def waiting(self) -> int:
        return sum(news.readers for news in self._news.values())

    async def start(self) -> None:
        """Start the source, when the first reader comes, and again when it has ended.
        Raises KafkaUnavailableError: Kafka does not answer, or there are no streams.
        """
        async with self._starting:
            if not self._floors or self._source.failed():
                floors = dict(await self._source.start(self.publish))
                self._order.clear()
                self._kept.clear()
                self._bytes, self._floors = 0, floors

    def publish(self, rows: Iterable[StreamRow]) -> None:
        for row in rows:
            if row.offset < self._floors.get(row.partition, 0):
                continue  # of a source that has ended: what came after it is not kept
            self._order.append(row)
            self._kept.setdefault(row.key, deque()).append(row)
            self._bytes += len(row.value) + _OVERHEAD_BYTES
            news = self._news.pop(row.key, None)
            if news is not None:
                news.came.set()
        while self._bytes > self._bytes_max:
            self._drop()

    async def page(
        self, place: StreamPosition, bounds: PageBounds, wait_s: float, ts_ms: int = 0
    ) -> EmittedPage:
        """The next records of a stream, as soon as there are some; none after a wait without any.

        ``ts_ms``: the commit timestamp of the place, if it is known and has no offset.

        Raises:
            KafkaUnavailableError: Kafka does not answer, there are no streams, or they cannot be
                followed now.
            ProblemError: overloaded (too many read old records).
        """
        await self.start()
        partition = partition_of(place.stream, len(self._floors))
        if place.offset < self._floors[partition]:
            place, rows, reached = await self._old(place, partition, bounds, ts_ms)
            if rows or not reached:
                return _page(place, rows, more=True)
        key = place.stream.encode()
        rows, more = self._latest(place, key, bounds)
        if not rows and wait_s > 0:
            await self._comes(key, wait_s)
            if place.offset < self._floors[partition]:  # so long that it is not kept any more
                return _page(place, [], more=True)
            rows, more = self._latest(place, key, bounds)
        if not rows and (fault := self._source.fault()) is not None:
            raise LogFaultError(fault)
        return _page(place, rows, more=more)

    async def _old(
        self, place: StreamPosition, partition: int, bounds: PageBounds, ts_ms: int
    ) -> tuple[StreamPosition, list[StreamRow], bool]:
        """Records that are not kept any more; and whether all were seen up to those that are."""
        with self._catch_ups.enter():
            begin = place.offset
            if begin < 0:
                begin = await self._source.offset_after(
                    partition, place.seq, ts_ms, bounds.patience_s
                )
            end = self._floors[partition]
            rows: list[StreamRow] = []
            if begin < end:
                after = (place.seq, place.index)
                span = StreamSpan(place.stream.encode(), partition, begin, end, after)
                rows, begin = await self._source.history(span, bounds)
        reached = begin >= self._floors[partition]
        moved = msgspec.structs.replace(place, offset=begin)
        return moved, rows, reached

    def _latest(
        self, place: StreamPosition, key: bytes, bounds: PageBounds
    ) -> tuple[list[StreamRow], bool]:
        """Records among those that are kept, and whether there are more."""
        known: list[StreamRow] = []
        for row in reversed(self._kept.get(key, ())):
            if row.offset < place.offset:
                break
            known.append(row)
        rows_found: list[StreamRow] = []
        size = 0
        for row in fresh((place.seq, place.index), reversed(known)):
            size += len(row.value)
            if rows_found and (len(rows_found) >= bounds.records_max or size > bounds.bytes_max):
                return rows_found, True
            rows_found.append(row)
        return rows_found, False

    async def _comes(self, key: bytes, wait_s: float) -> None:
        news = self._news.setdefault(key, _Arrival())
        news.readers += 1
        try:
            async with self._ending.timeout(wait_s):
                await news.came.wait()
        except TimeoutError:
            return
        finally:
            news.readers -= 1
            if not news.readers and self._news.get(key) is news:
                del self._news[key]

    def _drop(self) -> None:
        row = self._order.popleft()
        kept = self._kept[row.key]
        kept.popleft()
        if not kept:
            del self._kept[row.key]
        self._bytes -= len(row.value) + _OVERHEAD_BYTES
        self._floors[row.partition] = row.offset + 1


def fresh(after: tuple[int, int], rows: Iterable[StreamRow]) -> Iterator[StreamRow]:
    """Those after (seq, index), each once: after a crash of the pipeline some are there again."""
    at = after
    for row in rows:
        place_found = place_of(row.value)
        if place_found > at:
            at = place_found
            yield row


def _page(place: StreamPosition, rows: list[StreamRow], *, more: bool) -> EmittedPage:
    if rows:
        seq, index = place_of(rows[-1].value)
        place = StreamPosition(place.stream, seq, index, rows[-1].offset + 1)
    return EmittedPage([row.value for row in rows], place, more)

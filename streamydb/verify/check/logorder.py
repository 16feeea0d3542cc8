"""The total order of the log, streamed: like `streamydb.verify.oracle.order.released`, without all
in memory.

Each partition is fed on its own; `take` gives what the watermark releases so far, in order of
(effective time, partition, offset). A caller that always feeds the partition that `hungriest` names
keeps the held-back part small.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter

from streamydb.records import decode_marker
from streamydb.sorter.state import PartitionState
from streamydb.verify.oracle.order import LogRecord, Ordered

_NEVER = -1
_FOREVER = 2**62


class _Partition:
    """The records of one partition that were fed so far."""

    def __init__(self, start_ms: int) -> None:
        self.last_ms = start_ms
        self.held: deque[Ordered] = deque()
        self.naming: list[tuple[int, int]] = []
        """(partitions, effective time) of each marker that names more than all before it."""

    def first_naming(self, partitions: int) -> int | None:
        """Effective time of the first marker that names more than so many partitions."""
        at = bisect_right(self.naming, partitions, key=itemgetter(0))
        return self.naming[at][1] if at < len(self.naming) else None


class LogOrder:
    """Orders the records of a log that is fed partition by partition.

    Attributes:
        markers: how many markers were fed.
    """

    def __init__(self, initial_partitions: int) -> None:
        self.markers = 0
        self._joined = [_Partition(_NEVER) for _ in range(initial_partitions)]
        self._out: deque[Ordered] = deque()

    @classmethod
    def resumed(cls, initial_partitions: int, states: Mapping[int, PartitionState]) -> LogOrder:
        """Go on behind the records that a state covers; ``states``: of each partition there."""
        order = cls(initial_partitions)
        for number in sorted(states):
            if number == order.joined:
                order._join_next()
            if number >= order.joined:
                break
            part = order._joined[number]
            part.last_ms = max(part.last_ms, states[number].effective)
            part.naming = list(states[number].named)
        order._join()
        return order

    @property
    def joined(self) -> int:
        """The number of partitions that take part in the order so far; only these can be fed."""
        return len(self._joined)

    @property
    def held_back(self) -> int:
        """The number of transactions that wait for the watermark."""
        return sum(len(partition.held) for partition in self._joined)

    def hungriest(self, unfinished: Collection[int]) -> int | None:
        """The partition that holds the others up most; None if none of `unfinished` takes part."""
        numbers = [number for number in unfinished if number < self.joined]
        return min(numbers, key=lambda n: (self._joined[n].last_ms, n)) if numbers else None

    def feed(self, number: int, records: Sequence[LogRecord]) -> None:
        partition = self._joined[number]
        last_ms = partition.last_ms
        hold = partition.held.append
        for offset, append_ms, value in records:
            if append_ms > last_ms:
                last_ms = append_ms
            marker = decode_marker(value) if value is not None and b'"marker"' in value else None
            if marker is None:
                hold(Ordered(last_ms, number, offset, value))
            else:
                last_ms = max(last_ms, marker.marker)
                partition.last_ms = last_ms
                # Take in a marker; it may let partitions in that were added to the topic.
                self.markers += 1
                if marker.partitions > (partition.naming[-1][0] if partition.naming else 0):
                    partition.naming.append((marker.partitions, partition.last_ms))
                    self._join()
        partition.last_ms = last_ms

    def released(
        self, unfinished: set[int], batch: Callable[[int], Sequence[LogRecord] | None]
    ) -> Iterator[list[Ordered]]:
        """Yield the records of a log in the total order, in batches.

        Args:
            unfinished: the partitions that have records; one that ends is taken out.
            batch: reads the next records of a partition; None: it has no more.
        """
        while (number := self.hungriest(unfinished)) is not None:
            records = batch(number)
            if records is None:
                unfinished.discard(number)
            else:
                self.feed(number, records)
            yield list(self.take())
        yield list(self.take())

    def take(self) -> Iterator[Ordered]:
        """Yield what is released by now and has not been taken yet, in order."""
        while self._out:
            yield self._out.popleft()
        if self.joined == 1:
            yield from self._drain(self._joined[0], None)
            return
        watermark = min(*(partition.last_ms for partition in self._joined), *self._caps())
        parts = [self._drain(partition, watermark) for partition in self._joined]
        yield from heapq.merge(*parts)

    def _caps(self) -> Iterator[int]:
        """Yield bounds on the watermark by partitions that some have announced, but not all."""
        highest = max(
            (partition.naming[-1][0] for partition in self._joined if partition.naming), default=0
        )
        yield _FOREVER
        for number in range(self.joined, highest):
            times = (partition.first_naming(number) for partition in self._joined)
            yield max(ms for ms in times if ms is not None)

    def _join(self) -> None:
        while self._join_next():
            pass

    def _join_next(self) -> bool:
        """Let the next partition in, if every one before it has named it; True if it came in."""
        times = [partition.first_naming(self.joined) for partition in self._joined]
        if None in times:
            return False
        if self.joined == 1:
            self._out.extend(self._drain(self._joined[0], None))
        self._joined.append(_Partition(max(ms for ms in times if ms is not None)))
        return True

    @staticmethod
    def _drain(partition: _Partition, watermark: int | None) -> Iterator[Ordered]:
        """Take the records of one partition that lie below the watermark (None = all)."""
        held = partition.held
        while held and (watermark is None or held[0].ts_ms < watermark):
            yield held.popleft()

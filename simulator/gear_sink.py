"""The way of a real-time gear's outputs into Kafka, and its driver, which reads them back.

What the worker has executed is under way: each partition of a topic takes its records in their
order, but one partition does not wait for another. A kill loses what is under way, or some of it
comes late. The driver hears from the worker, sees records in the topics, and by these alone it says
what is written (the real `ResolvedGroups`).
"""

from __future__ import annotations

import random
import zlib
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from simulator.cluster import Cluster, WrittenRecord
from streamydb.frames.table import Ragged
from streamydb.pipeline.realtime.confirmations import ResolvedGroups, SeenOutputs, group_hashes
from streamydb.pipeline.realtime.core import Group
from streamydb.pipeline.realtime.messages import Executed
from streamydb.txn_processor import outputs as o

__all__ = ["GearDriver", "GearSink"]

_CHANGES_PARTITIONS = 2
_Place = tuple[int, int]
_T = TypeVar("_T")


class GearSink:
    """Outputs of one start of the gear that are under way."""

    def __init__(self, cluster: Cluster) -> None:
        """Nothing is under way."""
        self._cluster = cluster
        self._queues: dict[_Place, deque[WrittenRecord]] = {}

    def __len__(self) -> int:
        """Return how many outputs are under way."""
        return sum(map(len, self._queues.values()))

    def push(self, outputs: list[o.OutputRecords]) -> None:
        """Take the outputs of a group, in their order."""
        for records in outputs:
            before = b""
            rows = zip(records.keys.tolist(), records.values.tolist(), strict=True)
            for key, value in rows:
                place = records.topic, _partition(records, key)
                after = b"" if value else before
                record = WrittenRecord(records.topic, key or None, value or None, 0, after=after)
                self._queues.setdefault(place, deque()).append(record)
                before = value or before

    def deliver(self, rng: random.Random, count: int) -> None:
        """Kafka takes so many outputs, of any partitions."""
        batch = next(self._cluster.clock)
        for _ in range(count):
            places = [place for place, queue in self._queues.items() if queue]
            if not places:
                return
            place = rng.choice(places)
            record = self._queues[place].popleft()
            if record.topic == o.FOLLOW_UPS:
                self._cluster.log.append(record.value or b"", place[1])
            self._cluster.written.append(record.at(batch))

    def deliver_all_but_an_end(self, rng: random.Random) -> None:
        """Kafka takes all outputs but the last ones of a partition: from a tombstone on, say."""
        places = [place for place, queue in self._queues.items() if queue]
        if not places:
            return
        queue = self._queues[rng.choice(places)]
        tombstones = [at for at, record in enumerate(queue) if record.after]
        left = rng.choice(tombstones or [len(queue) - 1])
        kept = [queue.pop() for _ in range(len(queue) - left)]
        self.deliver(rng, len(self))
        queue.extend(reversed(kept))


def _partition(records: o.OutputRecords, key: bytes) -> int:
    """Return the partition of an output; results have one for each few keys."""
    if records.partition >= 0:
        return records.partition
    return zlib.crc32(key) % _CHANGES_PARTITIONS


class GearDriver:
    """The driver's knowledge of one start of the gear.

    Attributes:
        announced: up to this seq it has announced that.
    """

    def __init__(self, cluster: Cluster, events: Counter[str]) -> None:
        """Read the outputs from now on."""
        self._cluster = cluster
        self._events = events
        self._said: deque[Executed] = deque()
        self._read = len(cluster.written)
        self._groups, self._seen = ResolvedGroups(), SeenOutputs()
        self._announced: tuple[int, bytes] | None = None
        self.announced = 0

    @property
    def written(self) -> int:
        """Return up to which seq all outputs are in Kafka, as far as it knows."""
        return 0 if self._groups.last is None else self._groups.last.seq

    @property
    def waits(self) -> bool:
        """True if it has not heard or seen everything."""
        unread = self._read < len(self._cluster.written)
        return unread or bool(self._said) or self._announced is not None

    @property
    def unannounced(self) -> bool:
        """True if it has said less than it could."""
        return self.announced < self.written

    def say(self, group: Group, position: int, base: int) -> None:
        """The worker says what it has executed; the driver will hear it."""
        hashes = group_hashes(group.outputs).tobytes()
        self._said.append(Executed(group.seq, position, base, hashes, group.resolved))

    def hear(self, count: int) -> None:
        """Take in so many messages of the worker."""
        for _ in range(min(count, len(self._said))):
            self._take(self._groups.add, self._said.popleft())

    def read(self, count: int) -> None:
        """Take in so many records of the output topics, whoever wrote them."""
        for record in self._cluster.written[self._read : self._read + count]:
            self._read += 1
            if record.topic != o.DIGESTS:
                key, value = record.key or b"", record.value or b""
                hashes = self._seen.hashes(
                    np.array([record.topic]), Ragged.of([key]), Ragged.of([value])
                )
                self._take(self._groups.see, hashes)

    def announce(self, partitions: int = _CHANGES_PARTITIONS) -> None:
        """Append the newest resolved record to so many partitions; 0: Kafka refuses it."""
        if self._announced is None:
            return
        (seq, value), batch = self._announced, next(self._cluster.clock)
        self._announced = None
        if partitions:
            self.announced = seq
        self._cluster.written += [
            WrittenRecord(o.CHANGES, None, value, batch) for _ in range(partitions)
        ]

    def _take(self, note: Callable[[_T], Executed | None], news: _T) -> None:
        """Note news; keep the resolved record that is to be appended."""
        before = self._groups.last
        said = note(news)
        self._events["group confirmed"] += self._groups.last is not before
        if said is not None and said.resolved is not None:
            self._announced = said.seq, said.resolved

"""A changes topic in memory, for tests: with gaps in its offsets, expired starts and any timing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.kafka.source import ChangesExpiredError, Fetched, Topic, TopicSpan

__all__ = ["MemorySource", "MemoryTopic"]


class MemoryTopic:
    """Partitions of records.

    Attributes:
        topic_id: as Kafka gives one to each topic.
        compacted: whether it claims to be.
        records: per partition, by offset.
        spans: per partition, the offsets that exist.
    """

    def __init__(self, partitions: int, topic_id: str = "memory") -> None:
        """Begin empty."""
        self.topic_id = topic_id
        self.compacted = False
        self.records: dict[int, list[OneRecord]] = {n: [] for n in range(partitions)}
        self.spans = {n: TopicSpan(0, 0) for n in range(partitions)}

    def append(self, partition: int, key: bytes | None, value: bytes | None) -> int:
        """Append a record; its offset."""
        low, offset = self.spans[partition]
        self.records[partition].append(OneRecord(partition, offset, key, value))
        self.spans[partition] = TopicSpan(low, offset + 1)
        return offset

    def skip(self, partition: int, count: int = 1) -> None:
        """Use up offsets that no reader gets a record for, as transaction markers do."""
        low, high = self.spans[partition]
        self.spans[partition] = TopicSpan(low, high + count)

    def expire(self, partition: int, low: int) -> None:
        """Delete the records before ``low``."""
        self.spans[partition] = TopicSpan(low, self.spans[partition].high)
        kept = [record for record in self.records[partition] if record.offset() >= low]
        self.records[partition] = kept


class MemorySource:
    """Reads a `MemoryTopic`; a `streamydb.kafka.source.ChangesTopic`.

    Attributes:
        positions: per partition, the next offset.
    """

    def __init__(
        self, topic: MemoryTopic, take: Callable[[int, int], int] = lambda _partition, left: left
    ) -> None:
        """Read ``topic``; ``take`` says how many of the records left in a partition come at once.
        """
        self._topic = topic
        self._take = take
        self.positions: dict[int, int] = {}

    def describe(self) -> Topic:
        """The topic as it is now."""
        return Topic(self._topic.topic_id, self._topic.compacted, dict(self._topic.spans))

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read each partition from its position on."""
        self.positions = dict(positions)

    def fetch(self, timeout_s: float) -> Fetched:
        """Return the records that ``take`` lets through; never wait.

        Raises:
            ChangesExpiredError: a position is not in the topic.
        """
        del timeout_s
        found: list[OneRecord] = []
        ends: dict[int, int] = {}
        for number, position in self.positions.items():
            low, high = self._topic.spans[number]
            if not low <= position <= high:
                raise ChangesExpiredError(f"partition {number} has no offset {position}")
            left = [r for r in self._topic.records[number] if r.offset() >= position]
            taken = left[: self._take(number, len(left))]
            found += taken
            if taken:
                self.positions[number] = taken[-1].offset() + 1
            if len(taken) == len(left) and self.positions[number] < high:
                self.positions[number] = ends[number] = high
        return Fetched(RecordColumns.of(found), ends)

    def close(self) -> None:
        """Read no more."""
        self.positions = {}

"""A changes topic in memory, for tests: with gaps in its offsets, expired starts and any timing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streamydb.kafka.changes import ChangesExpiredError, FetchedRecords, TopicState
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.reader import Span
from tests.support.memory_kafka import Partition, Record

__all__ = ["MemorySource", "MemoryTopic"]


class MemoryTopic:
    """Partitions of records.

    Attributes:
        topic_id: as Kafka gives one to each topic.
        compacted: whether it claims to be.
        partitions: its own, or those of a topic of `MemoryKafka`.
    """

    def __init__(self, partitions: int | list[Partition], topic_id: str = "memory") -> None:
        """So many that are empty, or those that are there."""
        self.topic_id = topic_id
        self.compacted = False
        self.partitions = (
            [Partition() for _ in range(partitions)] if isinstance(partitions, int) else partitions
        )

    @property
    def records(self) -> dict[int, list[Record]]:
        """Per partition, the records by offset."""
        return {n: part.records for n, part in enumerate(self.partitions)}

    @property
    def spans(self) -> dict[int, Span]:
        """Per partition, the offsets that exist."""
        return {n: Span(part.low, part.high) for n, part in enumerate(self.partitions)}

    def append(self, partition: int, key: bytes | None, value: bytes | None) -> int:
        """Append a record; its offset."""
        part = self.partitions[partition]
        part.records.append(Record(partition, part.high, 0, key, value))
        part.high += 1
        return part.high - 1

    def skip(self, partition: int, count: int = 1) -> None:
        """Use up offsets that no reader gets a record for, as transaction markers do."""
        self.partitions[partition].high += count

    def expire(self, partition: int, low: int) -> None:
        """Delete the records before ``low``."""
        self.partitions[partition].trim(low)


class MemorySource:
    """Reads a `MemoryTopic`; a `streamydb.kafka.changes.ChangesTopic`.

    Attributes:
        positions: per partition, the next offset.
    """

    def __init__(
        self, topic: MemoryTopic, take: Callable[[int, int], int] = lambda _partition, left: left
    ) -> None:
        """Read ``topic``; ``take`` says how many of the records left in a partition come at
        once.
        """
        self._topic = topic
        self._take = take
        self.positions: dict[int, int] = {}

    def describe(self) -> TopicState:
        """The topic as it is now."""
        return TopicState(self._topic.topic_id, self._topic.compacted, self._topic.spans)

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read each partition from its position on."""
        self.positions = dict(positions)

    def fetch(self, timeout_s: float) -> FetchedRecords:
        """Return the records that ``take`` lets through; never wait.

        Raises:
            ChangesExpiredError: a position is not in the topic.
        """
        del timeout_s
        found: list[Record] = []
        ends: dict[int, int] = {}
        for number, position in self.positions.items():
            part = self._topic.partitions[number]
            low, high = part.low, part.high
            if not low <= position <= high:
                raise ChangesExpiredError(f"partition {number} has no offset {position}")
            left = [record for record in part.records if record.at >= position]
            taken = left[: self._take(number, len(left))]
            found += taken
            if taken:
                self.positions[number] = taken[-1].at + 1
            if len(taken) == len(left) and self.positions[number] < high:
                self.positions[number] = ends[number] = high
        return FetchedRecords(RecordColumns.of(found), ends)

    def close(self) -> None:
        """Read no more."""
        self.positions = {}

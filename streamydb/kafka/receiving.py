"""The one reader loop: assign partitions, and take the records that are there.

`TopicReader` and all who read with a client of `streamydb.kafka.clients.reader` go through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, Message, TopicPartition

from streamydb.kafka.clients import PARTITION_EOF
from streamydb.kafka.connection import RefusedError, metadata, watermarks
from streamydb.kafka.errors import KafkaUnavailableError

__all__ = [
    "REQUEST_S",
    "Message",
    "SpanReader",
    "add_partition",
    "assign",
    "assign_ends",
    "at_end",
    "offsets_at",
    "pause",
    "receive",
    "resume",
    "seek",
    "spans",
]  # fmt: skip

REQUEST_S: Final = 5.0
"""How long Kafka may take to answer a question."""

_BATCH: Final = 5_000
_POLL_S: Final = 0.25


def assign(consumer: Any, topic: str, positions: Mapping[int, int]) -> None:
    """Have a consumer read each of these partitions of a topic from its position on."""
    consumer.assign([TopicPartition(topic, number, at) for number, at in positions.items()])


def add_partition(consumer: Any, topic: str, number: int, at: int) -> None:
    """Have a consumer read one more partition, from its position on, beside those it reads."""
    consumer.incremental_assign([TopicPartition(topic, number, at)])


def assign_ends(consumer: Any, topics: Iterable[str], timeout_s: float) -> None:
    """Have a consumer read all partitions of some topics, each from its present end on.

    Raises:
        KafkaException: no answer within `timeout_s` seconds, or there is no such topic.
    """
    consumer.assign(
        [
            TopicPartition(topic, number, end)
            for topic in topics
            for number, (_, end) in _spans(consumer, topic, timeout_s).items()
        ]
    )


def seek(consumer: Any, topic: str, number: int, at: int) -> None:
    """Have a consumer go on at another offset of a partition that it reads."""
    consumer.seek(TopicPartition(topic, number, at))


def pause(consumer: Any, topic: str, number: int) -> None:
    """Have a consumer read no more of a partition for now."""
    consumer.pause([TopicPartition(topic, number)])


def resume(consumer: Any, topic: str, number: int) -> None:
    """Have a consumer go on with a partition that was paused."""
    consumer.resume([TopicPartition(topic, number)])


def receive(consumer: Any, count_max: int, timeout_s: float) -> list[Any]:
    """Return the messages that are there; wait for the first one if there is none.

    A plain `consume(count_max, timeout_s)` waits until it has all `count_max`, or out the time.
    """
    first = consumer.poll(timeout_s)
    return [] if first is None else [first, *consumer.consume(count_max - 1, 0)]


def at_end(message: Any) -> bool:
    """Return True if a message is no record, but says that a partition ends at its offset.

    Records that Kafka wrote for itself lie before that end; a consumer is never given those.
    """
    error = message.error()
    return error is not None and error.code() == PARTITION_EOF


def spans(consumer: Any, topic: str) -> dict[int, tuple[int, int]]:
    """Return, for each partition, its first offset and the one after its last record.

    Raises:
        KafkaUnavailableError: Kafka does not answer or has no such topic.
    """
    try:
        return _spans(consumer, topic, REQUEST_S)
    except RefusedError as error:
        raise KafkaUnavailableError(str(error)) from error
    except KafkaException as error:
        said = consumer.contact.told(error)
        raise KafkaUnavailableError(f"{topic}: {said}") from error


def _spans(consumer: Any, topic: str, timeout_s: float) -> dict[int, tuple[int, int]]:
    found = metadata(consumer, topic, timeout_s).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return {
        number: watermarks(consumer, topic, number, timeout_s)
        for number in sorted(found.partitions)
    }


def offsets_at(consumer: Any, topic: str, ts_ms: int) -> dict[int, int]:
    """Return, for each partition, the first offset that was appended at a time or after it.

    Raises:
        KafkaUnavailableError: Kafka does not answer or has no such topic.
    """
    known = spans(consumer, topic)
    asked = [TopicPartition(topic, number, max(0, ts_ms)) for number in known]
    try:
        found = consumer.offsets_for_times(asked, timeout=REQUEST_S)
    except KafkaException as error:
        raise KafkaUnavailableError(f"{topic}: {error.args[0].str()}") from error
    if failed := [place.error for place in found if place.error is not None]:
        raise KafkaUnavailableError(f"{topic}: {failed[0].str()}")
    return {p.partition: p.offset if p.offset >= 0 else known[p.partition][1] for p in found}


class SpanReader:
    """Reads a topic from one offset of each partition to before another, once.

    Attributes:
        unread: partitions that were not read to the end, and where that is.
        positions: per partition, the offset before which every record was handed over.
    """

    def __init__(self, consumer: Any, topic: str, offsets: Mapping[int, tuple[int, int]]) -> None:
        """Assign the partitions.

        Args:
            consumer: one that tells of ends (`eof`).
            topic: the topic's name.
            offsets: first offset and end of each partition; an empty span is read already.
        """
        self._consumer = consumer
        self.positions = {number: start for number, (start, _) in offsets.items()}
        self.unread = {number: end for number, (start, end) in offsets.items() if start < end}
        assign(consumer, topic, {number: self.positions[number] for number in self.unread})

    def records(self, has_time: Callable[[], bool]) -> Iterator[Any]:
        """Yield the records until all are read; the time that is left is asked before each
        batch.
        """
        while self.unread and has_time():
            for message in receive(self._consumer, _BATCH, _POLL_S):
                number, ended = message.partition(), at_end(message)
                if number not in self.unread or not (ended or message.error() is None):
                    continue
                end = self.unread[number]
                position = message.offset() + (not ended)
                if not ended and position <= end:
                    yield message
                self.positions[number] = max(self.positions[number], min(position, end))
                if position >= end:
                    del self.unread[number]

"""The one reader loop: assign partitions, and take what is there, record by record.

`receive` is all that takes records from a client of `streamydb.kafka.clients.reader`. A
`TopicCursor` knows how far it has read, too; a `TopicReader` also asks about its topic.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Message, TopicPartition

from streamydb.kafka.clients import FOLLOWING, NEXT_RECORDS, reader
from streamydb.kafka.connection import (
    UNKNOWN_PARTITION,
    RefusedError,
    may_pass,
    metadata,
    watermarks,
)
from streamydb.kafka.errors import KafkaUnavailableError, ReadFailure
from streamydb.settings import Settings

__all__ = [
    "REQUEST_S", "Message", "NextRecord", "NextRecords", "Received", "SpanReader", "TopicCursor",
    "TopicEnds", "assign", "assign_ends", "offsets_at", "pause", "receive",
    "resume", "seek", "spans",
]  # fmt: skip

REQUEST_S: Final = 5.0  # how long Kafka may take to answer a question
BATCH_RECORDS_MAX: Final = 20_000  # records that are taken at once
POLL_S: Final = 0.1  # longest wait for the first record of a batch


def assign(consumer: Any, topic: str, positions: Mapping[int, int]) -> None:
    """Have a consumer read each of these partitions of a topic from its position on."""
    consumer.assign([TopicPartition(topic, number, at) for number, at in positions.items()])


def assign_ends(consumer: Any, topics: Iterable[str], timeout_s: float) -> None:
    """Have a consumer read all partitions of some topics, each from its present end on.
    Raises KafkaException: no answer within `timeout_s` seconds, or there is no such topic.
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


class Received(NamedTuple):
    """The records that were there, each partition's in order, and what came in place of others."""

    records: list[Any]
    failures: list[ReadFailure]


def receive(consumer: Any, count_max: int, timeout_s: float) -> Received:
    """Return what is there, at most ``count_max``; wait for the first one if there is none.

    A plain `consume(count_max, timeout_s)` waits until it has all `count_max`, or out the time.
    """
    first = consumer.poll(timeout_s)
    if first is None:
        return Received([], [])
    messages = [first, *consumer.consume(count_max - 1, 0)]
    records = [each for each in messages if each.error() is None]
    if len(records) == len(messages):
        return Received(records, [])
    others = [each for each in messages if each.error() is not None]
    failures = [ReadFailure(each.error(), each.partition(), each.offset()) for each in others]
    return Received(records, failures)


def spans(consumer: Any, topic: str) -> dict[int, tuple[int, int]]:
    """Return, for each partition, its first offset and the one after its last record.
    Raises KafkaUnavailableError: Kafka does not answer or has no such topic.
    """
    try:
        return _spans(consumer, topic, REQUEST_S)
    except RefusedError as error:
        raise KafkaUnavailableError(str(error)) from error
    except KafkaException as error:
        said = consumer.connections.reason(error)
        raise KafkaUnavailableError(f"{topic}: {said}") from error


def _spans(consumer: Any, topic: str, timeout_s: float) -> dict[int, tuple[int, int]]:
    description = metadata(consumer, topic, timeout_s).topics[topic]
    if description.error is not None:
        raise KafkaException(description.error)
    return {
        number: watermarks(consumer, topic, number, timeout_s)
        for number in sorted(description.partitions)
    }


def offsets_at(consumer: Any, topic: str, ts_ms: int) -> dict[int, int]:
    """Return, for each partition, the first offset that was appended at a time or after it.
    Raises KafkaUnavailableError: Kafka does not answer or has no such topic.
    """
    known = spans(consumer, topic)
    asked = [TopicPartition(topic, number, max(0, ts_ms)) for number in known]
    try:
        offsets = consumer.offsets_for_times(asked, timeout=REQUEST_S)
    except KafkaException as error:
        raise KafkaUnavailableError(f"{topic}: {error.args[0].str()}") from error
    if failed := [each.error for each in offsets if each.error is not None]:
        raise KafkaUnavailableError(f"{topic}: {failed[0].str()}")
    return {p.partition: p.offset if p.offset >= 0 else known[p.partition][1] for p in offsets}


class TopicCursor:
    """Reads partitions of a topic on from their positions: the loop that all readers share.

    Attributes:
        positions: per partition, the next offset that has not been handed over.
    """

    def __init__(self, consumer: Any, topic: str) -> None:
        """Nothing is assigned yet. ``consumer``: it tells of ends (`eof`)."""
        self.topic = topic
        self.positions: dict[int, int] = {}
        self._consumer = consumer

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Start reading each of these partitions at its offset (or at its first one)."""
        # As a number, also the first one: for OFFSET_BEGINNING the client must know the partition's
        # leader, and waits for half a second until it does.
        self.positions = {number: max(0, offset) for number, offset in offsets.items()}
        assign(self._consumer, self.topic, self.positions)

    def batch(self, timeout_s: float = POLL_S, count_max: int = BATCH_RECORDS_MAX) -> list[Message]:
        """The next records of all assigned partitions, each partition's in order; may be empty."""
        records, failures = receive(self._consumer, count_max, timeout_s)
        positions = self.positions
        for record in records:
            positions[record.partition()] = record.offset() + 1
        for failure in failures:
            if failure.is_end:
                number = failure.partition
                positions[number] = max(positions.get(number, 0), failure.offset)
            else:
                self._fail(failure)
        return records

    def _fail(self, failure: ReadFailure) -> None:
        """Raise an error if a failure does not pass by itself."""


_SPAN_POLL_S: Final = 0.25
_SPAN_BATCH: Final = 5_000


class SpanReader(TopicCursor):
    """Reads a topic from one offset of each partition to before another, once.

    Attributes:
        unread: partitions that were not read to the end, and where that is.
    """

    def __init__(self, consumer: Any, topic: str, offsets: Mapping[int, tuple[int, int]]) -> None:
        """Assign the partitions.

        ``offsets``: first offset and end of each partition; an empty span is read already.
        """
        super().__init__(consumer, topic)
        self.unread = {number: end for number, (start, end) in offsets.items() if start < end}
        self.assign({number: offsets[number][0] for number in self.unread})
        self.positions = {number: start for number, (start, _) in offsets.items()}

    def records(self, has_time: Callable[[], bool]) -> Iterator[Any]:
        """Yield the records until all are read; ask before each batch if time is left."""
        while self.unread and has_time():
            for record in self.batch(_SPAN_POLL_S, _SPAN_BATCH):
                if record.offset() < self.unread.get(record.partition(), 0):
                    yield record
            positions = self.positions
            self.unread = {n: end for n, end in self.unread.items() if positions[n] < end}


_RETRY_S: Final = 0.05


class TopicEnds:
    """Asks for the ends of topics; connects in the background. Not for several threads at once.

    A reader needs half of the processor time for this that a client for administration does.
    """

    def __init__(self, connection: Mapping[str, str]) -> None:
        self._consumer: Any = reader(connection, FOLLOWING)

    def look(self, topic: str, known: Sequence[int] = ()) -> dict[int, int]:
        """Return the ends of these partitions of a topic; of all, if none are given.

        One without a leader is waited for.
        Raises KafkaUnavailableError: Kafka does not answer or refuses, or a leader does not come.
        """
        until_s = time.monotonic() + REQUEST_S
        while (found := self._ask(topic, known)) is None:
            if time.monotonic() > until_s:
                no_leader = f"{topic}: a partition has no leader"
                raise KafkaUnavailableError(no_leader) from TimeoutError()
            time.sleep(_RETRY_S)
        return found

    def close(self) -> None:
        self._consumer.close()

    def _ask(self, topic: str, known: Sequence[int]) -> dict[int, int] | None:
        """Ask for the ends; None if the same question may be answered a moment later."""
        try:
            numbers = known or self._numbers(topic)
            offsets = [TopicPartition(topic, number, OFFSET_END) for number in numbers]
            ends = self._consumer.offsets_for_times(offsets, timeout=REQUEST_S)
        except KafkaException as error:
            if may_pass(error.args[0]):
                return None
            raise KafkaUnavailableError(f"{topic}: its ends cannot be had") from error
        faults = [each.error for each in ends if each.error is not None]
        if any(error.code() == UNKNOWN_PARTITION for error in faults):
            with suppress(KafkaException):  # it asks about the topic anew: it has grown
                self._consumer.list_topics(topic, timeout=REQUEST_S)
        if any(map(may_pass, faults)):
            return None
        if faults or any(each.offset < 0 for each in ends):
            cause = KafkaException(faults[0]) if faults else None
            raise KafkaUnavailableError(f"{topic}: its ends were not told") from cause
        return {each.partition: each.offset for each in ends}

    def _numbers(self, topic: str) -> tuple[int, ...]:
        description = self._consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
        if description.error is not None or not description.partitions:
            raise KafkaException(description.error or KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return tuple(description.partitions)


_NEXT_POLL_S: Final = 0.1
_NEXT_BATCH: Final = 100


class NextRecord(NamedTuple):
    """The offset of the next record of a partition, or of the partition's end if there is none.

    ``ts_ms``: when the record was appended. ``value``: what it holds.
    """

    offset: int
    found: bool
    ts_ms: int = 0
    value: bytes = b""


class NextRecords:
    """Reads a topic from offsets on; connects at the first question, and stays connected.

    Records of Kafka transactions that were aborted are records, as they are for the pipeline.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._lock = threading.Lock()
        self._consumer: Any = None

    def find(self, offsets: Mapping[int, int]) -> dict[int, NextRecord]:
        """Return the first record at or after each offset; waits for Kafka, for a bounded time.
        Raises KafkaUnavailableError: Kafka does not answer.
        """
        with self._lock:
            try:
                return self._find(offsets)
            except KafkaException as error:
                raise KafkaUnavailableError(f"{self._topic}: {error.args[0].str()}") from error

    def close(self) -> None:
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _find(self, offsets: Mapping[int, int]) -> dict[int, NextRecord]:
        if self._consumer is None:
            self._consumer = reader(self._settings.client_config(), NEXT_RECORDS, eof=True)
        consumer = self._consumer
        assign(consumer, self._topic, offsets)
        records: dict[int, NextRecord] = {}
        ends_s = time.monotonic() + REQUEST_S
        try:
            while len(records) < len(offsets) and time.monotonic() < ends_s:
                received = receive(consumer, _NEXT_BATCH, _NEXT_POLL_S)
                for record in received.records:
                    ts_ms, value = record.timestamp()[1], record.value() or b""
                    found = NextRecord(record.offset(), True, ts_ms, value)
                    records.setdefault(record.partition(), found)
                for failure in received.failures:
                    if failure.is_end:
                        end = NextRecord(failure.offset, found=False)
                        records.setdefault(failure.partition, end)
        finally:
            consumer.unassign()
        if not records:
            raise KafkaUnavailableError(f"{self._topic} cannot be read")
        return records

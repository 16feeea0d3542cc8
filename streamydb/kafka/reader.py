"""Read whole topics at speed: every partition from its beginning to an end offset, in batches.

Only positions are used: no consumer group, nothing committed. What is read is what the broker holds
between the two offsets; gaps (control records) are skipped.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException

from streamydb.kafka.clients import BAD_COMPRESSION, WHOLE_TOPICS, reader
from streamydb.kafka.connection import RefusedError, metadata, watermarks
from streamydb.kafka.receiving import assign, at_end, receive

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from confluent_kafka import Message

BATCH_RECORDS_MAX = 20_000  # records handed over at once
POLL_S = 0.1  # longest wait for the first record of a batch, in seconds
REQUEST_TIMEOUT_S = 10.0
"""How long the broker may take to answer a question about a topic, in seconds."""

STALL_S_MAX = 60.0
"""A reader that gets nothing for so long although the end is not reached gives up, in seconds."""


SINGLE: dict[str, str] = {
    "queued.min.messages": "1",
    "fetch.max.bytes": "2097152",
    "max.partition.fetch.bytes": "1100000",
}
"""Connection settings of a reader that wants single records: nothing is fetched ahead."""

_WIDER = 8  # how many times wider each window is that `TopicReader.backwards` reads


class ReadingError(RuntimeError):
    """A topic could not be read; the message names topic and broker and says what to do."""


class PackedError(ReadingError):
    """A batch of records cannot be unpacked, now or later."""

    def __init__(self, topic: str, partition: int, offset: int, told: str) -> None:
        """Name its position; ``told``: librdkafka's words, which name the codec by its number."""
        super().__init__(
            f"{topic}, partition {partition}, offset {offset}: the batch that begins there cannot "
            f"be unpacked ({told}; codec 1 is gzip, 2 snappy, 3 lz4, 4 zstd). It is damaged, or "
            "larger than 2 GB unpacked. `streamydb doctor` names the setting that keeps such "
            "batches out of the log; what helps with one that is in it stands in "
            "docs/operations.md, 'A large record'"
        )


class TopicMissingError(ReadingError):
    """The broker answers, but it has no such topic."""


class Span(NamedTuple):
    """Offsets of one partition: `low` is the first that exists, `high` one past the last."""

    low: int
    high: int


class TopicReader:
    """Reads one topic; use it as a context manager.

    Attributes:
        topic: the topic's name.
        positions: per partition, the next offset that has not been handed over.
    """

    def __init__(self, connection: Mapping[str, str], topic: str) -> None:
        """Prepare to read; nothing is asked of the broker yet."""
        self.topic = topic
        self.positions: dict[int, int] = {}
        self._bootstrap = connection["bootstrap.servers"]
        self._consumer = reader(connection, WHOLE_TOPICS, eof=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._consumer.close()

    def partitions(self) -> list[int]:
        """Numbers of the topic's partitions.
        Raises ReadingError: the broker does not answer, or the topic does not exist.
        """
        try:
            cluster = metadata(self._consumer, self.topic, REQUEST_TIMEOUT_S)
        except RefusedError as error:
            raise ReadingError(str(error)) from error
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from error
        topic = cluster.topics[self.topic]
        if topic.error is not None:
            if topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self._forbidden()
            raise TopicMissingError(
                f"topic {self.topic} does not exist at {self._bootstrap}; create the database "
                "with `streamydb create`, or name another one with --database"
            )
        return sorted(topic.partitions)

    def spans(self) -> dict[int, Span]:
        """First and end offset of every partition, asked of the broker now."""
        return {number: self.span(number) for number in self.partitions()}

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Start reading each of these partitions at its offset (or at its first one)."""
        self.positions = {n: max(0, offset) for n, offset in offsets.items()}
        # As a number, also the first one: for OFFSET_BEGINNING the client must know the partition's
        # leader, and waits for half a second until it does.
        assign(self._consumer, self.topic, self.positions)

    def batch(self, timeout_s: float = POLL_S) -> list[Message]:
        """The next records of all assigned partitions, each partition's in order; may be empty.
        Raises ReadingError: this user may not read them (any more), the client has ended, or a
        batch cannot be unpacked.
        """
        records: list[Message] = []
        positions = self.positions
        for message in receive(self._consumer, BATCH_RECORDS_MAX, timeout_s):
            error = message.error()
            if error is None:
                records.append(message)
                positions[_known(message.partition())] = _known(message.offset()) + 1
            elif at_end(message):
                number = _known(message.partition())
                positions[number] = max(positions[number], _known(message.offset()))
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self._forbidden()
            elif error.code() == BAD_COMPRESSION:
                position = _known(message.partition()), _known(message.offset())
                raise PackedError(self.topic, *position, error.str())
            elif error.fatal():
                raise self._unreachable(error)
        return records

    def until(self, ends: Mapping[int, int]) -> Iterator[list[Message]]:
        """Batches until every assigned partition has reached its end offset.

        A batch may hold records past an end (they were appended meanwhile); the caller sorts
        them out if it minds.
        Raises ReadingError: nothing comes for STALL_S_MAX seconds.
        """
        last = time.monotonic()
        while any(self.positions[number] < end for number, end in ends.items()):
            before = sum(self.positions.values())
            records = self.batch()
            if sum(self.positions.values()) > before:
                last = time.monotonic()
            elif time.monotonic() - last > STALL_S_MAX:
                raise ReadingError(
                    f"topic {self.topic} at {self._bootstrap}: nothing could be read for "
                    f"{STALL_S_MAX:.0f} s before its end; is the broker up? (`streamydb doctor`)"
                ) from TimeoutError()
            if records:
                yield records

    def last(self, records: int) -> Iterator[Message]:
        """The last records of the topic, each partition's in order, up to its end as it is now.

        ``records``: how many of each partition, at the most; gaps count.
        Raises ReadingError: as `partitions` and `until`.
        """
        spans = self.spans()
        self.assign({number: max(low, high - records) for number, (low, high) in spans.items()})
        for batch in self.until({number: span.high for number, span in spans.items()}):
            yield from batch

    def backwards(
        self, spans: Mapping[int, tuple[int, int]], records: int, found: Container[int]
    ) -> Iterator[Message]:
        """The last records of partitions, then ever more of those in which too few were found.

        Each window is read up to the end, so the records of the one before come again.

        Args:
            spans: first and end offset of each partition.
            records: offsets of the first window; gaps count, so it may hold no record at all.
            found: the partitions that need no wider window; asked after each window.

        Raises:
            ReadingError: as `until`.
        """
        left = dict(spans)
        while left:
            starts = {number: max(low, high - records) for number, (low, high) in left.items()}
            self.assign(starts)
            for batch in self.until({number: high for number, (_, high) in left.items()}):
                yield from batch
            left = {
                number: span
                for number, span in left.items()
                if number not in found and starts[number] > span[0]
            }
            records *= _WIDER

    def whole(self, *, follow: bool = False) -> Iterator[Message]:
        """All records of the topic up to its ends as they are now, each partition's in order.

        What is appended meanwhile may be among them; with `follow`, it all is, for ever.
        Raises ReadingError: as `partitions` and `until`.
        """
        spans = self.spans()
        self.assign({number: span.low for number, span in spans.items()})
        for batch in self.until({number: span.high for number, span in spans.items()}):
            yield from batch
        while follow:
            yield from self.batch()

    def span(self, number: int) -> Span:
        """First and end offset of one partition, asked of the broker now; also while it is read."""
        try:
            low, high = watermarks(self._consumer, self.topic, number, REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from error
        return Span(low, high)

    def _forbidden(self) -> ReadingError:
        return ReadingError(
            f"this user may not read {self.topic} at {self._bootstrap}: grant it the rights of its "
            "role (`streamydb acls`)"
        )

    def _unreachable(self, error: KafkaError) -> ReadingError:
        return ReadingError(
            f"the Kafka broker at {self._bootstrap} did not answer about {self.topic} "
            f"({error.str()}): start it (`streamydb up`) or name another one with --bootstrap"
        )


def _known(number: int | None) -> int:
    """A partition or offset, which a message that was read always has."""
    if number is None:
        raise ReadingError("Kafka gave a message without a partition or an offset")
    return number

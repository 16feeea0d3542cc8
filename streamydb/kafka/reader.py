"""Read whole topics at speed: every partition from its beginning to an end offset, in batches.

Only positions are used: no consumer group, nothing committed. What is read is what the broker holds
between the two offsets; gaps (control records) are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Message

from streamydb.kafka.clients import BAD_COMPRESSION, WHOLE_TOPICS, reader
from streamydb.kafka.connection import RefusedError, metadata, watermarks
from streamydb.kafka.errors import ReadFailure
from streamydb.kafka.receiving import TopicCursor

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


class TopicReader(TopicCursor):
    """Reads one topic; use it as a context manager. It raises a ReadingError if it cannot."""

    def __init__(self, connection: Mapping[str, str], topic: str) -> None:
        """Prepare to read; nothing is asked of the broker yet."""
        super().__init__(reader(connection, WHOLE_TOPICS, eof=True), topic)
        self._bootstrap = connection["bootstrap.servers"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._consumer.close()

    def partitions(self) -> list[int]:
        """Numbers of the topic's partitions."""
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

    def between(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[Message]:
        """The records from one offset of each partition to another; perhaps some behind it, too."""
        self.assign({number: start for number, (start, _) in spans.items()})
        for batch in self.until({number: end for number, (_, end) in spans.items()}):
            yield from batch

    def last(self, records: int) -> Iterator[Message]:
        """The last records of the topic, each partition's in order, up to its end as it is now.

        ``records``: how many of each partition, at the most; gaps count.
        """
        spans = self.spans().items()
        yield from self.between({n: (max(low, high - records), high) for n, (low, high) in spans})

    def backwards(
        self, spans: Mapping[int, tuple[int, int]], records: int, found: Container[int]
    ) -> Iterator[Message]:
        """The last records of partitions, then ever more of those in which too few were found.

        Each window is read up to the end, so the records of the one before come again.

        Args:
            spans: first and end offset of each partition.
            records: offsets of the first window; gaps count, so it may hold no record at all.
            found: the partitions that need no wider window; asked after each window.
        """
        left = dict(spans)
        while left:
            windows = {n: (max(low, high - records), high) for n, (low, high) in left.items()}
            yield from self.between(windows)
            left = {
                number: span
                for number, span in left.items()
                if number not in found and windows[number] != span
            }
            records *= _WIDER

    def whole(self, *, follow: bool = False) -> Iterator[Message]:
        """All records of the topic up to its ends as they are now, each partition's in order.

        What is appended meanwhile may be among them; with `follow`, it all is, for ever.
        """
        yield from self.between(self.spans())
        while follow:
            yield from self.batch()

    def span(self, number: int) -> Span:
        """First and end offset of one partition, asked of the broker now; also while it is read."""
        try:
            low, high = watermarks(self._consumer, self.topic, number, REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from error
        return Span(low, high)

    def _fail(self, failure: ReadFailure) -> None:
        """Raise a ReadingError: this user may not read the topic (any more), the client has ended,
        or a batch cannot be unpacked.
        """
        error = failure.error
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise self._forbidden()
        if error.code() == BAD_COMPRESSION:
            raise PackedError(self.topic, failure.partition, failure.offset, error.str())
        if error.fatal():
            raise self._unreachable(error)

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

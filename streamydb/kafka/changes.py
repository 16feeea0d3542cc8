"""The changes topic in Kafka. Never skips: a position that is gone is an error, not a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from confluent_kafka import (
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

from streamydb.kafka.admin import answers, describe_topics
from streamydb.kafka.clients import CHANGES, PARTITION_EOF, administrator, reader
from streamydb.kafka.source import ChangesExpiredError, Fetched, SourceError, Topic, TopicSpan

if TYPE_CHECKING:
    from confluent_kafka import Message

    from streamydb.kafka.source import Record

__all__ = ["BATCH_RECORDS_MAX", "KafkaSource"]

BATCH_RECORDS_MAX: Final = 5_000
"""Records handed over at once: what comes of more does not stay in a processor's cache."""

PARTITIONS_CHECK_S: Final = 30.0
"""How often the number of partitions is looked at, in seconds."""

_METADATA_TIMEOUT_S: Final = 5.0

_GONE: Final = {
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError.OFFSET_OUT_OF_RANGE,
}
"""The position is not in the topic."""

_HOPELESS: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - its public name
}
"""Errors that waiting does not mend."""

_log = logging.getLogger(__name__)


class KafkaSource:
    """A `streamydb.kafka.source.ChangesTopic` on Kafka."""

    def __init__(self, connection: Mapping[str, str], topic: str) -> None:
        """Prepare to read.

        Args:
            connection: connection settings for confluent-kafka (`Settings.client_config()`).
            topic: the topic's full name.
        """
        self._connection = connection
        self._topic = topic
        self._consumer = reader(connection, CHANGES, eof=True)
        self._partitions = 0
        self._checked_s = 0.0

    def describe(self) -> Topic:
        """The topic as it is now.

        Raises:
            SourceError: it does not exist.
            TopicsError: Kafka does not answer.
        """
        admin = administrator(self._connection)
        found = describe_topics(admin, [self._topic], offsets=True).get(self._topic)
        if found is None:
            raise self._error("the topic does not exist; create it with `streamydb create`")
        named = answers(admin.describe_topics(TopicCollection([self._topic])), "describe")
        spans = [TopicSpan(*span) for span in zip(found.beginnings, found.ends, strict=True)]
        return Topic(
            str(named[self._topic].topic_id),
            "compact" in found.settings.get("cleanup.policy", ""),
            dict(enumerate(spans)),
        )

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read each partition from its position on."""
        self._partitions = len(positions)
        self._checked_s = time.monotonic()
        self._consumer.assign(
            [TopicPartition(self._topic, number, at) for number, at in positions.items()]
        )

    def fetch(self, timeout_s: float) -> Fetched:
        """Return the records that are there, at most `BATCH_RECORDS_MAX`; wait for the first one.

        Raises:
            ChangesExpiredError: a position is not in the topic.
            SourceError: the topic cannot be read, and waiting does not help; or it has been given
                more partitions.
        """
        self._check_partitions()
        try:
            first = self._consumer.poll(timeout_s)
            if first is None:
                return Fetched((), {})
            messages = [first, *self._consumer.consume(BATCH_RECORDS_MAX - 1, 0)]
        except KafkaException as fault:
            raise self._error(f"reading failed: {fault}") from fault
        failed = [message for message in messages if message.error() is not None]
        if not failed:
            return Fetched(cast("list[Record]", messages), {})
        ends = dict(end for message in failed for end in self._ends(message))
        good = [message for message in messages if message.error() is None]
        return Fetched(cast("list[Record]", good), ends)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _check_partitions(self) -> None:
        """Refuse a topic that has grown: keys move to partitions that nobody here reads."""
        now_s = time.monotonic()
        if now_s - self._checked_s < PARTITIONS_CHECK_S:
            return
        self._checked_s = now_s
        try:
            found = self._consumer.list_topics(self._topic, timeout=_METADATA_TIMEOUT_S)
        except KafkaException as fault:
            _log.warning("%s: no answer about its partitions: %s", self._topic, fault)
            return
        count = len(found.topics[self._topic].partitions)
        if count > self._partitions:
            raise self._error(
                f"it had {self._partitions} partitions and has {count} now. The changes of a key "
                "must stay in one partition: make the database anew with that many"
            )

    def _ends(self, message: Message) -> list[tuple[int, int]]:
        """The end that a message without a record tells, if it does; other errors are judged."""
        error = message.error()
        if error is None:
            return []
        if error.code() == PARTITION_EOF:
            return [(cast("int", message.partition()), cast("int", message.offset()))]
        if error.code() in _GONE:
            raise ChangesExpiredError(
                f"{self._topic}, partition {message.partition()}: the position to go on from is "
                f"not in the topic ({error.str()})"
            )
        if error.fatal() or error.code() in _HOPELESS:
            raise self._error(f"reading failed: {error.str()}")
        _log.warning("%s: %s; trying again", self._topic, error.str())
        return []

    def _error(self, what: str) -> SourceError:
        """An error that names topic and broker."""
        return SourceError(f"{self._topic} at {self._connection['bootstrap.servers']}: {what}")

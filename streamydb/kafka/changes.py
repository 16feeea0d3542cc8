"""The changes topic in Kafka. Never skips: a position that is gone is an error, not a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException

from streamydb.errors import ReadModelError
from streamydb.kafka.admin import describe_topics, identity_of
from streamydb.kafka.clients import BAD_COMPRESSION, CHANGES, administrator, column_reader
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.reader import Span

if TYPE_CHECKING:
    from streamydb.kafka.errors import ReadFailure
    from streamydb.kafka.librdkafka import ColumnReader


class TopicState(NamedTuple):
    """The topic as it is now.

    Attributes:
        topic_id: Kafka's id of it; another one after it was deleted and made again.
        compacted: whether Kafka removes records before they expire.
    """

    topic_id: str
    compacted: bool
    spans: Mapping[int, Span]


class FetchedRecords(NamedTuple):
    """Records, each partition's in order, and the partitions that were read to an end (offset)."""

    records: RecordColumns
    ends: Mapping[int, int]


class ChangesTopic(Protocol):
    """A changes topic, as `KafkaSource` is; it raises a `streamydb.errors.StreamyError`."""

    def describe(self) -> TopicState: ...

    def assign(self, positions: Mapping[int, int]) -> None: ...

    def fetch(self, timeout_s: float) -> FetchedRecords: ...

    def close(self) -> None: ...


class SourceError(ReadModelError):
    """The changes topic cannot be read, or is not the one that this read model has followed."""


class ChangesExpiredError(SourceError):
    """Changes that this read model needs have been deleted from the topic."""


BATCH_RECORDS_MAX: Final = 5_000
"""Records handed over at once: what comes of more does not stay in a processor's cache."""

PARTITIONS_CHECK_S: Final = 30.0  # how often the number of partitions is looked at, in seconds
_METADATA_TIMEOUT_S: Final = 5.0

GONE: Final = {
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError.OFFSET_OUT_OF_RANGE,
}
"""The position is not in the topic."""

HOPELESS: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - its public name
    KafkaError._FATAL,  # noqa: SLF001 - its public name
    BAD_COMPRESSION,
}
"""Errors that waiting does not mend."""

_log = logging.getLogger(__name__)


class KafkaSource:
    """A `streamydb.kafka.changes.ChangesTopic` on Kafka."""

    def __init__(self, connection: Mapping[str, str], topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._admin = administrator(connection)
        self._reader: ColumnReader | None = None
        self._partitions = 0
        self._checked_s = 0.0

    def describe(self) -> TopicState:
        """The topic as it is now. Raises SourceError: it does not exist."""
        admin = self._admin
        description = describe_topics(admin, [self._topic], offsets=True).get(self._topic)
        if description is None:
            raise self._error("the topic does not exist; create it with `streamydb create`")
        spans = [Span(*span) for span in zip(description.beginnings, description.ends, strict=True)]
        return TopicState(
            identity_of(admin, self._topic).topic_id,
            "compact" in description.settings.get("cleanup.policy", ""),
            dict(enumerate(spans)),
        )

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read each partition from its position on. Raises SourceError: they cannot be read."""
        self._partitions = len(positions)
        self._checked_s = time.monotonic()
        if self._reader is None:
            self._reader = column_reader(self._connection, CHANGES, eof=True)
        try:
            self._reader.assign(self._topic, positions)
        except KafkaException as fault:
            raise self._error(f"reading failed: {fault.args[0].str()}") from fault

    def fetch(self, timeout_s: float) -> FetchedRecords:
        """Return the records that are there, at most `BATCH_RECORDS_MAX`; wait for the first one.
        Raises ChangesExpiredError: a position is not in the topic. Raises SourceError: the topic
        cannot be read, and waiting does not help; or it has been given more partitions.
        """
        self._check_partitions()
        if self._reader is None:
            raise self._error("no partitions are assigned")
        records, failures = self._reader.take(BATCH_RECORDS_MAX, timeout_s)
        for failure in failures:
            if not failure.is_end:
                self._judge(failure)
        ends = {failure.partition: failure.offset for failure in failures if failure.is_end}
        return FetchedRecords(records, ends)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _check_partitions(self) -> None:
        """Refuse a topic that has grown: keys move to partitions that nobody here reads."""
        now_s = time.monotonic()
        if now_s - self._checked_s < PARTITIONS_CHECK_S:
            return
        self._checked_s = now_s
        try:
            cluster = self._admin.list_topics(self._topic, timeout=_METADATA_TIMEOUT_S)
        except KafkaException as fault:
            _log.warning("%s: no answer about its partitions: %s", self._topic, fault)
            return
        count = len(cluster.topics[self._topic].partitions)
        if count > self._partitions:
            raise self._error(
                f"it had {self._partitions} partitions and has {count} now. The changes of a key "
                "must stay in one partition: see docs/operations.md, 'The changes were given "
                "partitions'"
            )

    def _judge(self, failure: ReadFailure) -> None:
        """Raise an error if a failure does not pass by itself."""
        error = failure.error
        if error.code() in GONE:
            raise ChangesExpiredError(
                f"{self._topic}, partition {failure.partition}: the position to go on from is "
                f"not in the topic ({error.str()})"
            )
        if error.code() in HOPELESS:
            raise self._error(f"reading failed: {error.str()}")
        _log.warning("%s: %s; trying again", self._topic, error.str())

    def _error(self, what: str) -> SourceError:
        return SourceError(f"{self._topic} at {self._connection['bootstrap.servers']}: {what}")

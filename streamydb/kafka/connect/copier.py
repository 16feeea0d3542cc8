"""The loop of the copy: fetch changes, append what is resolved in one transaction of Kafka."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message
from prometheus_client import CollectorRegistry, Gauge

from streamydb.kafka.clients import COPY, KafkaAppender, appender
from streamydb.kafka.connect.core import ConnectError, CopiedRecord, PartitionCopy
from streamydb.kafka.connection import KafkaRetry, StopRequestedError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import TopicMissingError, TopicReader
from streamydb.kafka.strangers import ChangeRecords
from streamydb.records.connect import CopyProgress, decode_progress, encode_progress

if TYPE_CHECKING:
    from streamydb.kafka.changes import ChangesTopic, TopicState

_POLL_S: Final = 0.2

_log = logging.getLogger(__name__)


class CopyTopic(Protocol):
    """The copy: where it is, and how it goes on; see `KafkaCopy`."""

    def begin(self) -> Mapping[int, CopyProgress | None]: ...

    def append(self, records: Sequence[CopiedRecord]) -> None: ...

    def close(self) -> None: ...


class Copier:
    """Copies the changes of a database into `<db>.connect`.

    Attributes:
        seq: everything up to it has been copied; 0 as long as that is not known.
    """

    def __init__(self, database: str, source: ChangesTopic, copy: CopyTopic) -> None:
        """Nothing is read yet; source and copy are closed with this."""
        self._name = TopicNames(database)
        self._source = source
        self._copy = copy
        self._changes = ChangeRecords(self._name.changes)
        self._parts: dict[int, PartitionCopy] | None = None
        self.seq = 0

    def step(self, timeout_s: float) -> int:
        """Fetch changes, waiting up to ``timeout_s`` seconds for one, and append them.

        Return how many records were appended.

        After an error the next step begins anew where the copy ends.

        Raises:
            ConnectError: the copy is missing, has another writer, or is that of other changes.
            SourceError: the changes cannot be read, or the next ones have been deleted.
            RecordError: a change is of a release that this one cannot read.
        """
        parts, self._parts = self._parts or self._begin(), None
        records: list[CopiedRecord] = []
        for record in self._source.fetch(timeout_s).records:
            number, offset = record.partition(), record.offset()
            known = self._changes.read(number, offset, record.value())
            if known is not None:
                records += parts[number].take(offset, record.key(), known)
        if records:
            self._copy.append(records)
        self._parts = parts
        self.seq = min(part.resolved for part in parts.values())
        return len(records)

    def run(self, stop: threading.Event, addresses: str) -> None:
        """Copy until ``stop`` is set; close what was opened. Waits for Kafka when it is away.
        Raises StreamyError: as `step`, but for what passes.
        """
        retry = KafkaRetry(stop.wait, addresses=addresses)
        try:
            while not stop.is_set():
                with suppress(StopRequestedError):
                    retry.call(partial(self.step, _POLL_S), look=self._parts is None)
        finally:
            self.close()

    def close(self) -> None:
        self._source.close()
        self._copy.close()

    def _begin(self) -> dict[int, PartitionCopy]:
        """Go on where the copy ends."""
        copied, topic = self._copy.begin(), self._source.describe()
        if copied.keys() != topic.spans.keys():
            raise ConnectError(
                f"{self._name.connect} has {len(copied)} partitions and {self._name.changes} has "
                f"{len(topic.spans)}: {self._anew()}"
            )
        first = CopyProgress(topic.topic_id, 0, 0)
        known = {number: progress or first for number, progress in copied.items()}
        for number, progress in known.items():
            self._check(topic, number, progress)
        positions = {number: progress.position for number, progress in known.items()}
        self._source.assign(positions)
        _log.info("copying %s from %s", self._name.changes, positions)
        return {number: PartitionCopy(number, progress) for number, progress in known.items()}

    def _check(self, topic: TopicState, number: int, progress: CopyProgress) -> None:
        """Refuse changes that are others, or that lack the next records."""
        if progress.topic != topic.topic_id:
            raise ConnectError(
                f"{self._name.connect} is a copy of other changes than {self._name.changes} has "
                f"now (Kafka's ids: {progress.topic}, {topic.topic_id}): {self._anew()}"
            )
        low, high = topic.spans[number]
        if not low <= progress.position <= high:
            raise ConnectError(
                f"{self._name.changes}, partition {number}, has the offsets {low} to {high}, and "
                f"the copy goes on at {progress.position}: changes that are needed are gone. Take "
                "a snapshot (`streamydb snapshot`), load it into the sinks, and give each the "
                "later changes (docs/sinks.md)"
            )

    def _anew(self) -> str:
        return (
            f"delete the topic {self._name.connect}, and make it anew: `streamydb create --connect`"
        )


def registry_of(copier: Copier) -> CollectorRegistry:
    registry = CollectorRegistry()
    seq = Gauge("streamydb_connect_seq", "Last seq that has been copied", registry=registry)
    seq.set_function(lambda: copier.seq)
    return registry


HEADER: Final = "streamydb"  # the header with the progress, of every record
NUL_HEADER: Final = "streamydb-nul"
"""The header of records whose key has a character U+0000, so that a sink can leave them out."""

_WINDOW_RECORDS: Final = 100
"""Records at the end of a partition that are looked at first; then ever more, until one has come:
Kafka's control records have offsets, too.
"""

_COMMITTED: Final = {"isolation.level": "read_committed"}
_TIMEOUT_S: Final = 60.0
_FULL_S: Final = 0.1

_FENCED: Final = {
    KafkaError._FENCED,  # noqa: SLF001 - its public name
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}


def last_copied(connection: Mapping[str, str], database: str) -> int | None:
    """Return the seq of the last change that was copied; 0: the copy is empty, None: there is none.
    Raises ConnectError: somebody else has written a record.
    """
    committed = {**connection, **_COMMITTED}
    try:
        with TopicReader(committed, TopicNames(database).connect) as reader:
            copied = _progress_by_partition(reader).values()
    except TopicMissingError:
        return None
    return max((progress.seq for progress in copied if progress is not None), default=0)


class KafkaCopy:
    """A `streamydb.kafka.connect.copier.CopyTopic` on Kafka."""

    def __init__(self, connection: Mapping[str, str], database: str) -> None:
        self._connection = connection
        self._topic = TopicNames(database).connect
        self._kind = {**COPY, "transactional.id": f"streamydb-connect-{database}"}
        self._producer: KafkaAppender | None = None

    def begin(self) -> dict[int, CopyProgress | None]:
        """Shut out every other writer; return the progress of each partition, None: it is empty.
        Raises ConnectError: there is no such topic.
        """
        self.close()
        with TopicReader({**self._connection, **_COMMITTED}, self._topic) as reader:
            try:
                reader.partitions()
            except TopicMissingError as error:
                raise ConnectError(
                    f"there is no topic {self._topic}: `streamydb create --connect` makes it"
                ) from error
            producer = self._producer = appender(self._connection, self._kind, self._topic)
            with _explained(self._topic):
                producer.init_transactions(_TIMEOUT_S)
            return _progress_by_partition(reader)

    def append(self, records: Sequence[CopiedRecord]) -> None:
        """Append all of these or none.
        Raises ConnectError: another writer has begun, or Kafka does not take them.
        """
        producer = self._producer
        if producer is None:
            raise ConnectError(f"nothing can be appended to {self._topic} before it has begun")
        with _explained(self._topic):
            producer.begin_transaction()
            for record in records:
                self._put(producer, record)
            producer.commit_transaction(_TIMEOUT_S)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _put(self, producer: KafkaAppender, record: CopiedRecord) -> None:
        """Queue a record; wait while the queue is full."""
        headers: dict[str, str | bytes | None] = {HEADER: encode_progress(record.progress)}
        if record.has_nul:
            headers[NUL_HEADER] = b"key"
        while True:
            with suppress(BufferError):
                producer.produce(
                    self._topic, record.value, record.key, record.partition, headers=headers
                )
                return
            producer.poll(_FULL_S)


@contextmanager
def _explained(topic: str) -> Iterator[None]:
    """Raise an error of ours for one of Kafka's.

    Where a new attempt may help, its cause is a TimeoutError, by which `KafkaRetry` goes on trying.
    """
    try:
        yield
    except KafkaException as fault:
        error = fault.args[0]
        if error.code() in _FENCED:
            raise ConnectError(
                f"another `streamydb connect` writes {topic} now; this one has ended"
            ) from fault
        again = error.retriable() or error.txn_requires_abort() or error.fatal()
        what = f"{topic} took no records: {error.str()}"
        raise ConnectError(what) from (TimeoutError() if again else fault)


def _progress_by_partition(reader: TopicReader) -> dict[int, CopyProgress | None]:
    spans = reader.spans()
    last: dict[int, CopyProgress] = {}
    for message in reader.backwards(spans, _WINDOW_RECORDS, last):
        last[message.partition() or 0] = _progress_of(message)
    return {number: last.get(number) for number in spans}


def _progress_of(message: Message) -> CopyProgress:
    value = dict(message.headers() or ()).get(HEADER)
    try:
        return decode_progress(value if isinstance(value, bytes) else b"")
    except ValueError as fault:
        raise ConnectError(
            f"the record at offset {message.offset()} of {message.topic()}-{message.partition()} "
            f"has no header {HEADER}: somebody else has written it, and sinks may have taken it. "
            "Delete the topic, and make it anew: `streamydb create --connect`"
        ) from fault

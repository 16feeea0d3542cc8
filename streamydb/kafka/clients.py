"""The one place where clients of Kafka are made: readers, appenders, administration.

Whoever needs one names its kind, which says how it reads or appends; nobody else calls
confluent-kafka's constructors (`tests/test_tidy.py`).

**Every reader reads uncommitted** (`isolation.level`), of every topic. We append nothing in a Kafka
transaction (but the copy for Kafka Connect, which is for others), so reading committed would spare
us nothing: what we write again after a crash is told by its seq. It would cost much: a reader of
committed records stops before the first transaction that is open, so a stranger's producer that
hangs could silence results, read models and the election of a leader for a quarter of an hour. And
all must see the same: Spark reads uncommitted, so the pipeline executes, and DataFrames and
snapshots hold, what lies in a topic whatever became of the Kafka transaction around it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, DeletedRecords

from streamydb.kafka.connection import ConnectionState

if TYPE_CHECKING:
    from streamydb.kafka.librdkafka import ColumnReader

Kind: TypeAlias = Mapping[str, str | float | bool]
"""What sets one use of a client apart: options of confluent-kafka."""

CLOCK_SKEW_MS: Final = 120_000
"""By how much the clocks of brokers, producers and clients may differ.

A search by time begins so much earlier: it reads a record twice rather than misses it.
"""

# Confluent names the errors of its own client, as against those of the broker, with an underscore.
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001
BAD_COMPRESSION = KafkaError._BAD_COMPRESSION  # noqa: SLF001
MSG_TIMED_OUT = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
UNKNOWN_TOPIC = KafkaError._UNKNOWN_TOPIC  # noqa: SLF001

_READER: Final[Kind] = {
    "group.id": "streamydb-reader",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
    "isolation.level": "read_uncommitted",
    "receive.message.max.bytes": 2_147_483_647,
    "log_level": 0,
}
"""Every reader is assigned its partitions. It joins no group and commits nothing.

It opens every batch that Spark's client opens. `receive.message.max.bytes` also bounds what
librdkafka unpacks: with its default of 100 MB, a batch of zstd between 62 and 130 MB was read by
one of the two only. Java's arrays have the bound that it has now.
"""

FOLLOWING: Final[Kind] = {
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "queued.max.messages.kbytes": 16_384,
}
"""A reader that follows a topic: the facade's tails, the marker loop, who waits for a result.

A fetch returns as soon as one of its partitions has a record; with none, a broker is asked ten
times a second. The first fetch after an assignment may lack some of the partitions, so that what
lies in those waits for it to end: hence not longer.
"""

NEXT_RECORDS: Final[Kind] = {
    **FOLLOWING,
    "fetch.wait.max.ms": 10,
    "max.partition.fetch.bytes": 4_096,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1_024,
}
"""A reader of which one record of each partition is wanted, at once."""

WHOLE_TOPICS: Final[Kind] = {
    "fetch.wait.max.ms": 20,
    "fetch.max.bytes": 64 << 20,
    "max.partition.fetch.bytes": 16 << 20,
    "queued.min.messages": 200_000,
    "queued.max.messages.kbytes": 131_072,
}
"""A reader of whole topics, at speed."""

CHANGES: Final[Kind] = {
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
    "fetch.max.bytes": 16 << 20,
    "max.partition.fetch.bytes": 4 << 20,
    "queued.min.messages": 100_000,
    "queued.max.messages.kbytes": 65_536,
}
"""A read model's reader: it never skips, so a position that is gone is an error."""

SHARED: Final[Kind] = {"fetch.wait.max.ms": 1_000}
"""A pipeline's reader of what the pipelines tell one another; it may be idle for hours."""

_APPENDER: Final[Kind] = {"acks": "all", "enable.idempotence": True, "log_level": 0}
"""No appender loses, doubles or reorders what it has taken."""

_REQUEST_BYTES_MAX: Final = 1_000_000
"""What is sent in one batch: a transaction of the largest size, its key and overhead.

It stays below `max.message.bytes` of the topics, so that what passes here passes the broker.
"""

LOG: Final[Kind] = {
    "compression.type": "none",  # the broker would unpack it (`topic_plans.UNPACKED`)
    "partitioner": "murmur2_random",  # as Java's clients: a key means the same partition
    "batch.size": _REQUEST_BYTES_MAX,
    "message.max.bytes": _REQUEST_BYTES_MAX,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.ms": 50,
}
"""An appender of transactions and markers."""

BULK: Final[Kind] = {
    "linger.ms": 20,
    "compression.type": "lz4",
    "message.max.bytes": 1_048_588,
    "queue.buffering.max.kbytes": 131_072,
}
"""An appender of many records."""

COPY_RECORD_BYTES_MAX: Final = 1_200_000
"""`max.message.bytes` of the copy: two values of the largest size, as JSON texts within JSON."""

COPY: Final[Kind] = {
    "linger.ms": 5,
    # Every client of Kafka reads it without a further package.
    "compression.type": "gzip",
    "compression.level": 1,
    "message.max.bytes": COPY_RECORD_BYTES_MAX,
    "queue.buffering.max.kbytes": 131_072,
    "transaction.timeout.ms": 120_000,
}
"""An appender of the copy for Kafka Connect; the caller adds the id of its transactions."""

MESSAGES: Final[Kind] = {"linger.ms": 0}  # an appender of single records, which somebody waits for

PROGRESS: Final[Kind] = {
    **MESSAGES, "enable.idempotence": False, "message.timeout.ms": 2_000,
}  # fmt: skip
"""An appender of what is of no use later, and does no harm twice."""

_ENDING: Final = "streamydb-ending"
_MOMENT_S: Final = 0.02
_LOOK_S: Final = 1.0
_END_POLLS: Final = 10
_END_POLL_S: Final = 0.01
_OWN_HOLDS: Final = 2
"""References to a client in `_let_go`: the list's, and that of the question how many there are."""

_hold = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))
_release = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


class _Client:
    """A client that knows why it cannot connect."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.connections = ConnectionState(config)
        super().__init__({**config, "error_cb": self.connections})  # type: ignore[call-arg]


class _SelfEndingClient(_Client):
    """A client that ends when nobody holds it any more, and holds up nobody then.

    librdkafka's threads may look up only once a second, and its end waits for them. Nor must it end
    in one of them, which aborts the process: Python may collect garbage while one calls back.
    """

    def __del__(self) -> None:
        """Be held by a thread, which waits for the end when nobody else holds it."""
        if not sys.is_finalizing():
            threading.Thread(target=_let_go, args=([self],), name=_ENDING, daemon=True).start()


def _let_go(held: list[_SelfEndingClient]) -> None:
    """Outlast all other holds, so that this thread's is the last one.

    A cycle of garbage may hold it, which some thread collects at some time, without `__del__` then.
    A cycle through the client itself is cut: what it holds in Python is of no use any more.
    """
    with suppress(AttributeError):  # its settings were refused
        held[0].connections.also = None
    held[0].__dict__.clear()
    wait_s = _MOMENT_S
    while sys.getrefcount(held[0]) > _OWN_HOLDS:
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LOOK_S)
    held.clear()


class KafkaAdministrator(_SelfEndingClient, AdminClient):
    """A client for administration that knows why it cannot connect."""

    def delete_records(
        self, topic_partition_offsets: list[TopicPartition], **options: Any
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before the offsets; for each partition, a future.

        Confluent's client gives up a reference to the list that is not its own (mended in 2.16.1,
        PR 2328), so Python would free a list that is still in use. It gets one to give up.
        """
        references = sys.getrefcount(topic_partition_offsets)
        _hold(topic_partition_offsets)
        asked: dict[TopicPartition, Future[DeletedRecords]]
        asked = super().delete_records(topic_partition_offsets, **options)
        if sys.getrefcount(topic_partition_offsets) > references:
            _release(topic_partition_offsets)
        return asked


class KafkaReader(_SelfEndingClient, Consumer):
    """A reader that knows why it cannot connect, and that nobody waits for when it ends."""

    _ended = False

    def close(self) -> None:
        """Disconnect, in the background: librdkafka's threads may look up only once a second.

        No reader is a member of a group, so there is nothing that an end would have to tell Kafka.
        """
        self._ended = True
        threading.Thread(target=super().close, name=_ENDING, daemon=True).start()

    def __del__(self) -> None:
        """End as the others do, unless it was closed: then nothing is left to end."""
        if not self._ended:
            super().__del__()


class KafkaAppender(_SelfEndingClient, Producer):
    """An appender that knows why it cannot connect, and which error has ended it.

    Confluent's client raises the error that ends it (a fatal one) out of whichever call happens to
    serve its callbacks first, and once. Here it is told to `connections`, as every other error is;
    each record that was not sent is told its fate, and `produce` raises the error from then on.
    Confluent's `produce` says only that there was one, in an error that is not marked as fatal.

    An error that a client raises while another one is handled is never freed (Confluent 2.9), nor
    are the frames that led there, nor the client with its threads. So nobody polls or flushes one
    in an `except`.
    """

    def produce(self, *record: Any, **beside: Any) -> None:
        """Queue a record, as Confluent's client does.
        Raises KafkaException: the client takes no record, or (then the error is fatal) none any
        more. Raises BufferError: its queue is full.
        """
        try:
            super().produce(*record, **beside)
        except KafkaException as refused:
            if refused.args[0].code() != _FATAL:
                raise
        else:
            return
        raise KafkaException(self._end())

    def _end(self) -> KafkaError:
        """Return what has ended it: callbacks tell, which another thread may be serving now."""
        for _ in range(_END_POLLS):
            if self.connections.ended is not None:
                return self.connections.ended
            self.poll(_END_POLL_S)
        return KafkaError(_FATAL, "the client has ended", fatal=True)

    def expect(self, topic: str) -> None:
        """Have the brokers be asked about a topic as soon as they answer; waits for nothing.

        librdkafka asks about all topics that it knows of when it connects. For one that it hears of
        later it looks only once a second, and until then its first record waits.
        """
        with suppress(KafkaException):  # there is no connection yet, so it always fails
            self.list_topics(topic, 0)

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks, and wait up to `timeout` seconds for the first; return their number."""
        try:
            return int(super().poll(timeout))
        except KafkaException as ended:
            self.connections(ended.args[0])
            return 1

    def flush(self, timeout: float = -1) -> int:
        """Wait up to `timeout` seconds for the fates of all records; return how many lack it."""
        try:
            return int(super().flush(timeout))
        except KafkaException as error:
            ended = error.args[0]
        self.connections(ended)
        return int(super().flush(timeout))


def reader(
    connection: Mapping[str, Any],
    kind: Kind,
    *,
    eof: bool = False,
    on_error: Callable[[KafkaError], None] | None = None,
) -> KafkaReader:
    """Return a reader that connects in the background.

    ``connection``: of `Settings.client_config()`; what else it names wins over the kind. ``eof``:
    it also gives a message without a record at the end of a partition.
    """
    consumer = KafkaReader(_reading(connection, kind, eof=eof))
    consumer.connections.also = on_error
    return consumer


def column_reader(
    connection: Mapping[str, Any],
    kind: Kind,
    *,
    eof: bool = False,
    on_error: Callable[[KafkaError], None] | None = None,
) -> ColumnReader:
    """Return a reader that gives records in columns, and connects in the background.

    ``eof``: it also gives a failure at the end of a partition.
    """
    from streamydb.kafka.librdkafka import ColumnReader

    consumer = ColumnReader(_reading(connection, kind, eof=eof))
    consumer.connections.also = on_error
    return consumer


def _reading(connection: Mapping[str, Any], kind: Kind, *, eof: bool) -> dict[str, Any]:
    return {**_READER, **kind, "enable.partition.eof": eof, **connection}


def appender(connection: Mapping[str, Any], kind: Kind, *topics: str) -> KafkaAppender:
    """Return an appender that connects in the background.

    ``kind``: what it appends; `{**LOG, "linger.ms": 2}` adds what only the caller knows.
    ``topics``: where to; the first record of another one may wait for a second.
    """
    producer = KafkaAppender({**_APPENDER, **kind, **connection})
    for topic in topics:
        producer.expect(topic)
    return producer


def administrator(connection: Mapping[str, Any]) -> KafkaAdministrator:
    """Return a client for administration that connects in the background."""
    return KafkaAdministrator({**connection, "log_level": 0, "socket.timeout.ms": 10_000})

"""The topics that pipelines share: read the control and digest topics, write messages and roles."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamydb.errors import RecordError, StreamyError
from streamydb.kafka.clients import MESSAGES, SHARED, KafkaReader, appender, reader
from streamydb.kafka.connection import watermarks
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import assign, receive
from streamydb.records.control import Message, decode_message, encode_message

MESSAGES_MAX: Final = 500_000
"""So many of the last messages are read for who leads: half a day of a leader with a standby, of
seven days that are kept.
"""

_REQUEST_S: Final = 10.0
_BATCH: Final = 2_000
_GIVEN_UP_MS: Final = 5_000


class SharedTopicsError(StreamyError):
    """A message could not be written, or the topics cannot be read."""


class DigestRecord(NamedTuple):
    """A record of `<db>.digests`, as it is; ``told_ms``: when it was appended."""

    key: bytes | None
    value: bytes | None
    offset: int
    told_ms: int


class SharedTopics:
    """One pipeline's connection to what it shares with the others.

    The control and the digest topic have a reader each, so that no message waits behind digests.

    Attributes:
        silent: Kafka does not answer (until a record comes again).
    """

    def __init__(self, connection: Mapping[str, str], database: str, *told: str) -> None:
        """Connect in the background; the control topic is read from its beginning, or `begin_at`.

        ``told``: the feedback topics that `tell` will append to.
        """
        self._names = TopicNames(database)
        kind = {**MESSAGES, "message.timeout.ms": _GIVEN_UP_MS}
        self._connect = partial(appender, connection, kind, self._names.control, *told)
        self._producer = self._connect()
        self._connection = connection
        self._consumer = reader(connection, SHARED, on_error=self._note)
        self._digests: KafkaReader | None = None
        self.silent = False
        self._reads = False

    def close(self) -> None:
        self._consumer.close()
        if self._digests is not None:
            self._digests.close()
        self._producer.flush(1)

    def ends(self) -> tuple[int, int]:
        """The offsets after the last control record and digest there are; 0: none (any more).

        Best asked before anything is read: a broker answers one request of a connection after
        another, and a read waits for up to a second.
        Raises SharedTopicsError: Kafka does not answer.
        """
        control, digests = (self._end(name) for name in self._names.shared())
        return control, digests

    def _end(self, topic: str) -> int:
        try:
            low, high = watermarks(self._consumer, topic, 0, _REQUEST_S)
        except KafkaException as error:
            raise SharedTopicsError(f"{topic}: {error.args[0].str()}") from error
        return high if high > low else 0

    def position(self) -> int:
        """The offset of the next control record to be read."""
        self._begin_reading()
        positions = self._consumer.position([TopicPartition(self._names.control, 0)])
        return max(0, int(positions[0].offset))

    def poll(self, timeout_s: float) -> list[Message]:
        """Messages that have come, waiting for the first."""
        self._begin_reading()
        messages: list[Message] = []
        for record in receive(self._consumer, _BATCH, timeout_s).records:
            self.silent = False
            with suppress(RecordError):
                messages.append(decode_message(record.value()))
        self._producer.poll(0)
        return messages

    def begin_at(self, first: int) -> None:
        """Read messages from an offset on, or from the first one that is kept."""
        if self._reads:  # for a moment its position would be the old one
            self._consumer.close()
            self._consumer = reader(self._connection, SHARED, on_error=self._note)
        self._reads = True
        assign(self._consumer, self._names.control, {0: first})

    def _begin_reading(self) -> None:
        if not self._reads:
            self.begin_at(0)

    def read_digests(self, first: int) -> None:
        """Begin to read digests at an offset, or at the first one that is kept."""
        self._digests = reader(self._connection, SHARED, on_error=self._note)
        assign(self._digests, self._names.digests, {0: first})

    def digests(self) -> list[DigestRecord]:
        """Digests that have come since `read_digests`; some of them, if they are many."""
        if self._digests is None:
            return []
        records = receive(self._digests, _BATCH, 0).records
        if records:
            self.silent = False
        return [
            DigestRecord(each.key(), each.value(), each.offset(), each.timestamp()[1])
            for each in records
        ]

    def say(self, message: Message) -> None:
        """Append a message; it is given up after five seconds.
        Raises SharedTopicsError: it cannot be sent now.
        """
        self._append(self._names.control, encode_message(message))
        self._producer.poll(0)

    def tell(self, topic: str, block: bytes) -> int:
        """Append a block to a feedback topic, wait until it is safe, and return its offset.
        Raises SharedTopicsError: it was not written.
        """
        written: list[int] = []
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            if error is not None:
                failed.append(self._producer.connections.cause(error))
            else:
                written.append(record.offset())

        self._append(topic, block, on_delivery=delivered)
        ends_s = time.monotonic() + _REQUEST_S
        while not (written or failed) and time.monotonic() < ends_s:
            self._producer.poll(0.05)
        if not written:
            why = KafkaException(failed[0]) if failed else TimeoutError()
            reasons = ", ".join(error.str() for error in failed) or "no answer"
            raise SharedTopicsError(f"{topic} took no record: {reasons}") from why
        return written[0]

    def _append(self, topic: str, value: bytes, **beside: Any) -> None:
        """Queue a record. An error may have ended the client, so the next record gets a new one."""
        try:
            self._producer.produce(topic, value, partition=0, **beside)
        except KafkaException as error:
            self._producer = self._connect()
            raise SharedTopicsError(f"{topic} takes no record: {error.args[0].str()}") from error

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
            self.silent = True

"""Append many records to a topic: the counterpart of `reader`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, NoReturn, Self

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Message

from streamydb.errors import StreamyError
from streamydb.kafka.clients import BULK, appender


class DeliveryReport(NamedTuple):
    """Kafka's report of a record that was appended.

    Attributes:
        offset: None if it was not appended.
        has_own_time: True if it has the time that its appender gave it, not the broker's.
    """

    offset: int | None
    has_own_time: bool


Delivered = Callable[[KafkaError | None, DeliveryReport], None]

_FLUSH_S: Final = 120.0


class TopicAppender:
    """Appends records, a bounded number at a time; at the end of its context all are safe.

    ``error``: is raised when Kafka does not take a record.

    Attributes:
        fault: why one was not taken, the first time.
        advice: what to do then.
    """

    def __init__(
        self, connection: Mapping[str, str], topic: str, error: type[StreamyError]
    ) -> None:
        self._producer = appender(connection, BULK, topic)
        self._topic = topic
        self._error = error
        self.fault: KafkaError | None = None
        self.advice = "run the same command again, it goes on where it was"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and (self._producer.flush(_FLUSH_S) or self.fault):
            self._fail()

    def append(
        self, value: bytes | None, *, delivered: Delivered | None = None, **fields: Any
    ) -> None:
        """Append a record; waits while too many are on their way.

        ``delivered``: is told what came of it; by default a fault is kept. ``fields``: its key,
        partition and timestamp, if they are given, as confluent-kafka has it.
        """
        tell = self._delivered if delivered is None else _reporting(delivered)
        while self.fault is None:
            try:
                with suppress(BufferError):
                    self._producer.produce(self._topic, value, on_delivery=tell, **fields)
                    self._producer.poll(0)
                    return
            except KafkaException as ended:
                self.fault = self.fault or ended.args[0]
            else:
                self._producer.poll(0.1)
        self._fail()

    def _delivered(self, fault: KafkaError | None, _: Message) -> None:
        self.fault = self.fault or (fault and self._producer.connections.cause(fault))

    def _fail(self) -> NoReturn:
        raise self._error(
            f"{self._topic}: Kafka did not take all records ({self.fault or 'no answer'}); "
            f"{self.advice}"
        ) from (KafkaException(self.fault) if self.fault else TimeoutError())


def _reporting(delivered: Delivered) -> Callable[[KafkaError | None, Message], None]:
    """Return the callback for the client library that tells `delivered` where a record lies."""

    def on_delivery(fault: KafkaError | None, message: Message) -> None:
        kind, _ = message.timestamp()
        delivered(fault, DeliveryReport(message.offset(), kind == TIMESTAMP_CREATE_TIME))

    return on_delivery

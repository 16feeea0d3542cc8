"""Find the next record of a partition, past the control records that Kafka has written into the
log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from streamydb.kafka.clients import NEXT_RECORDS, reader
from streamydb.kafka.errors import KafkaException, KafkaUnavailableError
from streamydb.kafka.receiving import REQUEST_S, assign, at_end, receive
from streamydb.settings import Settings

_POLL_S: Final = 0.1
_BATCH: Final = 100


class NextRecord(NamedTuple):
    """The offset of the next record of a partition, or of the partition's end if there is none.

    ``ts_ms``: when the record was appended. ``value``: what it holds.
    """

    offset: int
    found: bool
    ts_ms: int = 0
    value: bytes = b""


class NextRecords:
    """Reads a topic at places; connects at the first question, and stays connected.

    Records of Kafka transactions that were aborted are records, as they are for the pipeline.

    Args:
        settings: the connection.
        topic: what is read.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._lock = threading.Lock()
        self._consumer: Any = None

    def find(self, places: Mapping[int, int]) -> dict[int, NextRecord]:
        """Return the first record at or after each place; waits for Kafka, for a bounded time.

        Raises:
            KafkaUnavailableError: Kafka does not answer.
        """
        with self._lock:
            try:
                return self._find(places)
            except KafkaException as error:
                raise KafkaUnavailableError(f"{self._topic}: {error.args[0].str()}") from error

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _find(self, places: Mapping[int, int]) -> dict[int, NextRecord]:
        if self._consumer is None:
            self._consumer = reader(self._settings.client_config(), NEXT_RECORDS, eof=True)
        consumer = self._consumer
        assign(consumer, self._topic, places)
        found: dict[int, NextRecord] = {}
        ends_s = time.monotonic() + REQUEST_S
        try:
            while len(found) < len(places) and time.monotonic() < ends_s:
                for message in receive(consumer, _BATCH, _POLL_S):
                    number = message.partition()
                    if message.error() is None:
                        _, ts_ms = message.timestamp()
                        value = message.value() or b""
                        found.setdefault(number, NextRecord(message.offset(), True, ts_ms, value))
                    elif at_end(message):
                        found.setdefault(number, NextRecord(message.offset(), found=False))
        finally:
            consumer.unassign()
        if not found:
            raise KafkaUnavailableError(f"{self._topic} cannot be read")
        return found

"""Read the outputs of the real-time gear back, in a thread of the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from streamydb.kafka.clients import SHARED, reader
from streamydb.kafka.receiving import assign_ends, receive
from streamydb.pipeline.realtime.confirmations import SeenOutputs

__all__ = ["OutputReader"]

_BATCH: Final = 5_000
_POLL_S: Final = 0.1
_REQUEST_S: Final = 10.0


class OutputReader:
    """Tells which outputs are in Kafka, from the moment on at which it was made.

    Args:
        connection: settings of confluent-kafka.
        topics: numbers of the output topics (`txn_processor.outputs`) by their names.
        see: is told the hashes of what has come.
    """

    def __init__(
        self,
        connection: Mapping[str, str],
        topics: Mapping[str, int],
        see: Callable[[Sequence[int]], None],
    ) -> None:
        """Find the ends of the topics.

        Raises:
            KafkaException: Kafka does not answer.
        """
        self._numbers = topics
        self._see = see
        self._seen = SeenOutputs()
        self._consumer = reader({**connection, "fetch.wait.max.ms": "100"}, SHARED)
        assign_ends(self._consumer, topics, _REQUEST_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamydb-readback", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            found: dict[int, tuple[list[bytes], list[bytes]]] = {}
            for record in receive(self._consumer, _BATCH, _POLL_S):
                if record.error() is None:
                    number = self._numbers[record.topic() or ""]
                    keys, values = found.setdefault(number, ([], []))
                    keys.append(record.key() or b"")
                    values.append(record.value() or b"")
            for number, (keys, values) in found.items():
                self._see(self._seen.hashes(number, keys, values))

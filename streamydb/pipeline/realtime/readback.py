"""Read the outputs of the real-time gear back, in a thread of the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from streamydb.kafka.clients import SHARED, reader
from streamydb.kafka.receiving import add_partition, assign_ends, receive
from streamydb.pipeline.realtime.confirmations import SeenOutputs

__all__ = ["OutputReader"]

_BATCH: Final = 5_000
_POLL_S: Final = 0.5
_REQUEST_S: Final = 10.0

_PAUSE_S: Final = 0.002
"""A group comes in several answers of Kafka; after the first, the thread waits for the others."""

_FETCHING: Final = {
    "fetch.wait.max.ms": "100",
    "queued.min.messages": "1",
    "fetch.queue.backoff.ms": "2",
}
"""What was not taken yet delays the next request, so a busy log costs one request in 2 ms."""


class OutputReader:
    """Tells which outputs are in Kafka, from the moment on at which it was made.

    The log is read back only once it has follow-ups: most of its records are transactions of
    clients, and each would cost a request.

    Args:
        connection: settings of confluent-kafka.
        topics: numbers of the output topics (`txn_processor.outputs`) by their names.
        log: the one of these topics that is the log.
        see: is told the hashes of what has come, if anything; returns when to ask again (s).
    """

    def __init__(
        self,
        connection: Mapping[str, str],
        topics: Mapping[str, int],
        log: str,
        see: Callable[[Sequence[int]], float],
    ) -> None:
        """Find the ends of the topics. Raises KafkaException: Kafka does not answer."""
        self._numbers = topics
        self._log = log
        self._log_begin: int | None = None
        self._reads_log = False
        self._see = see
        self._seen = SeenOutputs()
        self._consumer = reader({**connection, **_FETCHING}, SHARED)
        assign_ends(self._consumer, topics.keys() - {log}, _REQUEST_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamydb-readback", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def read_log(self, begin: int) -> None:
        """Read the log, too, from offset ``begin`` on, unless it is read already."""
        if self._log_begin is None:
            self._log_begin = begin

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        self._consumer.close()

    def _run(self) -> None:
        wait_s = _POLL_S
        while not self._stop.wait(_PAUSE_S):
            if self._log_begin is not None and not self._reads_log:
                add_partition(self._consumer, self._log, 0, self._log_begin)
                self._reads_log = True
            outputs: dict[int, tuple[list[bytes], list[bytes]]] = {}
            for record in receive(self._consumer, _BATCH, wait_s).records:
                number = self._numbers[record.topic() or ""]
                keys, values = outputs.setdefault(number, ([], []))
                keys.append(record.key() or b"")
                values.append(record.value() or b"")
            hashes: list[int] = []
            for number, (keys, values) in outputs.items():
                hashes += self._seen.hashes(number, keys, values)
            wait_s = min(_POLL_S, self._see(hashes))

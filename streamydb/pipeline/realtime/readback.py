"""Read the outputs of the real-time gear back, in a thread of the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

from streamydb.frames.table import Ragged
from streamydb.kafka import librdkafka
from streamydb.kafka.clients import SHARED, Kind, column_reader
from streamydb.kafka.columns import OneRecord, RecordColumns
from streamydb.kafka.receiving import TopicEnds
from streamydb.pipeline.realtime.confirmations import Confirmations, SeenOutputs, group_hashes
from streamydb.pipeline.realtime.messages import Executed
from streamydb.pipeline.realtime.output_tables import Hashes
from streamydb.txn_processor.outputs import CHANGES, OutputRecords

__all__ = ["OutputReader", "compile_kernels"]

_BATCH: Final = 5_000
_POLL_S: Final = 0.5

_PAUSE_S: Final = 0.002
"""A group comes in several answers of Kafka; after the first, the thread waits for the others."""

_BUSY_RECORDS: Final = 50
_BUSY_PAUSE_S: Final = 0.008
"""After so many records: looking up costs as much as hundreds of records do, and a resolved record
comes every 10 ms at most."""

_FETCHING: Final[Kind] = {
    **SHARED,
    "fetch.wait.max.ms": 100,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 2,
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
        see: Callable[[Hashes], float],
    ) -> None:
        """Find the ends of the topics.
        Raises KafkaUnavailableError, KafkaException: Kafka does not answer or refuses.
        """
        compile_kernels()
        self._log = log, topics[log]
        self._log_begin: int | None = None
        self._reads_log = False
        self._see = see
        self._seen = SeenOutputs()
        self._reader = column_reader(connection, _FETCHING)
        with closing(TopicEnds(connection)) as ends:
            for topic in topics.keys() - {log}:
                self._reader.add(topic, topics[topic], ends.look(topic))
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
        self._reader.close()

    def _run(self) -> None:
        wait_s, pause_s = _POLL_S, _PAUSE_S
        while not self._stop.is_set():
            time.sleep(pause_s)
            if self._log_begin is not None and not self._reads_log:
                self._reader.add(*self._log, {0: self._log_begin})
                self._reads_log = True
            records = self._reader.take(_BATCH, wait_s).records
            hashes = self._seen.hashes(records.topics, records.keys, records.values)
            wait_s = min(_POLL_S, self._see(hashes))
            pause_s = _PAUSE_S if len(hashes) < _BUSY_RECORDS else _BUSY_PAUSE_S


def compile_kernels() -> None:
    """Compile what a group's outputs pass, or load it: no group waits for that then."""
    librdkafka.compile_kernels()
    texts = Ragged.of([b"x"])
    told = group_hashes([OutputRecords(CHANGES, texts, texts)]).tobytes()
    read = RecordColumns.of([OneRecord(0, 0, b"x", b"x")])
    confirmations = Confirmations()
    confirmations.add(Executed(1, 1, 0, told))
    confirmations.see(SeenOutputs().hashes(read.topics + CHANGES, read.keys, read.values))

"""Wait for the verdicts of transactions."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Self

from confluent_kafka import KafkaException

from streamydb.errors import RecordError, StreamyError
from streamydb.kafka.clients import FOLLOWING, reader
from streamydb.kafka.connection import RefusedError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import assign_ends, receive
from streamydb.records import Result, decode_result
from streamydb.settings import Settings

REMEMBERED: Final = 100_000  # how many results are kept for those who ask later
_POLL_S: Final = 0.05
_BATCH: Final = 1_000
_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 1.0


class ResultTimeoutError(StreamyError):
    """No result came in time; the transaction may still be decided."""


class ResultReader:
    """Follows a database's results from the moment it is made, and hands them to who waits.

        with ResultReader(settings) as results:
            where = producer.append(transaction)
            results.wait_at(where.partition, where.offset)

    Make it before the transaction is appended. The topic may hold a result twice after a crash of
    the pipeline.

    Args:
        settings: the database and the connection.
        remembered: how many results are kept for those who ask later.
        patience_s: how long Kafka may take to tell of the topic.
        look: called every second while a result is waited for; what it raises ends the waiting.

    Attributes:
        error: what is wrong with the topic, or was with its last record.
        duplicates: how many results came again.

    Raises StreamyError: the topic is missing or Kafka does not answer.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        remembered: int = REMEMBERED,
        patience_s: float = _TIMEOUT_S,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        self._topic = TopicNames(settings.database).results
        self._remembered = remembered
        self._look = look
        self._results: OrderedDict[tuple[int, int], Result] = OrderedDict()
        self._came = threading.Condition()
        self.error: str | None = None
        self.duplicates = 0
        self._consumer = reader(settings.client_config(), FOLLOWING)
        try:
            assign_ends(self._consumer, [self._topic], patience_s)
        except RefusedError:
            self._consumer.close()
            raise
        except KafkaException as error:
            self._consumer.close()
            raise StreamyError(
                f"{self._topic} cannot be followed: {error.args[0].str()}. Does the database exist "
                "(`streamydb create`) and does Kafka run (`streamydb up`)?"
            ) from error
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamydb-results", daemon=True)
        self._thread.start()

    def wait_at(self, partition: int, offset: int, timeout_s: float = _TIMEOUT_S) -> Result:
        """Wait for the result of the record at this position in the log.
        Raises ResultTimeoutError: none came within `timeout_s` seconds, or the reader was closed.
        """
        position = (partition, offset)
        with self._came:
            # Wait, with the lock held, until there is a result, this is closed, or the time is up.
            def ended() -> bool:
                return position in self._results or self._stop.is_set()

            deadline = time.monotonic() + timeout_s
            while not ended() and (left := deadline - time.monotonic()) > 0:
                if not self._came.wait_for(ended, min(left, _LOOK_S)):
                    self._look()
            result = self._results.get(position)
        if result is not None:
            return result
        if self._stop.is_set():
            raise ResultTimeoutError("the reader of results was closed")
        error_text = f" ({self.error})" if self.error else ""
        raise ResultTimeoutError(
            f"no result for partition {partition}, offset {offset} in {self._topic} within "
            f"{timeout_s:g} s{error_text}; it may still come. Is the pipeline running (`streamydb "
            "status`)?"
        )

    def close(self) -> None:
        """End; those who still wait get a `ResultTimeoutError`. Further calls do nothing."""
        if self._stop.is_set():
            return
        with self._came:
            self._stop.set()
            self._came.notify_all()
        self._thread.join()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            records, failures = receive(self._consumer, _BATCH, _POLL_S)
            if records:
                with self._came:
                    for record in records:
                        self._take(record)
                    self._came.notify_all()
            for failure in failures:
                self.error = failure.error.str()

    def _take(self, record: Any) -> None:
        try:
            result = decode_result(record.value() or b"")
        except RecordError as fault:
            self.error = f"offset {record.offset()} of {self._topic}: {fault}"
            return
        self.error = None
        source = result.duplicate or result.source
        position = (source.partition, source.offset)
        if position in self._results:
            self.duplicates += 1
            return
        self._results[position] = result
        if len(self._results) > self._remembered:
            self._results.popitem(last=False)

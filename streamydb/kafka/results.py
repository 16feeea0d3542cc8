"""Wait for the verdicts of transactions."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Self, TypeAlias

import msgspec
from confluent_kafka import KafkaException, TopicPartition

from streamydb.errors import StreamyError
from streamydb.kafka.clients import FOLLOWING, PARTITION_EOF, reader
from streamydb.kafka.connection import RefusedError, metadata, watermarks
from streamydb.kafka.names import TopicNames
from streamydb.records.formats import FORMAT, UNREADABLE
from streamydb.settings import Settings

__all__ = ["Result", "ResultReader", "ResultTimeoutError"]

Result: TypeAlias = dict[str, Any]
"""A record of the results topic, decoded."""

REMEMBERED = 100_000
"""How many results are kept for those who ask later, and how many seqs to drop duplicates by."""

_POLL_S = 0.25
_BATCH = 1_000
_TIMEOUT_S = 30.0

_Position: TypeAlias = tuple[int, int]


class ResultTimeoutError(StreamyError):
    """No result came in time; the transaction may still be decided."""


class ResultReader:
    """Follows a database's results from the moment it is made, and hands them to who waits.

        with ResultReader(settings) as results:
            where = producer.append(transaction)
            results.wait_at(where.partition, where.offset)

    Make it before the transaction is appended. A result is delivered once, though the topic may
    hold it twice after a crash of the pipeline. Where one id is appended repeatedly, ask by
    position.

    Args:
        settings: the database and the connection.
        on_result: called, in the reader's thread, with every result.
        remembered: how many results are kept for those who ask later.

    Raises:
        StreamyError: the topic is missing or Kafka does not answer.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        on_result: Callable[[Result], None] | None = None,
        remembered: int = REMEMBERED,
    ) -> None:
        """Take note of the end of the topic and start to follow it."""
        self._topic = TopicNames(settings.database).results
        self._on_result = on_result
        self._remembered = remembered
        self._lock = threading.Lock()
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._by_position: OrderedDict[_Position, Result] = OrderedDict()
        self._by_id: dict[str, Result] = {}
        self._wanted_ids: dict[str, list[Future[Result]]] = {}
        self._wanted_positions: dict[_Position, list[Future[Result]]] = {}
        self.error: str | None = None
        self.duplicates = 0
        self._consumer = reader(settings.client_config(), FOLLOWING)
        self._assign_ends()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamydb-results", daemon=True)
        self._thread.start()

    def expect(self, transaction_id: str) -> Future[Result]:
        """Return a future of the next result with this id, or of the last one if it was seen."""
        with self._lock:
            future: Future[Result] = Future()
            if transaction_id in self._by_id:
                future.set_result(self._by_id[transaction_id])
            else:
                self._wanted_ids.setdefault(transaction_id, []).append(future)
            return future

    def expect_at(self, partition: int, offset: int) -> Future[Result]:
        """Return a future of the result of the record at this place in the log."""
        position = (partition, offset)
        with self._lock:
            future: Future[Result] = Future()
            if position in self._by_position:
                future.set_result(self._by_position[position])
            else:
                self._wanted_positions.setdefault(position, []).append(future)
            return future

    def wait(self, transaction_id: str, timeout_s: float = _TIMEOUT_S) -> Result:
        """Wait for a result with this id.

        Raises:
            ResultTimeoutError: none came within `timeout_s` seconds.
        """
        return self._wait(self.expect(transaction_id), f"id {transaction_id!r}", timeout_s)

    def wait_at(self, partition: int, offset: int, timeout_s: float = _TIMEOUT_S) -> Result:
        """Wait for the result of the record at this place in the log, as `wait` does."""
        what = f"partition {partition}, offset {offset}"
        return self._wait(self.expect_at(partition, offset), what, timeout_s)

    async def wait_awaited(
        self, partition: int, offset: int, timeout_s: float = _TIMEOUT_S
    ) -> Result:
        """Wait from a coroutine, as `wait_at` does from a thread."""
        future = self.expect_at(partition, offset)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
        except TimeoutError:
            self._forget(future)
            raise self._late(f"partition {partition}, offset {offset}", timeout_s) from None

    def close(self) -> None:
        """End; those who still wait get a `ResultTimeoutError`. Further calls do nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        self._consumer.close()
        with self._lock:
            lists = [*self._wanted_ids.values(), *self._wanted_positions.values()]
            self._wanted_ids.clear()
            self._wanted_positions.clear()
        for future in (future for futures in lists for future in futures):
            if future.set_running_or_notify_cancel():
                future.set_exception(ResultTimeoutError("the reader of results was closed"))

    def __enter__(self) -> Self:
        """Return the reader itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()

    def _assign_ends(self) -> None:
        """Be assigned all partitions, each from its present end on."""
        try:
            consumer = self._consumer
            found = metadata(consumer, self._topic, _TIMEOUT_S)
            topic = found.topics[self._topic]
            if topic.error is not None:
                raise KafkaException(topic.error)  # noqa: TRY301 - as list_topics itself does
            places = []
            for number in sorted(topic.partitions):
                _, end = watermarks(consumer, self._topic, number, _TIMEOUT_S)
                places.append(TopicPartition(self._topic, number, end))
            self._consumer.assign(places)
        except RefusedError:
            self._consumer.close()
            raise
        except KafkaException as error:
            self._consumer.close()
            msg = (
                f"{self._topic} cannot be followed: {error.args[0].str()}. Does the database exist "
                "(`streamydb create`) and does Kafka run (`streamydb up`)?"
            )
            raise StreamyError(msg) from error

    def _run(self) -> None:
        """Follow the topic until closed."""
        while not self._stop.is_set():
            first = self._consumer.poll(_POLL_S)
            if first is None:
                continue
            for message in (first, *self._consumer.consume(_BATCH, timeout=0)):
                self._take(message)

    def _take(self, message: Any) -> None:
        """Take in one record or error."""
        error = message.error()
        if error is not None:
            self.error = None if error.code() == PARTITION_EOF else error.str()
            return
        self.error = None
        try:
            result = msgspec.json.decode(message.value() or b"", type=Result)
            again = result.get("duplicate") or result
            seq, source = again["seq"], result["source"]
            position = (again["partition"], again["offset"]) if again is not result else None
            place = position or (source["partition"], source["offset"])
        except (*UNREADABLE, KeyError, TypeError):
            self.error = f"offset {message.offset()} of {self._topic} is not a result"
            return
        if result.get("format", FORMAT) != FORMAT:
            where, later = f"offset {message.offset()} of {self._topic}", result["format"]
            self.error = f"{where} has format {later}, this release reads {FORMAT}: upgrade it"
            return
        if seq in self._seen:
            self.duplicates += 1
            return
        self._remember(seq, place, result)
        if self._on_result is None:
            return
        try:
            self._on_result(result)
        except Exception as error:  # noqa: BLE001 - the caller's code must not end the reader
            self.error = f"on_result raised {error!r} at seq {seq}"

    def _remember(self, seq: int, place: _Position, result: Result) -> None:
        """Keep a result for a while and hand it to who waits for it."""
        with self._lock:
            self._seen[seq] = None
            self._by_position[place] = result
            name = result.get("id")
            if name is not None:
                self._by_id[name] = result
            if len(self._seen) > self._remembered:
                self._seen.popitem(last=False)
                _, old = self._by_position.popitem(last=False)
                if old.get("id") in self._by_id and self._by_id[old["id"]] is old:
                    del self._by_id[old["id"]]
            waiting = self._wanted_positions.pop(place, [])
            waiting += self._wanted_ids.pop(name, []) if name is not None else []
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(result)

    def _wait(self, future: Future[Result], what: str, timeout_s: float) -> Result:
        """Wait for a future."""
        try:
            return future.result(timeout_s)
        except FutureTimeoutError:
            self._forget(future)
            raise self._late(what, timeout_s) from None

    def _late(self, what: str, timeout_s: float) -> ResultTimeoutError:
        """Return the error of a result that did not come."""
        shown = f" ({self.error})" if self.error else ""
        msg = (
            f"no result for {what} in {self._topic} within {timeout_s:g} s{shown}; it may still "
            "come. Is the pipeline running (`streamydb status`)?"
        )
        return ResultTimeoutError(msg)

    def _forget(self, future: Future[Result]) -> None:
        """Take a future off the lists of those who wait."""
        future.cancel()
        with self._lock:
            for wanted in (self._wanted_ids, self._wanted_positions):
                _drop_cancelled(wanted)


def _drop_cancelled(wanted: dict[Any, list[Future[Result]]]) -> None:
    """Drop the futures whose waiters have gone."""
    for name in list(wanted):
        wanted[name] = [future for future in wanted[name] if not future.cancelled()]
        if not wanted[name]:
            del wanted[name]

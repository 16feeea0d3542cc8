"""Append transactions to the log."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Self

import msgspec
from confluent_kafka import KafkaError, KafkaException

from streamydb.errors import StreamyError
from streamydb.kafka.clients import LOG, UNKNOWN_TOPIC, KafkaAppender, appender
from streamydb.kafka.connection import PURGE_QUEUE, UNKNOWN_PARTITION, ConnectionState
from streamydb.kafka.names import TopicNames
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.settings import Settings

_NEVER_APPENDED: Final = {
    PURGE_QUEUE, UNKNOWN_PARTITION, UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_REQUIRED_ACKS, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}  # fmt: skip
"""Dropped unsent, or refused before the broker writes. After any other error a record may be there.

A broker whose disk is full, say, tells "unknown error", and may have written some of a batch.
"""


class AppendError(StreamyError):
    """A transaction was not appended."""


class AppendUnknownError(AppendError):
    """It is not known whether a transaction was appended; appending it again is safe."""


class Appended(NamedTuple):
    """The position of a transaction in the log, and when the broker appended it (ms since 1970)."""

    partition: int
    offset: int
    timestamp_ms: int


def encode(transaction: bytes | Mapping[str, Any]) -> bytes:
    """Return a transaction's record."""
    return transaction if isinstance(transaction, bytes) else msgspec.json.encode(transaction)


def explain(
    error: KafkaError, topic: str, connections: ConnectionState, *, sent: bool = True
) -> AppendError:
    """Turn Kafka's error into one that says what to do.

    Args:
        error: what the client library says of a record.
        topic: the log.
        connections: of the client; it knows why the brokers refuse us, if they do, and which error
            ended the client, so that what it had not sent yet was dropped.
        sent: False if the client did not take the record.
    """
    known = not sent or error.code() in _NEVER_APPENDED
    error = connections.cause(error)
    code, text = error.code(), f"{topic}: {error.str()}"
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        limit = f"a transaction has at most {TRANSACTION_BYTES_MAX} bytes: split it"
        return AppendError(f"{topic}: the record is too large; {limit}")
    if not known:
        text = connections.refusal or text
        msg = f"{text}; it may be in the log or not: append the same bytes again"
        return AppendUnknownError(msg)
    if code == UNKNOWN_PARTITION:
        return AppendError(f"{text}; the topic has fewer partitions")
    if code in (UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
        database = topic.removesuffix(".transactions")
        return AppendError(f"{text}; run `streamydb create --database {database}`")
    if "authorization failed" in text:
        return AppendError(f"{text}; grant this user the rights of its role (`streamydb acls`)")
    return AppendError(text)


_LOG = logging.getLogger("streamydb")

TIMEOUT_S = 120.0  # how long an append is tried while the broker does not answer
WINDOW = 10_000  # how many records `append_many` has under way at most
_POLL_S = 0.05
_IDLE_S = 0.5
# A fenced client is replaced; when its successors fail as well, the cause lies elsewhere.
_FATAL_MAX = 3

OnDelivery = Callable[[Appended | None, AppendError | None], None]
"""Called once for each record, with where it is or with why it is not there.

What it raises is logged, and keeps no other record from being told of.
"""


class Producer:
    """Appends transactions to a database's log, each once, those of one partition in order.

        with Producer(settings) as producer:
            producer.append({"id": "a", "updates": [{"op": "put", "key": "k", "value": 1}]})

    A transaction is its record's bytes or a mapping of the same shape; the log's readers judge it.
    Threads may share a producer. When the local queue is full (100,000 records or 64 MB), appending
    blocks until the broker has taken some.

    Args:
        settings: the database and the connection.
        timeout_s: how long a record is tried while the broker does not answer.
        linger_ms: how long a record waits for others to share its batch.
    """

    def __init__(
        self, settings: Settings, *, timeout_s: float = TIMEOUT_S, linger_ms: float = 2
    ) -> None:
        self._topic = TopicNames(settings.database).transactions
        self._timeout_s = timeout_s
        timing = {"linger.ms": linger_ms, "message.timeout.ms": round(timeout_s * 1000)}
        self._connect = partial(appender, settings.client_config(), {**LOG, **timing}, self._topic)
        self._dropped: deque[Callable[[], None]] = deque()
        self._client: KafkaAppender = self._connect()
        self._replacing = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()  # something is under way, or this is closed
        self._thread = threading.Thread(target=self._serve, name="streamydb-producer", daemon=True)
        self._thread.start()

    def append(
        self,
        transaction: bytes | Mapping[str, Any],
        *,
        partition: int | None = None,
        key: bytes | str | None = None,
        timeout_s: float | None = None,
    ) -> Appended:
        """Append a transaction and wait until it is safe.

        Args:
            transaction: its bytes, or a mapping of the same shape.
            partition: where to append it; else `key` decides; else it goes anywhere.
            key: records with one key go to one partition.
            timeout_s: how long to wait; by default as long as the record is tried.

        Raises:
            AppendUnknownError: no answer in time; appending the same bytes again is safe.
            AppendError: the broker refuses it.
        """
        waited = self._timeout_s + 5 if timeout_s is None else timeout_s
        future = self.submit(transaction, partition=partition, key=key)
        try:
            return future.result(waited)
        except FutureTimeoutError:
            refusal = self._client.connections.refusal
            why = f" ({refusal})" if refusal else ""
            msg = f"{self._topic}: no answer within {waited:g} s{why}; append the same bytes again"
            raise AppendUnknownError(msg) from None

    def submit(
        self,
        transaction: bytes | Mapping[str, Any],
        *,
        partition: int | None = None,
        key: bytes | str | None = None,
    ) -> Future[Appended]:
        """Append a transaction in the background; errors of `append` come through the future."""
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()

        def deliver(appended: Appended | None, error: AppendError | None) -> None:
            if appended is not None:
                future.set_result(appended)
            else:
                future.set_exception(error)

        try:
            self.append_async(transaction, deliver, partition=partition, key=key)
        except AppendError as refused:
            # What the client of Kafka has learned of the topic it tells before it takes a record.
            future.set_exception(refused)
        return future

    def append_async(
        self,
        transaction: bytes | Mapping[str, Any],
        on_delivery: OnDelivery,
        *,
        partition: int | None = None,
        key: bytes | str | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Append a transaction and be called back, in another thread, when its fate is known.
        Raises AppendError: it cannot be sent; there will be no call.
        """
        value = encode(transaction)
        # Put a record into the local queue, waiting while it is full.
        if self._stop.is_set():
            raise AppendError(f"{self._topic}: the producer is closed")
        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        more |= _beside(headers)
        deadline = time.monotonic() + self._timeout_s
        fatal = 0
        while True:
            client = self._client
            callback = self._telling(on_delivery, client.connections)
            refused: KafkaError | None = None
            try:
                client.produce(self._topic, value, key, on_delivery=callback, **more)
            except BufferError:
                pass
            except KafkaException as error:
                refused = error.args[0]
            else:
                self._wake_up()
                return
            if refused is None:
                if time.monotonic() > deadline:
                    msg = f"{self._topic}: the broker has taken nothing for {self._timeout_s:g} s"
                    raise AppendError(msg)
                client.poll(0.05)
                continue
            fatal += 1
            if not refused.fatal() or fatal > _FATAL_MAX:
                raise explain(refused, self._topic, client.connections, sent=False)
            self._replace(client)

    def append_at_once(
        self,
        transaction: bytes | Mapping[str, Any],
        on_delivery: OnDelivery,
        *,
        headers: Mapping[str, bytes] | None = None,
    ) -> bool:
        """Append as `append_async`, if that takes no waiting; False: nothing was appended."""
        value = encode(transaction)
        if self._stop.is_set():
            return False
        client = self._client
        callback = self._telling(on_delivery, client.connections)
        try:
            client.produce(self._topic, value, on_delivery=callback, **_beside(headers))
        except (BufferError, KafkaException):
            return False
        self._wake_up()
        return True

    def append_many(
        self, transactions: Iterable[bytes | Mapping[str, Any]], *, window: int = WINDOW
    ) -> Iterator[Appended]:
        """Append transactions, many at a time; yield where each is, in their order.

        It reads ahead of what it has yielded by `window` records at most, and only as it is
        iterated over. The first error of any of them ends it; those under way may be in the log.
        """
        under_way: deque[Future[Appended]] = deque()
        for transaction in transactions:
            under_way.append(self.submit(transaction))
            while under_way and (under_way[0].done() or len(under_way) >= window):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything that was appended is safe or has failed.
        Raises AppendUnknownError: that took too long.
        """
        left = self._client.flush(self._timeout_s + 5 if timeout_s is None else timeout_s)
        self._tell_dropped(len(self._dropped))
        if left:
            msg = f"{self._topic}: {left} records are still unanswered; is the broker running?"
            raise AppendUnknownError(msg)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and end. Further calls do nothing."""
        if self._stop.is_set():
            return
        try:
            self.flush(timeout_s)
        finally:
            self._stop.set()
            self._wake_up()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _telling(
        self, on_delivery: OnDelivery, connections: ConnectionState
    ) -> Callable[[KafkaError | None, Any], None]:
        """Return the callback for the client library that reports the fate of a record.

        A client that an error has ended drops its records. One thread may hear of a record just
        before another one hears of the error, so that record is told of a little later.
        """

        def delivered(error: KafkaError | None, message: Any, *, may_wait: bool = True) -> None:
            if error is not None and error.code() == PURGE_QUEUE and may_wait:
                self._dropped.append(partial(delivered, error, message, may_wait=False))
                return
            try:
                if error is not None:
                    on_delivery(None, explain(error, self._topic, connections))
                else:
                    stamp = message.timestamp()[1]
                    on_delivery(Appended(message.partition(), message.offset(), stamp), None)
            except Exception:  # noqa: BLE001 - it would end the thread that tells all others
                _LOG.exception("%s: a callback of a delivery failed", self._topic)

        return delivered

    def _tell_dropped(self, count: int) -> None:
        """Tell of records that a client has dropped, the first so many."""
        with suppress(IndexError):  # another thread tells, too
            for _ in range(count):
                self._dropped.popleft()()

    def _replace(self, broken: KafkaAppender) -> None:
        """Continue with a new client after an error that ends the old one, such as being fenced.

        Those whose records the old one drops are told so when there is the new one: they may append
        again at once.
        """
        with self._replacing:
            if self._client is not broken:
                return
            self._client = self._connect()
        broken.purge()
        broken.flush(1)

    def _serve(self) -> None:
        """Serve the callbacks of deliveries until closed; nobody can end a poll before its time."""
        while not self._stop.is_set():
            dropped = len(self._dropped)
            if len(self._client) or dropped:
                self._client.poll(_POLL_S)
            else:
                self._wake.wait(_IDLE_S)
                self._wake.clear()
                self._client.poll(0)
            self._tell_dropped(dropped)

    def _wake_up(self) -> None:
        if not self._wake.is_set():
            self._wake.set()


def _beside(headers: Mapping[str, bytes] | None) -> dict[str, Any]:
    return {"headers": dict(headers)} if headers else {}

"""The thread that writes epoch markers while some transaction waits for them."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self

from streamydb.kafka.admin import EARLIEST, HIGHEST, LATEST, cluster, list_offsets
from streamydb.kafka.clients import FOLLOWING, LOG, MSG_TIMED_OUT, administrator, appender, reader
from streamydb.kafka.connection import metadata
from streamydb.kafka.errors import KafkaError, KafkaException
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import assign, receive
from streamydb.local.signals import stop_event
from streamydb.records.marker import Marker, decode_marker, encode_marker
from streamydb.sequencer.core import Sequencer
from streamydb.settings import Settings


class TailStart(NamedTuple):
    """The offset at which the tail of a partition begins.

    Attributes:
        offset: the first record to read.
        end: the offset after the last record there is.
        cut: whether there are records before `offset`.
        unread_highest_ms: the highest append time among the partition's records, if it is that of
            a record before `offset`; else -1.
    """

    offset: int
    end: int
    cut: bool
    unread_highest_ms: int


def find_starts(
    client_config: Mapping[str, str], topic: str, partitions: int, length: int
) -> list[TailStart]:
    """Return where the last `length` records of each partition begin."""
    admin = administrator(client_config)
    cluster(admin)  # without it a new client may wait 3 s before its first request
    numbers = range(partitions)
    first = list_offsets(admin, topic, numbers, EARLIEST)
    last = list_offsets(admin, topic, numbers, LATEST)
    highest = list_offsets(admin, topic, numbers, HIGHEST)
    starts = []
    for number in numbers:
        low, end = first[number].offset, last[number].offset
        at = max(low, end - length)
        unread = highest[number].offset in range(low, at)
        stamp = highest[number].timestamp if unread else -1
        starts.append(TailStart(at, end, at > low, stamp))
    return starts


class LogTails:
    """The tails of the partitions: how far they have been read, and what they hold."""

    def __init__(self, starts: list[TailStart]) -> None:
        self._starts = starts
        self._begun = [False] * len(starts)
        self._unread = {n for n, start in enumerate(starts) if start.offset < start.end}
        self._without = {n for n, start in enumerate(starts) if start.cut}

    @property
    def read(self) -> bool:
        """True if everything has been read that was there at the beginning."""
        return not self._unread

    @property
    def lacks_marker(self) -> bool:
        """True if some partition goes on before its tail, and its tail holds no marker."""
        return bool(self._without)

    def observe(
        self, partition: int, offset: int, append_ms: int, *, is_marker: bool
    ) -> int | None:
        """Take note of a record.

        Returns:
            At the first record of a tail that cuts off others: the highest append time that those
            are known to have, at least this record's. Else None.
        """
        start = self._starts[partition]
        first = not self._begun[partition]
        self._begun[partition] = True
        if offset + 1 >= start.end:
            self._unread.discard(partition)
        if is_marker:
            self._without.discard(partition)
        return max(start.unread_highest_ms, append_ms) if first and start.cut else None

    def at_end(self, partition: int) -> None:
        """Take note that a partition's end was reached; it may end with records of Kafka's own."""
        self._unread.discard(partition)


State = Literal["new", "starting", "idle", "waiting", "degraded", "stopped"]
"""What a marker loop does: `idle` writes nothing, `waiting` writes, `degraded` retries Kafka."""

REFRESH_S = 3.0  # how often the number of the log's partitions is looked up
_REQUEST_S = 5.0
_POLL_S = 0.5
_BATCH = 10_000
# A partition usually has a marker among its last records; where it has none, more of it is read.
_TAIL = 1_000
_TAIL_MAX = 256_000
_TAIL_GROWTH = 16


class MarkerStatus:
    """The state of a marker loop, for those who watch it.

    Attributes:
        name: written into the markers.
        rounds: how many rounds it has written.
        markers: how many markers it has written.
        records: how many records it has read.
        refreshes: how often it has looked up the number of partitions.
        failures: how often Kafka failed it.
        last_error: the last failure in words; None while all is well.
        skew_ms: how far the log's effective time is ahead of the clock here (negative: behind).
        partitions: how many partitions the log has.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: State = "new"
        self.rounds = self.markers = self.records = 0
        self.refreshes = self.failures = 0
        self.skew_ms = self.partitions = 0
        self.last_error: str | None = None


class MarkerSession:
    """One connection of a marker loop, from finding the tail of the log to its first failure."""

    def __init__(
        self,
        loop: MarkerStatus,
        settings: Settings,
        stop: threading.Event,
        clock_ms: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._stop = stop
        self._clock_ms = clock_ms
        self._topic = TopicNames(settings.database).transactions
        self._interval_ms = settings.marker_interval_ms
        self._config = settings.client_config()
        prompt = {**LOG, "linger.ms": 0, "message.timeout.ms": round(_REQUEST_S * 1000)}
        self._producer = appender(self._config, prompt, self._topic)
        self._consumer = reader(self._config, FOLLOWING, eof=True)
        self._next: dict[int, int] = {}
        self._refreshed_at = 0.0
        self._sequencer = Sequencer(1, loop.name, self._interval_ms)
        self._tail: LogTails | None = None

    def run(self) -> None:
        """Follow the log and write markers until stopped.
        Raises KafkaException: Kafka does not do what it should; begin again after a while.
        """
        try:
            while not self._stop.is_set():
                self._refresh()
                if self._loop.partitions == 1:
                    self._loop.state = "idle"
                    self._stop.wait(REFRESH_S)
                else:
                    self._step()
        finally:
            self._consumer.close()
            self._producer.purge()
            self._producer.flush(1)

    def _refresh(self) -> None:
        """Look up the number of partitions now and then, and take in the new ones."""
        now = time.monotonic()
        if self._refreshed_at and now - self._refreshed_at < REFRESH_S:
            return
        cluster = metadata(self._producer, self._topic, _REQUEST_S)
        topic = cluster.topics[self._topic]
        if topic.error is not None:
            raise KafkaException(topic.error)
        count, known = len(topic.partitions), self._loop.partitions if self._refreshed_at else 0
        self._refreshed_at = now
        self._loop.partitions = count
        self._loop.refreshes += 1
        self._loop.last_error = None
        if count == known or (known == 0 and count == 1):
            return
        if known <= 1:
            self._catch_up(count)
            if known == 1:
                self._sequencer.note_growth()
        else:
            self._sequencer.set_partitions(count)
            self._next |= dict.fromkeys(range(known, count), 0)
            self._assign()

    def _catch_up(self, count: int) -> None:
        """Read the ends of the partitions, further back where no marker is found."""
        length = _TAIL
        length_max = max(_TAIL, _TAIL_MAX // count)
        while True:
            starts = find_starts(self._config, self._topic, count, length)
            self._sequencer = Sequencer(count, self._loop.name, self._interval_ms)
            self._tail = LogTails(starts)
            self._next = {number: start.offset for number, start in enumerate(starts)}
            self._assign()
            while not (self._tail.read or self._stop.is_set()):
                self._read(_POLL_S)
            if length >= length_max or not self._tail.lacks_marker or self._stop.is_set():
                break
            length = min(length * _TAIL_GROWTH, length_max)
        self._tail = None

    def _assign(self) -> None:
        """Have the consumer read every partition from where we are.

        It looks the topic up first: one that it does not know yet it would read a second later.
        """
        self._consumer.list_topics(self._topic, timeout=_REQUEST_S)
        assign(self._consumer, self._topic, self._next)

    def _step(self) -> None:
        """Write a round if one is due, then read what comes until the next may be due."""
        loop, sequencer = self._loop, self._sequencer
        marker = sequencer.next_marker(self._clock_ms())
        if marker is not None:
            self._write(marker)
        now_ms = self._clock_ms()
        due_ms = sequencer.due_in_ms(now_ms)
        loop.skew_ms = sequencer.highest_ms - now_ms if sequencer.highest_ms >= 0 else 0
        loop.state = "idle" if due_ms is None else "waiting"
        if due_ms is None:
            self._read(_POLL_S)
        else:
            self._stop.wait(due_ms / 1000)
            self._read(0)

    def _write(self, marker: Marker) -> None:
        """Append a marker to every partition and wait until all are safe."""
        value = encode_marker(marker)
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                self._loop.markers += 1

        for number in range(marker.partitions):
            self._producer.produce(self._topic, value, partition=number, on_delivery=delivered)
        left = self._producer.flush(_REQUEST_S + 1)
        if failed:
            raise KafkaException(self._producer.connections.cause(failed[0]))
        if left:
            raise KafkaException(KafkaError(MSG_TIMED_OUT))
        self._loop.rounds += 1

    def _read(self, timeout_s: float) -> None:
        is_full = True
        while is_full:
            records, failures = receive(self._consumer, _BATCH, timeout_s)
            for record in records:
                self._observe(record)
            for failure in failures:
                if not failure.is_end:
                    raise KafkaException(failure.error)
                if self._tail is not None:
                    self._tail.at_end(failure.partition)
            is_full, timeout_s = len(records) + len(failures) == _BATCH, 0

    def _observe(self, record: Any) -> None:
        self._loop.records += 1
        number, offset, stamp = record.partition(), record.offset(), record.timestamp()[1]
        if offset < self._next[number]:
            return
        self._next[number] = offset + 1
        marker = decode_marker(record.value())
        if self._tail is not None:
            unread = self._tail.observe(number, offset, stamp, is_marker=marker is not None)
            if unread is not None:
                self._sequencer.resume(number, unread)
        self._sequencer.observe(number, stamp, marker)


_STOP_S = 3.0
_BACKOFF_MIN_S = 0.1
_BACKOFF_MAX_S = 5.0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class MarkerLoop(MarkerStatus):
    """Follows the log in a thread of its own and writes a round of markers whenever one is due.

    Any number of them may run on one database. With one partition it only looks, every few seconds,
    whether there are more. After an error it begins again, at growing intervals, until stopped.

    ``settings``: the database, the connection and the interval between rounds. Its name is made of
    host, process and chance.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
        self._settings = settings
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamydb-markers", daemon=True)

    def start(self) -> Self:
        self.state = "starting"
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop and wait for the end: under a second while Kafka answers. Repeatable.

        While Kafka does not answer, a request may hang for longer; the thread then ends later.
        """
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        self.state = "stopped"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _run(self) -> None:
        """Run sessions until stopped; after a failure wait a little longer each time."""
        backoff_s = _BACKOFF_MIN_S
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                MarkerSession(self, self._settings, self._stop, _now_ms).run()
            except Exception as error:  # noqa: BLE001 - without markers nothing is decided
                self.failures += 1
                self.state = "degraded"
                cause = error.args[0] if isinstance(error, KafkaException) else error
                text = cause.str() if isinstance(cause, KafkaError) else str(cause)
                self.last_error = text or type(error).__name__
                if time.monotonic() - began > _BACKOFF_MAX_S:
                    backoff_s = _BACKOFF_MIN_S
                self._stop.wait(backoff_s)
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)


def run(settings: Settings, say: Callable[[str], None] = print) -> int:
    """Run a marker loop in the foreground until SIGINT or SIGTERM; return the exit status.

    ``say``: is told of each change of its state, in a line.
    """
    with stop_event() as ended, MarkerLoop(settings) as loop:
        say(f"sequencer {loop.name} of {settings.database}: started")
        told = ""
        while not ended.wait(1.0):
            now = f"degraded: {loop.last_error}" if loop.state == "degraded" else "following"
            if now != told:
                say(f"sequencer {loop.name}: {now} ({loop.partitions} partitions)")
                told = now
    say(f"sequencer {loop.name}: stopped after {loop.rounds} rounds")
    return 0

"""Appending transactions in bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from bench.errors import BenchError
from bench.workload import Workload, follow_ups_each
from streamydb.kafka.clients import appender

__all__ = ["Appender", "linger_ms"]

_CHUNK: Final = 50_000
_QUEUED_MAX: Final = 400_000
_FLUSH_S_MAX: Final = 120.0
_BULK_LINGER_MS: Final = 20
_BULK: Final[dict[str, Any]] = {
    "compression.type": "none",  # as our own appenders: the broker would unpack it
    "batch.num.messages": 100_000,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}
_LINGERS_FROM: Final = 2_000.0
_LINGER_MS: Final = 5


def linger_ms(rate: float) -> int:
    """Return for how many milliseconds a client lingers that appends at a rate (transactions/s).

    With 0, it sends a request for each transaction. At 10,000/s these take half a core of the
    client, and as much of the broker. So from 2,000/s on it lingers as long as librdkafka does by
    itself: 5 ms, which are part of the latency.
    """
    return _LINGER_MS if rate >= _LINGERS_FROM else 0


class Appender:
    """Appends transactions and numbers them: their ids are consecutive.

    Attributes:
        appended: how many have been appended, which is the number in the next one's id.
        follow_ups: results that come beside one for each of them: those of follow-ups.
    """

    def __init__(
        self, connection: Mapping[str, str], topic: str, *, linger_ms: int = _BULK_LINGER_MS
    ) -> None:
        """Append to `topic`; `linger_ms`: how long a transaction waits for others; 0: it is sent at
        once.
        """
        self._producer = appender(connection, {**_BULK, "linger.ms": linger_ms}, topic)
        self._topic = topic
        self._failed = 0
        self.appended = self.follow_ups = 0

    @property
    def expected(self) -> int:
        """How many results there will be."""
        return self.appended + self.follow_ups

    def append(
        self, workload: Workload, count: int, note: Callable[[int], object] = lambda _: None
    ) -> None:
        """Append `count` transactions and wait for the broker.

        Raises:
            BenchError: the broker did not take them.
        """
        for done in range(0, count, _CHUNK):
            self.send(workload.payloads(self.appended, min(_CHUNK, count - done)))
            note(done)
        self.follow_ups += count * follow_ups_each(workload)
        self.flush()

    def append_all(self, payloads: Iterable[bytes]) -> None:
        """Append ready transactions and wait for the broker; raises as `append`."""
        iterator = iter(payloads)
        while chunk := list(islice(iterator, _CHUNK)):
            self.send(chunk)
        self.flush()

    def send(self, payloads: list[bytes]) -> None:
        """Hand transactions to the producer; waits when too many are on their way."""
        while len(self._producer) > _QUEUED_MAX:
            self._producer.poll(0.01)
        produce, topic = self._producer.produce, self._topic
        for payload in payloads:
            produce(topic, payload)
        self.appended += len(payloads)

    def poll(self) -> None:
        """Serve the producer."""
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has everything; raises as `append`."""
        left = self._producer.flush(_FLUSH_S_MAX)
        if left:
            raise BenchError(f"the broker did not take {left} transactions in {_FLUSH_S_MAX:.0f} s")

"""Appending transactions in bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from bench.errors import BenchError
from bench.workload import Workload, follow_ups_each
from streamydb.kafka.clients import appender

__all__ = ["Appender"]

_CHUNK: Final = 50_000
_QUEUED_MAX: Final = 400_000
_FLUSH_S_MAX: Final = 120.0
_BULK: Final[dict[str, Any]] = {
    "compression.type": "none",  # as our own appenders: the broker would unpack it
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
}
_PROMPT: Final[dict[str, Any]] = {**_BULK, "linger.ms": 0}


class Appender:
    """Appends transactions and numbers them: their ids are consecutive.

    Attributes:
        appended: how many have been appended, which is the number in the next one's id.
        follow_ups: results that come beside one for each of them: those of follow-ups.
    """

    def __init__(self, connection: Mapping[str, str], topic: str, *, prompt: bool = False) -> None:
        """Append to `topic`; `prompt`: send each at once instead of filling batches."""
        self._producer = appender(connection, _PROMPT if prompt else _BULK, topic)
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

"""A closed loop of transfers through Kafka: each client awaits its verdict and sends the next."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TopicPartition

from bench.appending import Appender
from bench.costs import Used
from bench.engine import Engine
from bench.errors import BenchError
from bench.workload import Workload
from streamydb.kafka.clients import MESSAGES, reader
from streamydb.kafka.receiving import receive

__all__ = ["Answered", "closed_loop"]

_STALL_S_MAX: Final = 60.0
_READING: Final = {**MESSAGES, "fetch.wait.max.ms": 5}
_PREFIX: Final = b"t"
_MADE: Final = 1_000


@dataclass(slots=True)
class Answered:
    """What came of a closed loop.

    Attributes:
        sent: transactions that were sent, warm-up included; all were answered.
        committed: those that were answered within the measured time.
        latencies_s: of these, from the append to the result read.
        used: processor time within the measured time.
    """

    sent: int
    committed: int
    seconds: float
    latencies_s: array[float]
    used: Used


def closed_loop(
    engine: Engine, workload: Workload, *, first: int, clients: int, warm_up_s: float,
    seconds: float, note: Callable[[str], object] = lambda _: None,
) -> Answered:  # fmt: skip
    """Keep `clients` transactions under way, numbered from `first`, for `seconds`.

    Raises:
        BenchError: the pipeline failed, or results did not come.
    """
    loop = _Clients(engine, workload, first)
    try:
        loop.send(clients)
        loop.run(warm_up_s, note)
        loop.measured = True
        before, begun = engine.used(), time.perf_counter()
        loop.run(seconds, note)
        measured_s, used = time.perf_counter() - begun, engine.used() - before
        loop.measured = False
        loop.finish()
    finally:
        loop.close()
    return Answered(loop.sent, len(loop.latencies_s), measured_s, loop.latencies_s, used)


class _Clients:
    """All clients, in one process: one appender, one reader."""

    def __init__(self, engine: Engine, workload: Workload, first: int) -> None:
        self.latencies_s = array("d")
        self.measured, self.sent = False, 0
        self._engine, self._workload, self._first = engine, workload, first
        self._began: dict[int, float] = {}
        self._payloads: list[bytes] = []
        self._appender = Appender(engine.connection, engine.names.transactions, linger_ms=0)
        self._reader = reader(engine.connection, _READING)
        ends = engine.results.ends().items()
        topic = engine.results.topic
        self._reader.assign([TopicPartition(topic, number, end) for number, end in ends])

    def send(self, count: int) -> None:
        """Send the next transactions."""
        while len(self._payloads) < count:
            at = self._first + self.sent + len(self._payloads)
            self._payloads += self._workload.payloads(at, _MADE)
        sending, self._payloads = self._payloads[:count], self._payloads[count:]
        now = time.perf_counter()
        for number in range(self._first + self.sent, self._first + self.sent + count):
            self._began[number] = now
        self._appender.send(sending)
        self._appender.poll()
        self.sent += count

    def run(self, seconds: float, note: Callable[[str], object]) -> None:
        """Send a transaction for each that is answered, for so long."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            answered = self._read()
            if answered:
                self.send(answered)
                note(f"{self.sent:,} sent")

    def finish(self) -> None:
        """Wait for what is under way."""
        while self._began:
            self._read()

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()

    def _read(self) -> int:
        """Take the results that have come; return how many of ours."""
        end = time.monotonic() + _STALL_S_MAX
        while not (records := receive(self._reader, 5_000, 0.005).records):
            self._appender.poll()
            if time.monotonic() > end:
                self._engine.check()
                raise BenchError(f"there was no result for {_STALL_S_MAX:.0f} s")
        now, count = time.perf_counter(), 0
        for record in records:
            key = record.key()
            if key is not None and key.startswith(_PREFIX):
                began = self._began.pop(int(key[len(_PREFIX) :]), None)
                if began is not None:
                    count += 1
                    if self.measured:
                        self.latencies_s.append(now - began)
        return count

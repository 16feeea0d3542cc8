"""TPC-C's terminals: people who key in, wait for the answer, and think (clauses 5.2.4 and 5.2.5).

Ten terminals belong to a warehouse. One event loop plays them all: a heap has the times at which
transactions are due, and every answer puts the next one of its terminal there. `Terminals` is pure,
`play` gives it the clock and Kafka.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from bench.appending import Appender
from bench.engine import Engine
from bench.errors import BenchError
from bench.literature.tpcc_inputs import FULL_MIX, Inputs
from bench.literature.tpcc_rows import DISTRICTS

__all__ = ["KEYING_S", "THINK_S", "TPMC_MOST", "Span", "Terminals", "Turn", "play"]

KEYING_S: Final = {
    "new_order": 18.0, "payment": 3.0, "order_status": 2.0, "delivery": 2.0, "stock_level": 2.0,
}  # fmt: skip
THINK_S: Final = {
    "new_order": 12.0, "payment": 12.0, "order_status": 10.0, "delivery": 5.0, "stock_level": 5.0,
}  # fmt: skip
"""Means of a negative exponential distribution, which is cut at ten times its mean (5.2.5.4)."""

TPMC_MOST: Final = 12.86
"""New-orders a minute of a warehouse, if every answer came at once (4.1.3)."""

_CYCLE_S: Final = sum(
    share / 100 * (KEYING_S[name] + THINK_S[name]) for name, share in FULL_MIX.items()
)
_WAIT_S: Final = 0.005
_LATE_S_MAX: Final = 60.0


class Turn(NamedTuple):
    """A transaction of a terminal, which counts them all from 0: ten to a warehouse."""

    due_s: float
    terminal: int
    kind: str

    @property
    def place(self) -> tuple[int, int]:
        """The warehouse and the district of the terminal."""
        return self.terminal // DISTRICTS + 1, self.terminal % DISTRICTS + 1


@dataclass(frozen=True, slots=True)
class Span:
    """The time over which is measured, in seconds of the monotonic clock."""

    begin_s: float
    end_s: float

    def has(self, due_s: float, answered_s: float) -> bool:
        """Return True if a transaction lies within it, with its answer (5.5.1)."""
        return self.begin_s <= due_s and answered_s <= self.end_s


class Terminals:
    """All terminals of some warehouses.

    Attributes:
        warehouses: how many.
        waiting: the transactions that have no answer yet, by number.
        answered: the others, with the time of the answer.
    """

    def __init__(self, warehouses: int, seed: int, begin_s: float) -> None:
        """Let each terminal begin at some time of its first cycle."""
        self._rng = random.Random(f"tpcc terminals {seed}")  # noqa: S311
        self.warehouses = warehouses
        self.waiting: dict[int, Turn] = {}
        self.answered: list[tuple[Turn, float]] = []
        self._due = [
            Turn(begin_s + self._rng.random() * _CYCLE_S, terminal, self._chosen())
            for terminal in range(warehouses * DISTRICTS)
        ]
        heapify(self._due)

    @property
    def next_s(self) -> float:
        """When the next transaction is due; never, if all terminals wait."""
        return self._due[0].due_s if self._due else float("inf")

    def due(self, now_s: float) -> Iterator[Turn]:
        """Take what is due, in order."""
        while self._due and self._due[0].due_s <= now_s:
            yield heappop(self._due)

    def answer(self, number: int, now_s: float) -> None:
        """Note an answer; its terminal thinks, chooses, and keys in."""
        turn = self.waiting.pop(number, None)
        if turn is None:
            return
        self.answered.append((turn, now_s))
        mean, kind = THINK_S[turn.kind], self._chosen()
        think_s = min(self._rng.expovariate(1 / mean), 10 * mean)
        heappush(self._due, Turn(now_s + think_s + KEYING_S[kind], turn.terminal, kind))

    def facts(self, span: Span) -> dict[str, Any]:
        """New-orders a minute, those that roll back included (5.4.1), and times of answers in ms.

        Raises:
            BenchError: there were none in the span.
        """
        taken: dict[str, list[float]] = {name: [] for name in FULL_MIX}
        for turn, answered_s in self.answered:
            if span.has(turn.due_s, answered_s):
                taken[turn.kind].append(1000 * (answered_s - turn.due_s))
        if not all(taken.values()):
            raise BenchError("some transactions were never chosen; measure for longer")
        seconds = span.end_s - span.begin_s
        tpmc = 60 * len(taken["new_order"]) / seconds
        return {
            "warehouses": self.warehouses, "terminals": self.warehouses * DISTRICTS,
            "seconds": round(seconds, 1), "tpmC": round(tpmc, 1),
            "efficiency": round(tpmc / (TPMC_MOST * self.warehouses), 4),
            "txn_per_s": round(sum(map(len, taken.values())) / seconds, 1),
            "latency_ms": {name: _latency(found) for name, found in taken.items()},
        }  # fmt: skip

    def _chosen(self) -> str:
        (kind,) = self._rng.choices(list(FULL_MIX), list(FULL_MIX.values()))
        return kind


def _latency(ms: list[float]) -> dict[str, Any]:
    p50, p90, p99 = (round(float(q), 1) for q in np.percentile(ms, (50, 90, 99)))
    return {"count": len(ms), "p50": p50, "p90": p90, "p99": p99, "max": round(max(ms), 1)}


def play(
    engine: Engine, appender: Appender, inputs: Inputs, terminals: Terminals, span: Span,
    note: Callable[[str], object],
) -> None:  # fmt: skip
    """Send what terminals make until the span has ended, and wait for the last answers.

    A time of an answer runs from when the transaction was due, whatever kept it from being sent.

    Raises:
        BenchError: the pipeline failed, or answers did not come.
    """
    consumer, checked_s = _consumer(engine), 0.0
    try:
        while terminals.waiting or time.monotonic() < span.end_s:
            now_s = time.monotonic()
            if now_s > span.end_s + _LATE_S_MAX:
                raise BenchError(f"{len(terminals.waiting):,} terminals wait for an answer")
            if now_s < span.end_s:
                for turn in terminals.due(now_s):
                    terminals.waiting[appender.appended] = turn
                    appender.send([inputs.of(turn.kind, appender.appended, turn.place)])
            appender.poll()
            _take(consumer, terminals, min(_WAIT_S, max(0.0, terminals.next_s - now_s)))
            if now_s - checked_s > 1.0:
                checked_s = now_s
                engine.check()
                note(f"{len(terminals.answered):,} answered, {len(terminals.waiting):,} wait")
        appender.flush()
    finally:
        consumer.close()


def _consumer(engine: Engine) -> Consumer:
    settings = {
        "group.id": "streamydb-bench", "enable.auto.commit": False, "fetch.wait.max.ms": 5,
        "log_level": 0,
    }  # fmt: skip
    consumer = Consumer({**engine.connection, **settings})
    ends, topic = engine.results.ends().items(), engine.results.topic
    consumer.assign([TopicPartition(topic, number, end) for number, end in ends])
    return consumer


def _take(consumer: Consumer, terminals: Terminals, wait_s: float) -> None:
    """Give the terminals their answers, if there are some."""
    messages = consumer.consume(5_000, wait_s)
    now_s = time.monotonic()
    for message in messages:
        key = message.key()
        if message.error() is None and key is not None and key[:1] == b"t":
            terminals.answer(int(key[1:]), now_s)

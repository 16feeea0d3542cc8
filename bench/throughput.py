"""Throughput: how fast a backlog is worked off.

The backlog is written while the pipeline's processes are halted, so that making it costs the
measured time nothing; the clock runs from their release to the last result in Kafka.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bench.appending import Appender
from bench.costs import Used
from bench.engine import Batch, Engine
from bench.errors import BenchError
from bench.waiting import POLL_S, wait_until
from bench.workload import Workload

__all__ = ["Rate", "backlog", "drain", "median_rate"]

_STALL_S_MAX: Final = 180.0
_TOLD_S_MAX: Final = 10.0
Note = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Rate:
    """A backlog's measurement.

    Attributes:
        seconds: from the release of the pipeline to the last result.
        append_s: how long it took to write the backlog, before that.
        appending: the processor time that was used meanwhile.
        executing: the processor time that was used within `seconds`.
    """

    transactions: int
    seconds: float
    batches: tuple[Batch, ...] = ()
    append_s: float = 0.0
    appending: Used = field(default_factory=Used)
    executing: Used = field(default_factory=Used)

    @property
    def per_s(self) -> float:
        """Transactions a second."""
        return self.transactions / self.seconds


def backlog(
    engine: Engine,
    appender: Appender,
    workload: Workload,
    count: int,
    note: Note,
    poll_s: float = POLL_S,
) -> Rate:
    """Write `count` transactions while the pipeline is halted, release it, time it.

    ``poll_s``: how often the results are counted, which the broker has to answer.

    Raises:
        BenchError: the pipeline failed or made no progress.
    """
    drain(engine, appender, lambda _: None)
    before = len(engine.batches())
    engine.pause()
    unwritten, writing = engine.used(), time.monotonic()
    try:
        appender.append(workload, count, lambda done: note(f"writing the backlog, {done:,}"))
        append_s, written = time.monotonic() - writing, engine.used()
    finally:
        begun = time.monotonic()
        engine.resume()
    drain(engine, appender, note, poll_s)
    seconds = time.monotonic() - begun
    executing = engine.used() - written
    batches = _batches(engine, before, count)
    return Rate(count, seconds, batches, append_s, written - unwritten, executing)


def _batches(engine: Engine, before: int, count: int) -> tuple[Batch, ...]:
    """The micro-batches of a backlog; Spark tells of a batch somewhat after its results."""
    with suppress(BenchError):
        wait_until(
            lambda: sum(batch.records for batch in engine.batches()[before:]) >= count,
            "the pipeline told of its batches",
            _TOLD_S_MAX,
            poll_s=0.1,
        )
    return tuple(engine.batches()[before:])


def drain(engine: Engine, appender: Appender, note: Note, poll_s: float = POLL_S) -> None:
    """Wait until every transaction has its result, follow-ups too; raises as `backlog`."""
    total, done = appender.expected, -1
    while done < total:
        last = done
        wait_until(
            lambda: engine.results.count() > last,  # noqa: B023 - called at once
            "there was another result",
            _STALL_S_MAX,
            check=engine.check,
            poll_s=poll_s,
        )
        done = engine.results.count()
        note(f"{done:,} of {total:,} results")


def median_rate(rates: Sequence[Rate]) -> float:
    """The median of the repetitions' transactions a second."""
    return statistics.median(rate.per_s for rate in rates)

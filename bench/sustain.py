"""A constant load for a long time: above capacity (does it collapse?) or below it (does it age?).

The load is an open loop. Throughput and latency come from the curve of the results' number over
time: the k-th result's time minus the k-th transaction's due time. That is exact up to the order
within a micro-batch, and reading the curve costs the database nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from bench.appending import Appender
from bench.engine import Engine
from bench.machine import stolen_s
from bench.workload import Workload

__all__ = ["Curve", "Interval", "Load", "late_ms", "long_run"]

_TICK_S: Final = 0.02
_LOOK_S: Final = 1.0
_GENERATED_MAX: Final = 20_000
_MINUTE_S: Final = 60.0

Floats = npt.NDArray[np.float64]


class Interval(msgspec.Struct, frozen=True):
    """What happened in a stretch of time; seconds since the load began."""

    from_s: float
    to_s: float
    offered_per_s: float
    done_per_s: float
    backlog: int
    p50_ms: float | None
    p99_ms: float | None
    rss_mb: float
    state_mb: float
    batch_ms: float | None
    """Mean time of the micro-batches that Spark told of meanwhile."""
    handles: int
    """Open file descriptors of the pipeline's processes."""
    checkpoint_mb: float
    """The part of `state_mb` that is Spark's checkpoint."""
    topics_mb: float
    """Disk space of all topics."""
    cpu_percent: float
    """Processor time of the pipeline's processes, in percent of one core."""
    stolen_percent: float
    """Share of the machine's processor time that its host gave to others."""


class Curve:
    """How many results there were when; times in seconds since the load began."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self._times: list[float] = [0.0]
        self._counts: list[int] = [0]

    def add(self, at_s: float, count: int) -> None:
        """Note that there were `count` results at `at_s`."""
        self._times.append(at_s)
        self._counts.append(max(count, self._counts[-1]))

    @property
    def done(self) -> int:
        """The results so far."""
        return self._counts[-1]

    def times_of(self, first: int, last: int) -> Floats:
        """When the results number `first` .. `last` - 1 had come."""
        at = np.searchsorted(np.array(self._counts), np.arange(first, last) + 1)
        times: Floats = np.array(self._times)[at]
        return times


def late_ms(curve: Curve, first: int, last: int, rate: float) -> tuple[float | None, float | None]:
    """The median and the 99th percentile of the latencies of results `first` .. `last` - 1."""
    if last <= first:
        return None, None
    late = (curve.times_of(first, last) - np.arange(first, last) / rate) * 1000
    p50, p99 = np.percentile(late, (50, 99))
    return round(float(p50), 1), round(float(p99), 1)


class Load:
    """Offers `rate` transactions a second and watches what comes of it.

    Attributes:
        intervals: what happened, one after the other.
    """

    def __init__(
        self,
        engine: Engine,
        appender: Appender,
        workload: Workload,
        rate: float,
        interval_s: float,
        keep: Callable[[list[Interval]], object] = lambda _: None,
    ) -> None:
        """Prepare; every transaction before has its result. `keep` gets the intervals so far."""
        self._engine, self._appender, self._workload = engine, appender, workload
        self._rate, self._interval_s, self._keep = rate, interval_s, keep
        self._base = appender.appended
        self._curve = Curve()
        self.intervals: list[Interval] = []
        self._from: tuple[float, int, int, int] = (0.0, 0, 0, len(engine.batches()))
        self._times = engine.cpu_s(), *stolen_s()

    def run(self, seconds: float, note: Callable[[str], object]) -> None:
        """Offer the load.

        Raises:
            BenchError: the pipeline or the broker failed.
        """
        begun = looked = time.monotonic()
        while (now := time.monotonic() - begun) < seconds:
            self._offer(now)
            self._look(begun)
            if now - self._from[0] >= self._interval_s:
                self._close(now)
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                self._engine.check()
                note(self._line(now))
            time.sleep(max(0.0, _TICK_S - (time.monotonic() - begun - now)))
        self._appender.flush()
        self._look(begun)
        self._close(time.monotonic() - begun)

    def _offer(self, now: float) -> None:
        sent = self._appender.appended - self._base
        due = min(int(now * self._rate) - sent, _GENERATED_MAX)
        if due > 0:
            self._appender.send(self._workload.payloads(self._appender.appended, due))
        self._appender.poll()

    def _look(self, begun: float) -> None:
        count = self._engine.results.count() - self._base
        self._curve.add(time.monotonic() - begun, count)

    def _close(self, now: float) -> None:
        from_s, sent_before, done_before, batches_before = self._from
        sent, done = self._appender.appended - self._base, self._curve.done
        batches = self._engine.batches()
        told = [batch.ms for batch in batches[batches_before:] if batch.records]
        p50, p99 = late_ms(self._curve, done_before, done, self._rate)
        times = self._engine.cpu_s(), *stolen_s()
        used, stolen, whole = (a - b for a, b in zip(times, self._times, strict=True))
        checkpoint_mb = self._engine.checkpoint_mb()
        interval = Interval(
            round(from_s, 1), round(now, 1),
            round((sent - sent_before) / (now - from_s), 1),
            round((done - done_before) / (now - from_s), 1),
            sent - done, p50, p99,
            round(self._engine.memory.now_mb, 1),
            round(checkpoint_mb + self._engine.values_mb(), 1),
            round(sum(told) / len(told), 1) if told else None,
            self._engine.handles(), round(checkpoint_mb, 1),
            round(self._engine.topics_mb(), 1), round(100 * used / (now - from_s), 1),
            round(100 * stolen / max(whole, 1e-9), 2),
        )  # fmt: skip
        self.intervals.append(interval)
        self._keep(self.intervals)
        self._from, self._times = (now, sent, done, len(batches)), times

    def _line(self, now: float) -> str:
        sent, done = self._appender.appended - self._base, self._curve.done
        rss = self._engine.memory.now_mb
        return f"{now:.0f} s, {done:,} done, backlog {sent - done:,}, {rss:,.0f} MB"


def long_run(intervals: list[Interval], capacity: float) -> dict[str, Any]:
    """How a long load went: the first minute against the last, throughput against capacity."""
    end = intervals[-1].to_s
    first = [i for i in intervals if i.to_s <= _MINUTE_S] or intervals[:1]
    last = [i for i in intervals if i.from_s >= end - _MINUTE_S - 1] or intervals[-1:]
    rates = [i.done_per_s for i in intervals]
    return {
        "capacity_txn_per_s": round(capacity, 1),
        "done_per_s": round(sum(rates) / len(rates), 1),
        "done_to_capacity": round(sum(rates) / len(rates) / capacity, 4),
        "slowest_interval_to_capacity": round(min(rates) / capacity, 4),
        "first_minute": _means(first),
        "last_minute": _means(last),
        "intervals": [msgspec.to_builtins(interval) for interval in intervals],
    }


def _means(intervals: list[Interval]) -> dict[str, float | None]:
    def mean(name: str) -> float | None:
        found = [value for i in intervals if (value := getattr(i, name)) is not None]
        return round(sum(found) / len(found), 1) if found else None

    names = (
        "offered_per_s", "done_per_s", "p50_ms", "p99_ms", "rss_mb", "state_mb", "batch_ms",
        "handles", "checkpoint_mb", "topics_mb", "cpu_percent", "stolen_percent",
    )  # fmt: skip
    return {name: mean(name) for name in names}

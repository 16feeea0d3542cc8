"""Shifting: the decision which gear leads, by the rate of the log (pure).

A record costs the real-time gear ten times what it costs the micro-batch gear, but the micro-batch
gear answers ten times later. So the real-time gear leads while it keeps up. Three things end that:

- *Surge*: more records wait than it executes in some 300 ms; half a second if it executes many.
- *Late*: for a third of a second, the oldest record that waits has always been 0.4 seconds old.
- *Stuck*: the micro-batch gear, which follows, has been ahead of it for a second. That one follows
  in few batches; if nothing has moved for a second although the log goes on, it shall hurry.

A record waits until its outputs are in Kafka: outputs may queue behind an executor that keeps up.
The real-time gear begins after seconds of calm in which few records waited, ten seconds after the
last shift at least. How much is calm, and how much a surge, grows with what the gear has executed:
one that keeps up with a fast log may stand still for a moment, and comes back to such a log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from streamydb.pipeline.realtime.proven_rate import ProvenRate

__all__ = ["LogSample", "Shifting"]

CALM_RATE_MAX: Final = 3_000.0
"""Records a second; at more the real-time gear takes the lead only if it has proven that it can."""

_PROVEN_TIMES: Final = 1.1
"""A log may be so many times as fast as what is proven, because no load comes evenly."""

SURGE_RECORDS: Final = 5_000
STALL_MS: Final = 500
"""While the gear executes more than ten thousand a second: so many of its records may wait."""

LATE_RECORDS_MIN: Final = 100
"""So many records wait at least when the oldest of them is late: a few late ones are no load."""

LATE_MS: Final = 400
STUCK_MS: Final = 1_000

BACKLOG_MAX: Final = 5_000
"""Records behind the base that a real-time gear executes before the micro-batch gear could."""

_STILL_MS: Final = 1_000
_LATE_FOR_MS: Final = 300
_CALM_MS: Final = 3_000
_FAST_MS: Final = 500
_CATCHES_UP_MS: Final = 1_000
"""So long a gear that takes the lead of a fast log may work off what has waited meanwhile."""

_APART_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class LogSample:
    """The end of the log at one moment, and how far the leader has executed it.

    ``now_ms``: of a clock that never goes back. ``position``: the outputs of all records before it
    are in Kafka. ``overtaken``: the gear that follows has executed more.
    """

    now_ms: int
    end: int
    position: int
    overtaken: bool = False

    @property
    def waiting(self) -> int:
        """Return how many records wait."""
        return self.end - self.position


@dataclass(slots=True)
class Shifting:
    """Decides by samples, some in a second.

    Attributes:
        shifts: how many there were.
    """

    shifts: int = 0
    _samples: deque[LogSample] = field(default_factory=deque)
    _late_ms: int | None = None
    _overtaken_ms: int | None = None
    _still_ms: int | None = None
    _shifted_ms: int = -_APART_MS
    _proven: ProvenRate = field(default_factory=ProvenRate)

    def note(self, sample: LogSample) -> None:
        samples, now_ms = self._samples, sample.now_ms
        self._proven.note(now_ms, sample.end)
        still = bool(samples) and samples[-1].position == sample.position < sample.end
        self._still_ms = _since(self._still_ms, now_ms, holds=still)
        samples.append(sample)
        while now_ms - samples[0].now_ms > _CALM_MS + 500:
            samples.popleft()
        self._late_ms = _since(self._late_ms, now_ms, holds=self._is_late())
        self._overtaken_ms = _since(self._overtaken_ms, now_ms, holds=sample.overtaken)

    def _is_late(self) -> bool:
        last = self._samples[-1]
        if last.waiting < LATE_RECORDS_MIN or self._catches_up():
            return False
        oldest_ms = next(each.now_ms for each in self._samples if each.end > last.position)
        return last.now_ms - oldest_ms >= LATE_MS

    def shifted(self, now_ms: int, *, up: bool) -> None:
        """Note a shift; ``up``: the real-time gear begins to lead. If it ends before, that is one
        down.
        """
        self.shifts += 1
        if up:
            self._proven.lead(now_ms)
        else:
            self._proven.lose(now_ms)
        self._shifted_ms = now_ms
        self._late_ms = self._overtaken_ms = None

    def may_begin_at_once(self) -> bool:
        """Return True if the gear may begin as the pipeline starts, when no rate is known yet."""
        last = self._samples[-1] if self._samples else None
        return last is not None and last.waiting <= BACKLOG_MAX

    def is_level(self) -> bool:
        """Return True if few records wait."""
        last = self._samples[-1] if self._samples else None
        return last is not None and last.waiting < LATE_RECORDS_MIN

    def is_done(self) -> bool:
        """Return True if no record waits."""
        last = self._samples[-1] if self._samples else None
        return last is not None and last.waiting <= 0

    def is_calm(self) -> bool:
        """Return True if few records have come lately, and the leader is with them.

        The micro-batch gear may be a second behind: that is its way.
        """
        rate = self._rate(_CALM_MS)
        return rate is not None and max(rate, self._samples[-1].waiting) <= self._calm_rate

    def is_fast(self) -> bool:
        """Return True if many records have come lately, however many wait."""
        rate = self._rate(_FAST_MS)
        return rate is not None and rate > self._calm_rate

    @property
    def _calm_rate(self) -> float:
        """Return up to how many records a second the log is calm; so many wait at most while the
        leader keeps up, too: those of a second.
        """
        return max(CALM_RATE_MAX, _PROVEN_TIMES * self._proven.at(self._samples[-1].now_ms))

    def _rate(self, over_ms: int) -> float | None:
        """Return how many records a second have come in the last ``over_ms`` or a little more; None
        if that was not looked at for so long.
        """
        first = self._sample_before(over_ms)
        if first is None:
            return None
        last = self._samples[-1]
        return 1_000 * (last.end - first.end) / (last.now_ms - first.now_ms)

    def _surge_records(self) -> float:
        """Return how many records wait at most: more while the gear executes many, as one that
        stands still for a moment need not be too slow.
        """
        if self._catches_up():
            return self._calm_rate
        first, last = self._sample_before(_CALM_MS), self._samples[-1]
        if first is None:
            return SURGE_RECORDS
        pace = (last.position - first.position) / (last.now_ms - first.now_ms)
        return max(SURGE_RECORDS, STALL_MS * pace)

    def _catches_up(self) -> bool:
        """Return True if the gear has just taken the lead, and its proof allows so fast a log that
        those of a second would be a surge.
        """
        led_ms = self._proven.led_ms
        if led_ms is None or self._calm_rate <= SURGE_RECORDS:
            return False
        return self._samples[-1].now_ms - led_ms < _CATCHES_UP_MS

    def _sample_before(self, over_ms: int) -> LogSample | None:
        """Return the latest sample that is so much older than the last one; None: none is."""
        for first in reversed(self._samples):
            if self._samples[-1].now_ms - first.now_ms >= over_ms:
                return first
        return None

    def wants_up(self, now_ms: int) -> bool:
        """Return True if the real-time gear is to begin: the log is calm, and few records have
        waited all the time.

        A leader that has only just worked off a backlog may get the next one, from which the start
        of the gear would take a second of processor time.
        """
        if not self.is_calm() or now_ms - self._shifted_ms < _APART_MS:
            return False
        return all(each.waiting <= self._calm_rate for each in self._samples)

    def is_doubtful(self, now_ms: int) -> bool:
        """Return True if the gear that leads may be stuck.

        Not every offset of the log is a record, so the end alone does not tell.
        """
        return self._still_ms is not None and now_ms - self._still_ms >= _STILL_MS

    def wants_down(self, now_ms: int) -> str | None:
        """Say why the micro-batch gear is to lead; None if the real-time gear is to go on."""
        last = self._samples[-1] if self._samples else None
        if last is not None and last.waiting > self._surge_records():
            return "the log is too fast for the real-time gear"
        if self._late_ms is not None and now_ms - self._late_ms >= _LATE_FOR_MS:
            return "records wait too long for the real-time gear"
        if self._overtaken_ms is not None and now_ms - self._overtaken_ms >= STUCK_MS:
            return "the real-time gear is stuck"
        return None


def _since(since_ms: int | None, now_ms: int, *, holds: bool) -> int | None:
    if not holds:
        return None
    return now_ms if since_ms is None else since_ms

"""Shifting: the decision which gear leads, by the rate of the log (pure).

The real-time gear leads while it keeps up: a record costs it a tenth of a millisecond and more, and
the micro-batch gear a hundredth. Down: more records have waited for it, for a second, than it
executes in some 200 ms. Up: the log has been calm for some seconds. Two shifts are ten seconds
apart at least, unless the gear that leads is gone.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["LogSample", "Shifting"]

CALM_RATE_MAX: Final = 1_200.0
"""Records a second; at more the real-time gear does not take the lead."""

WAITING_MAX: Final = 500
"""Records that wait for the real-time gear while it leads; it executes so many in 200 ms."""

BACKLOG_MAX: Final = 5_000
"""Records behind the base that a real-time gear executes before the micro-batch gear could."""

_OVERLOAD_MS: Final = 1_000
_CALM_MS: Final = 3_000
_APART_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class LogSample:
    """The end of the log at one moment, and how far the leader has read it.

    ``now_ms``: of a clock that never goes back.
    """

    now_ms: int
    end: int
    position: int


@dataclass(slots=True)
class Shifting:
    """Decides by samples, some in a second.

    Attributes:
        shifts: how many there were.
    """

    shifts: int = 0
    _samples: deque[LogSample] = field(default_factory=deque)
    _waits_ms: int | None = None
    _shifted_ms: int = -_APART_MS

    def note(self, sample: LogSample) -> None:
        """Take in a sample."""
        samples = self._samples
        samples.append(sample)
        while sample.now_ms - samples[0].now_ms > _CALM_MS + 500:
            samples.popleft()
        waits = sample.end - sample.position > WAITING_MAX
        self._waits_ms = (self._waits_ms or sample.now_ms) if waits else None

    def shifted(self, now_ms: int) -> None:
        """Note that the other gear leads now."""
        self.shifts += 1
        self._shifted_ms = now_ms

    def may_begin_at_once(self) -> bool:
        """Return True if the gear may begin as the pipeline starts, when no rate is known yet."""
        last = self._samples[-1] if self._samples else None
        return last is not None and last.end - last.position <= BACKLOG_MAX

    def is_level(self) -> bool:
        """Return True if few records wait."""
        return bool(self._samples) and self._waits_ms is None

    def is_calm(self) -> bool:
        """Return True if few records have come lately, and those were read."""
        samples = self._samples
        if len(samples) < 2 or samples[-1].now_ms - samples[0].now_ms < _CALM_MS:
            return False
        first, last = samples[0], samples[-1]
        rate = 1_000 * (last.end - first.end) / (last.now_ms - first.now_ms)
        return rate <= CALM_RATE_MAX and self._waits_ms is None

    def wants_up(self, now_ms: int) -> bool:
        """Return True if the real-time gear is to lead."""
        return self.is_calm() and now_ms - self._shifted_ms >= _APART_MS

    def wants_down(self, now_ms: int) -> bool:
        """Return True if the micro-batch gear is to lead."""
        return self._waits_ms is not None and now_ms - self._waits_ms >= _OVERLOAD_MS

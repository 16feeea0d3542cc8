"""The rate of the log with which the real-time gear has kept up (pure).

How many records a second the gear executes depends on the machine, on the records, and on how much
Java has compiled. So the gear shows it: what it has kept up with for a minute, it may be given
again. If it loses the lead within a minute, it waits before it tries again: a minute, then two, and
so on. When it has lost it too often, nothing is proven any more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["PROOF_MS", "RESTS_MAX", "ProvenRate"]

PROOF_MS: Final = 60_000

RESTS_MAX: Final = 5
"""So many leads in a row may end within a minute before nothing is proven."""

_APART_MS: Final = 1_000


@dataclass(slots=True)
class ProvenRate:
    """The proof that the leads of a gear give; times are of a clock that never goes back.

    Attributes:
        led_ms: since when the gear leads; None while it does not.
    """

    led_ms: int | None = None
    _per_s: float = 0.0
    _ends: deque[tuple[int, int]] = field(default_factory=deque)
    """When the log had which end, since the gear leads; those of a minute."""

    _rests: int = 0
    _again_ms: int = 0

    def at(self, now_ms: int) -> float:
        """Return up to how many records a second the gear may lead; 0: nothing is proven."""
        return self._per_s if now_ms >= self._again_ms else 0.0

    def lead(self, now_ms: int) -> None:
        """The gear begins to lead."""
        self.led_ms = now_ms
        self._ends.clear()

    def lose(self, now_ms: int) -> None:
        """The gear leads no longer, or has ended before it could."""
        if self.led_ms is not None and now_ms - self.led_ms < PROOF_MS:
            self._again_ms = now_ms + PROOF_MS * 2**self._rests
            self._rests += 1
            if self._rests > RESTS_MAX:
                self._per_s, self._rests = 0.0, 0
        self.led_ms = None

    def note(self, now_ms: int, end: int) -> None:
        """Note the end of the log; while the gear does not lead, that proves nothing."""
        if self.led_ms is None or (self._ends and now_ms - self._ends[-1][0] < _APART_MS):
            return
        self._ends.append((now_ms, end))
        first_ms, first = self._ends[0]
        if now_ms - first_ms >= PROOF_MS:
            self._per_s = max(self._per_s, 1_000 * (end - first) / (now_ms - first_ms))
            self._rests = 0
            self._ends.popleft()

"""How many requests are taken when more come than the facade can look at.

Requests that nobody has looked at yet wait in sockets, where no bound sees them; what shows is that
the event loop falls behind its clock. Then fewer are taken in a tick, and the rest is refused at
once, which costs little, until the loop keeps up again: additive increase, multiplicative decrease
(Chiu and Jain, "Analysis of the increase and decrease algorithms", 1989), as TCP does it.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from streamydb.facade.problems import ProblemError

__all__ = ["Admission"]

TICK_S: Final = 0.1
"""How often the loop's delay is looked at while requests come."""

_LEAST: Final = 5
_GROWTH: Final = 1.1
_RETRY_AFTER_S: Final = 1


class Admission:
    """Takes requests as long as the event loop keeps up.

    Attributes:
        lag_s: how late the loop was at the last tick.
        most: how many requests are taken in a tick.
    """

    def __init__(self, lag_max_s: float, requests_max: int) -> None:
        """Take fewer when the loop is later than `lag_max_s`; at most `requests_max` in a tick."""
        self._lag_max_s = lag_max_s
        self._requests_max = requests_max
        self._taken = 0
        self._came = 0
        self._ticking = False
        self.lag_s = 0.0
        self.most = math.inf

    def enter(self) -> None:
        """Take a request; called in the event loop.

        Raises:
            ProblemError: overloaded.
        """
        if not self._ticking:
            self._ticking = True
            self._wait()
        self._came += 1
        if self._taken >= self.most:
            raise ProblemError(
                "overloaded",
                "More requests come than this facade can look at; try again later.",
                retry_after_s=_RETRY_AFTER_S,
            )
        self._taken += 1

    def tick(self, lag_s: float) -> None:
        """Take note of the loop's delay; begin a new tick."""
        self.lag_s = lag_s
        if lag_s > self._lag_max_s:
            self.most = max(_LEAST, min(self.most, self._taken) // 2)
        elif self.most < math.inf:
            self.most = math.floor(self.most * _GROWTH) + 1
            if self.most > self._requests_max:
                self.most = math.inf
        self._ticking = bool(self._came) or self.most < math.inf
        self._taken = self._came = 0

    def _wait(self) -> None:
        """Tick as long as there is something to look at."""
        loop = asyncio.get_running_loop()
        due = loop.time() + TICK_S

        def late() -> None:
            self.tick(loop.time() - due)
            if self._ticking:
                self._wait()

        loop.call_at(due, late)

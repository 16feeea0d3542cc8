"""The pulse of a worker: the driver asks it again and again, and it answers when it is done (pure).

A worker that was halted, or that waits for something that never comes, says nothing and has not
ended. While few records come, nobody would notice: the log is not too fast for it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Pulse"]

_ASK_S: Final = 1.0
SILENT_S_MAX: Final = 10.0
"""A worker that has not answered for so long is taken for lost. No group takes as long."""
_AWAY_S: Final = 1.0
"""Whoever looks again only after so long was away itself, and may not have read an answer yet."""


class Pulse:
    """The driver's questions to one worker, and its answers.

    Times are in seconds, of a clock that never goes back.
    """

    def __init__(self, now_s: float) -> None:
        """Nothing was asked yet."""
        self._number = self._answered = 0
        self._asked_s = self._looked_s = now_s

    def due(self, now_s: float) -> int | None:
        """Return the number of the question to ask now; None: none. At most one is open."""
        if self._answered < self._number or now_s - self._asked_s < _ASK_S:
            return None
        self._number += 1
        self._asked_s = now_s
        return self._number

    def heard(self, number: int) -> None:
        """Take in an answer."""
        self._answered = max(self._answered, number)

    def is_lost(self, now_s: float) -> bool:
        """Return True if a question has been open for too long; to be called again and again."""
        if now_s - self._looked_s > _AWAY_S:
            self._asked_s = now_s
        self._looked_s = now_s
        return self._answered < self._number and now_s - self._asked_s > SILENT_S_MAX

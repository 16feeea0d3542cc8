"""The history of a shard: which start of the query took which of its steps."""

from __future__ import annotations

from typing import Final

import msgspec

_LIVES_MAX: Final = 100
"""How many starts a shard remembers: feedback is read one step after it was written."""


class StepHistory(msgspec.Struct):
    """The committed steps of a shard, by the life that took them.

    ``lives``: (life, its first step), the oldest first.
    """

    steps: int = 0
    lives: list[tuple[str, int]] = msgspec.field(default_factory=lambda: [("", 0)])

    def begin(self, life: str) -> None:
        """A step of ``life`` begins."""
        self.steps += 1
        if self.lives[-1][0] != life:
            self.lives = [*self.lives[1 - _LIVES_MAX :], (life, self.steps)]

    def holds(self, life: str, step: int) -> bool:
        """Return True if ``step`` was committed before this one, and was of ``life``.

        It was not when its batch was repeated, or when a copy of the checkpoint was put back.
        """
        if step >= self.steps:
            return False
        return next((name for name, first in reversed(self.lives) if first <= step), None) == life

"""The operations that the clients of a campaign may still do."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["Budget"]


class Budget:
    """The number of operations that the clients of a process may still do."""

    def __init__(self, stop: Path, seconds: float, operations: int | None) -> None:
        """Begin now; the file ``stop`` ends it, too, and None is no limit."""
        self._stop = stop
        self._deadline = time.monotonic() + seconds
        self._left = operations

    def take(self) -> bool:
        """Take an operation, if one is left."""
        if self._stop.exists() or self._left == 0 or time.monotonic() > self._deadline:
            return False
        self._left = None if self._left is None else self._left - 1
        return True

    def give_back(self) -> None:
        """Have an operation done once more: it was not executed."""
        self._left = None if self._left is None else self._left + 1

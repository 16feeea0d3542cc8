"""Counts work: calls of functions, of Python and C, and the most bytes held at once."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, NamedTuple

__all__ = ["Counter", "Work", "grows_faster"]

_CALLS_FLOOR = 400
_BYTES_FLOOR = 200_000
_FACTOR = 2.6
"""How much more the step from 2n to 4n may cost than that from n to 2n, or than half of 2n, since
other threads and batches begin at some size: a linear cost takes 2, a quadratic one 4."""


class Work(NamedTuple):
    """What something cost."""

    calls: int
    bytes: int


class Counter:
    """Counts the calls of threads that are started from now on, and of this one when it is told to.

    Args:
        lines: count executed lines, too, so that a loop counts which calls nothing.
    """

    def __init__(self, *, lines: bool = False) -> None:
        self.calls = 0
        self._lines = lines
        threading.setprofile(self._called)
        if lines:
            threading.settrace(self._traced)

    def close(self) -> None:
        """Count in no further threads."""
        threading.setprofile(None)
        if self._lines:
            threading.settrace(None)

    async def worked(self, task: Callable[[], Awaitable[Any]]) -> Work:
        """Return what a task cost, in all threads."""
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            await task()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        known, tracing = self.calls, sys.gettrace()
        sys.setprofile(self._called)
        if self._lines:
            sys.settrace(self._traced)
        try:
            await task()
        finally:
            sys.setprofile(None)
            if self._lines:
                sys.settrace(tracing)
        return Work(self.calls - known, most - before)

    def _called(self, _frame: FrameType, event: str, _arg: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    def _traced(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        self.calls += event == "line"
        return self._traced


def grows_faster(costs: list[Work], *, bytes_floor: int = _BYTES_FLOOR) -> str:
    """Say how the costs of n, 2n and 4n grow faster than n; empty if they do not.

    ``bytes_floor``: the bytes that a step may take whatever n is.
    """
    for name, floor in (("calls", _CALLS_FLOOR), ("bytes", bytes_floor)):
        one, two, four = (getattr(cost, name) for cost in costs)
        if four - two > _FACTOR * max(two - one, two / 2, floor):
            return f"{name}: {one}, {two}, {four}"
    return ""

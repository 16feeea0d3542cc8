"""Hand rows from a thread to the event loop, which takes them between its other work."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from streamydb.kafka.errors import LogFaultError

_HANDED_MAX: Final = 4
"""Batches that wait until the event loop takes them."""

_WAIT_S: Final = 0.25

_Rows = TypeVar("_Rows")


class LoopTaker(Generic[_Rows]):
    """Takes rows in the event loop, in the order in which a thread hands them over.

    Args:
        starts: the first position of each partition.
        take: called in the event loop, a few batches later at most. If it makes a generator, the
            loop goes through it step by step and does other work between: see `_Pace`.

    Attributes:
        positions: up to where records were read and prepared, as the event loop knows it.
        failed: what has ended the taking or the reading; None while they go on.
    """

    def __init__(
        self, starts: Mapping[int, int], take: Callable[[_Rows], Iterator[None] | None]
    ) -> None:
        """Nothing is handed over yet; call it in the event loop."""
        self.positions = dict(starts)
        self.failed: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._handed: deque[_Rows] = deque()
        self._room = threading.Semaphore(_HANDED_MAX)
        self._taking = False
        self._moved = asyncio.Event()

    async def passed(self, ends: Mapping[int, int], obstacle: Callable[[], str | None]) -> None:
        """Wait until the positions have reached the ends; call it in the event loop.

        Args:
            ends: an offset of each partition.
            obstacle: tells why nothing is read, any more or now.

        Raises:
            LogFaultError: there is an obstacle.
        """
        while any(self.positions[number] < end for number, end in ends.items()):
            if (reason := obstacle()) is not None:
                raise LogFaultError(reason)
            await self._moved.wait()

    def reach(self, positions: Mapping[int, int]) -> None:
        """Have the event loop note how far was read; none: those who wait look for obstacles."""
        self._call(self._reach, positions)

    def hand_over(
        self, rows: _Rows, reached: Mapping[int, int], is_stopped: Callable[[], bool]
    ) -> None:
        """Have the event loop take rows; wait while much of what came before is not taken."""
        while not self._room.acquire(timeout=_WAIT_S):
            if is_stopped():
                return
        self._handed.append(rows)
        self._call(self._reach, reached)
        self._call(self._take_next)

    def _reach(self, positions: Mapping[int, int]) -> None:
        """Note how far was read and prepared; called in the event loop."""
        self.positions.update(positions)
        self._moved.set()
        self._moved = asyncio.Event()

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody needs it
            self._loop.call_soon_threadsafe(function, *args)

    def _take_next(self) -> None:
        """Take what was handed over, unless that is under way; called in the event loop."""
        if self._handed and not self._taking:
            self._taking = True
            self._turn(_Pace(), self._handed.popleft(), None)

    def _turn(self, pace: _Pace, rows: _Rows, steps: Iterator[None] | None) -> None:
        """Take some steps through the rows."""
        try:
            if steps is None:
                steps = self._take(rows) or iter(())
            count = pace.begin()
            self._loop.call_soon(pace.mark)
            for _ in range(count):
                next(steps)
            pace.end()
            self._loop.call_soon(self._turn, pace, rows, steps)
        except StopIteration:
            self._taking = False
            self._room.release()
            self._loop.call_soon(self._take_next)
        except Exception as error:  # noqa: BLE001 - the thread tells
            self.failed = error
            self._room.release()


class _Pace:
    """Gives steps, with the tasks that they schedule, as much time as other work took.

    So nothing waits for all the steps, and nothing starves them. The tasks that the steps schedule
    run between the mark and the next turn, because all three are in the loop's queue in this order.
    """

    def __init__(self) -> None:
        """Nothing is known, so the first turn is one step."""
        self._count = 1
        self._begun = self._marked = self._ended = 0.0

    def begin(self) -> int:
        """Begin a turn; return how many steps it may take."""
        now = perf_counter()
        if self._ended:
            spent = self._ended - self._begun + now - self._marked
            others = self._marked - self._ended
            self._count = max(1, int(others * self._count / max(spent, 1e-9)))
        self._begun = now
        return self._count

    def mark(self) -> None:
        """Note that the tasks which the steps of the turn have scheduled begin to run."""
        self._marked = perf_counter()

    def end(self) -> None:
        """End the turn."""
        self._ended = perf_counter()

"""Waits of coroutines: for a time, for a thread, for each other, until the facade ends.

A facade that ends takes no more connections, and waits `SHUTDOWN_S` for the answers under way.
Whoever waits for news (an event stream, a reader of a stream) has nothing to wait for any more. A
verdict or a read model may still come, so those waits go on for `WORK_LEFT_S`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

SHUTDOWN_S: Final = 10  # seconds after which the answers that are still under way are cut off
WORK_LEFT_S: Final = 8.0  # seconds that are left for what others do, when the facade begins to end
BODY_LEFT_S: Final = 1.0
"""Seconds that are left for a request's body: it is on its way, or does not come."""


class Shutdown:
    """Ends waits at their times, which are shorter once the facade has `begun` to end.

    Most waits end long before. So all of them share one timer of the event loop, of which one for
    each would cost more.
    """

    def __init__(self) -> None:
        self.begun = False
        self._waits: set[_Wait] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = math.inf

    def begin(self) -> None:
        """Shorten all waits; call it in the event loop."""
        self.begun = True
        now_s = asyncio.get_running_loop().time()
        for wait in self._waits:
            wait.shorten(now_s)
        self._end_late()

    def timeout(self, seconds: float, left_s: float = 0.0) -> _Wait:
        """Return a context that ends as `asyncio.timeout`, or `left_s` after the shutdown began."""
        return _Wait(self, seconds, left_s)

    def add(self, wait: _Wait, now_s: float) -> None:
        """End a wait at its time, unless it is removed before."""
        if self.begun:
            wait.shorten(now_s)
        self._waits.add(wait)
        if wait.ends_s < self._timer_s:
            self._set_timer(wait.ends_s)

    def remove(self, wait: _Wait) -> None:
        self._waits.discard(wait)

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s, self._timer = at_s, None
        if at_s < math.inf:
            self._timer = asyncio.get_running_loop().call_at(at_s, self._end_late)

    def _end_late(self) -> None:
        """End the waits whose time is over, and look again when that of the next one is."""
        now_s = asyncio.get_running_loop().time()
        for wait in [wait for wait in self._waits if wait.ends_s <= now_s]:
            self._waits.discard(wait)
            wait.end()
        self._set_timer(min((wait.ends_s for wait in self._waits), default=math.inf))


class _Wait:
    """A block of a task that ends with TimeoutError at ``ends_s`` of the event loop's clock."""

    def __init__(self, waits: Shutdown, seconds: float, left_s: float) -> None:
        self._waits = waits
        self._left_s = left_s
        self._seconds = seconds
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._is_over = False
        self.ends_s = math.inf

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("only a task can wait for a time")
        self._cancelling = task.cancelling()
        now_s = loop.time()
        self.ends_s = now_s + self._seconds
        self._waits.add(self, now_s)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """Wait no longer. Raises TimeoutError: the time was over (as `asyncio.Timeout` tells)."""
        self._waits.remove(self)
        if not self._is_over or self._task is None:
            return
        is_ours = self._task.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def shorten(self, now_s: float) -> None:
        self.ends_s = min(self.ends_s, now_s + self._left_s)

    def end(self) -> None:
        """Have the task leave the block."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()


_T = TypeVar("_T")


class SingleFlight(Generic[_T]):
    """Looks once for all who ask while a look is under way; none of them gets that earlier one."""

    def __init__(self, look: Callable[[], Awaitable[_T]]) -> None:
        self._look = look
        self._current: asyncio.Task[_T] | None = None
        self._next: asyncio.Task[_T] | None = None

    async def look(self) -> _T:
        """Return how things are, as of some time after this call."""
        if self._next is None:
            self._next = asyncio.create_task(self._look_after(self._current))
            self._next.add_done_callback(retrieve)
        return await asyncio.shield(self._next)

    async def _look_after(self, before: asyncio.Task[_T] | None) -> _T:
        """Look as soon as the look before has ended; those who come from then on take the next."""
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._current, self._next = self._next, None
        return await self._look()


def retrieve(task: asyncio.Task[Any]) -> None:
    """Take note of a task's failure, even if all who asked for it have gone."""
    if not task.cancelled():
        task.exception()


class ThreadsEndedError(RuntimeError):
    """There are no threads any more: Python ends those of a program before it ends the program."""


async def run_in(executor: ThreadPoolExecutor, function: Callable[..., _T], *args: Any) -> _T:
    """Run a function in a thread. Raises ThreadsEndedError: the executor is shut down."""
    try:
        work = asyncio.get_running_loop().run_in_executor(executor, function, *args)
    except RuntimeError as error:
        raise ThreadsEndedError(*error.args) from None
    return await work


class _Rest:
    """The rest of a coroutine that has been begun; ``waiting``: what it waits for."""

    def __init__(self, begun: Coroutine[Any, Any, _T], waiting: Any) -> None:
        self._begun = begun
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._waiting
        go_on: Callable[[], Any]
        while True:
            try:
                sent = yield waiting
            except BaseException as error:  # noqa: BLE001 - whatever it is, the coroutine gets it
                go_on = partial(self._begun.throw, error)
            else:
                go_on = partial(self._begun.send, sent)
            try:
                waiting = go_on()
            except StopIteration as end:
                return end.value


async def await_within(
    seconds: float,
    work: Coroutine[Any, Any, _T],
    timer: Callable[[float], AbstractAsyncContextManager[object]] = asyncio.timeout,
) -> _T:
    """Await a coroutine; most are done at once, and a timer would cost more than they do.
    ``timer``: makes the timer of those that wait. Raises TimeoutError: it took longer, and was
    cancelled.
    """
    try:
        waiting = work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    async with timer(seconds):
        return await _Rest(work, waiting)  # type: ignore[no-any-return]

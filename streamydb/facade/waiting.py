"""Waits of coroutines: for a time, for a thread, for each other, until the facade ends.

A facade that ends takes no more connections, and waits `SHUTDOWN_S` for the answers under way.
Whoever waits for news (an event stream, a reader of a stream) has nothing to wait for any more. A
verdict or a read model may still come, so those waits go on for `WORK_LEFT_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

SHUTDOWN_S: Final = 10
"""Seconds after which the answers that are still under way are cut off."""
WORK_LEFT_S: Final = 8.0
"""Seconds that are left for what others do, when the facade begins to end."""
BODY_LEFT_S: Final = 1.0
"""Seconds that are left for a request's body: it is on its way, or does not come."""


class Shutdown:
    """Shortens the waits of a facade once it has `begun` to end."""

    def __init__(self) -> None:
        self.begun = False
        self._waits: set[_Wait] = set()

    def begin(self) -> None:
        """Shorten all waits; call it in the event loop."""
        self.begun = True
        for wait in self._waits:
            wait.shorten()

    def timeout(self, seconds: float, left_s: float = 0.0) -> _Wait:
        """Return a context that ends as `asyncio.timeout` does, or `left_s` after the facade began
        to end.
        """
        return _Wait(self, self._waits, seconds, left_s)


class _Wait:
    def __init__(self, ending: Shutdown, waits: set[_Wait], seconds: float, left_s: float) -> None:
        self._ending = ending
        self._waits = waits
        self._left_s = left_s
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._waits.add(self)
        if self._ending.begun:
            self.shorten()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """Wait no longer. Raises TimeoutError: the time was over."""
        self._waits.discard(self)
        await self._timeout.__aexit__(kind, error, frames)

    def shorten(self) -> None:
        """End in the time that is left, unless it ends before."""
        until = asyncio.get_running_loop().time() + self._left_s
        ends = self._timeout.when()
        if not self._timeout.expired() and (ends is None or ends > until):
            self._timeout.reschedule(until)


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
    """Run a function that waits for Kafka in a thread.
    Raises ThreadsEndedError: the executor is shut down.
    """
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

    ``timer``: makes the timer of those that wait.
    Raises TimeoutError: it took longer, and was cancelled.
    """
    try:
        waiting = work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    async with timer(seconds):
        return await _Rest(work, waiting)  # type: ignore[no-any-return]

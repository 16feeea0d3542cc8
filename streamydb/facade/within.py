"""Wait for a coroutine within a time, at no cost if it need not wait at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")


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


async def within(
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

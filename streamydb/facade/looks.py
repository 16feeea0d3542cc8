"""Looks at what changes, shared by those who ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class Looks(Generic[_T]):
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

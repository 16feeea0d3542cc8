"""The time for which a client or a watch is open: nothing begins after it, no pause outlasts it.

`Lifetime` is for threads, `AsyncLifetime` for coroutines of one event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

from streamydb.client.errors import ClosedError
from streamydb.client.forks import Owned

_Wake = TypeVar("_Wake", threading.Event, asyncio.Event)


class AsyncLifetime:
    """For coroutines of one event loop: the time until something is closed, or what it belongs to.

    ``sleep`` stands in for real pauses; ``outer`` is what it belongs to.
    """

    def __init__(
        self,
        name: str,
        sleep: Callable[[float], Any] | None = None,
        outer: AsyncLifetime | None = None,
    ) -> None:
        self.over = False
        self.name = name
        self.sleep = sleep
        self.chain: list[AsyncLifetime] = [self] if outer is None else [self, *outer.chain]
        self._pauses: Owned[set[threading.Event | asyncio.Event]] = Owned(set)

    def within(self, name: str) -> Self:
        """Begin one that ends with this one."""
        return type(self)(name, self.sleep, self)

    @property
    def pauses(self) -> set[threading.Event | asyncio.Event]:
        """Those that are under way in this process, and end when they are set."""
        return self._pauses.get()

    def close(self) -> None:
        self.over = True
        for pause in self.pauses.copy():
            pause.set()

    def check(self) -> None:
        """Refuse to go on after the end. Raises ClosedError: it has ended."""
        for each in self.chain:
            if each.over:
                raise ClosedError(f"The {each.name} is closed.")

    async def pause(self, seconds: float) -> None:
        """Pause, until it ends at the latest; raises as `check`."""
        with self._pausing(asyncio.Event()) as wake:
            if self.sleep is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await wake.wait()
            else:
                await self.sleep(seconds)

    @contextmanager
    def _pausing(self, wake: _Wake) -> Iterator[_Wake]:
        for each in self.chain:
            each.pauses.add(wake)
        try:
            self.check()  # now that none of them ends unnoticed
            yield wake
            self.check()
        finally:
            for each in self.chain:
                each.pauses.discard(wake)


class Lifetime(AsyncLifetime):
    """For threads: a pause blocks."""

    async def pause(self, seconds: float) -> None:
        """Block the thread, until it ends at the latest; raises as `check`."""
        with self._pausing(threading.Event()) as wake:
            if self.sleep is None:
                wake.wait(seconds)
            else:
                self.sleep(seconds)

"""The time for which a client or a watch is open: nothing begins after it, no pause outlasts it.

`Lifetime` is for threads, `AsyncLifetime` for coroutines of one event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self, TypeVar

from streamydb.client.errors import ClosedError
from streamydb.client.forks import Owned

_Wake = TypeVar("_Wake", threading.Event, asyncio.Event)


class _Base:
    """The time until something is closed, or what it belongs to (`within`)."""

    def __init__(self, name: str, within: Self | None = None) -> None:
        self.over = False
        self.name = name
        self.chain: list[_Base] = [self] if within is None else [self, *within.chain]
        self._pauses: Owned[set[threading.Event | asyncio.Event]] = Owned(set)

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


class Lifetime(_Base):
    """For threads; `sleep` stands in for real pauses."""

    def __init__(
        self,
        name: str,
        within: Lifetime | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(name, within)
        given = sleep if within is None else within.sleep
        self.sleep: Callable[[float], None] | None = given

    def pause(self, seconds: float) -> None:
        """Pause, until it ends at the latest; raises as `check`."""
        with self._pausing(threading.Event()) as wake:
            if self.sleep is None:
                wake.wait(seconds)
            else:
                self.sleep(seconds)


class AsyncLifetime(_Base):
    """For coroutines of one event loop; `sleep` stands in for real pauses."""

    def __init__(
        self,
        name: str,
        within: AsyncLifetime | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(name, within)
        given = sleep if within is None else within.sleep
        self.sleep: Callable[[float], Awaitable[None]] | None = given

    async def pause(self, seconds: float) -> None:
        """Pause, until it ends at the latest; raises as `check`."""
        with self._pausing(asyncio.Event()) as wake:
            if self.sleep is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await wake.wait()
            else:
                await self.sleep(seconds)

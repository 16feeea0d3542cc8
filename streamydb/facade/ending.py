"""The end of a facade: those who wait hear of it at once, and answer before they are cut off.

A facade that ends takes no more connections, and waits `SHUTDOWN_S` for the answers under way.
Whoever waits for news (an event stream, a reader of a stream) has nothing to wait for any more. A
verdict or a read model may still come, so those waits go on for `WORK_LEFT_S`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final

SHUTDOWN_S: Final = 10
"""Seconds after which the answers that are still under way are cut off."""
WORK_LEFT_S: Final = 8.0
"""Seconds that are left for what others do, when the facade begins to end."""
BODY_LEFT_S: Final = 1.0
"""Seconds that are left for a request's body: it is on its way, or does not come."""


class Ending:
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
    def __init__(self, ending: Ending, waits: set[_Wait], seconds: float, left_s: float) -> None:
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

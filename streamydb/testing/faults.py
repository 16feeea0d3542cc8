"""Breaks connections: requests are refused, answers lost, streams cut."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextvars import ContextVar
from typing import Any, Final

from streamydb.client.awaiting.transports import AsyncStream, AsyncTransport
from streamydb.client.errors import ConnectionLostError, NotConnectedError
from streamydb.client.requests import Event, Open, Request

_PAUSE_S: Final = 0.001


class Faults:
    """Breaks connections: how many of the next requests and streams fail, and how.

    Attributes:
        refused: requests that are not sent.
        lost: requests whose answers are lost.
        cut: streams that are cut, each after the number of events given.
        sent: how many requests of each kind were performed.
        pauses: the pauses that clients wanted, in seconds.
        clock: seconds of a clock for which the pauses of the same thread or task are as long as
            they were meant to be, although nobody waits for them.
    """

    def __init__(self) -> None:
        self.refused = self.lost = 0
        self.cut: list[int] = []
        self.sent: Counter[str] = Counter()
        self.pauses: list[float] = []
        self._skipped: ContextVar[float] = ContextVar("skipped", default=0.0)

    def clock(self) -> float:
        return time.monotonic() + self._skipped.get()

    def pause(self, seconds: float) -> None:
        time.sleep(self._shortened(seconds))

    async def pause_async(self, seconds: float) -> None:
        await asyncio.sleep(self._shortened(seconds))

    def _shortened(self, seconds: float) -> float:
        self.pauses.append(seconds)
        short = min(seconds, _PAUSE_S)
        self._skipped.set(self._skipped.get() + seconds - short)
        return short

    def before(self, request: Request[Any]) -> None:
        """Refuse a request, if it is to be."""
        if self.refused > 0:
            self.refused -= 1
            raise NotConnectedError("refused by a test")
        self.sent[type(request).__name__] += 1

    def after(self) -> None:
        """Lose an answer, if it is to be."""
        if self.lost > 0:
            self.lost -= 1
            raise ConnectionLostError("lost by a test")

    def cutting(self) -> _StreamCut:
        """Return what cuts the stream that is opened now."""
        return _StreamCut(self.cut.pop(0) if self.cut else None)


class _StreamCut:
    """Cuts one stream after some events."""

    def __init__(self, events_left: int | None) -> None:
        self._left = events_left

    def check(self) -> None:
        """Cut before anything is received."""
        if self._left == 0:
            raise ConnectionLostError("cut by a test")

    def pass_on(self, events: list[Event]) -> list[Event]:
        if self._left is None:
            return events
        passed = events[: self._left]
        self._left -= len(passed)
        return passed


class FaultyTransport:
    """A transport with faults."""

    def __init__(self, inner: AsyncTransport, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    async def send(self, request: Request[Any]) -> Any:
        self._faults.before(request)
        try:
            return await self._inner.send(request)
        finally:
            self._faults.after()

    async def open(self, request: Open) -> AsyncStream:
        self._faults.before(request)
        return _FaultyStream(await self._inner.open(request), self._faults.cutting())

    async def close(self) -> None: ...


class _FaultyStream:
    def __init__(self, inner: AsyncStream, cut: _StreamCut) -> None:
        self._inner = inner
        self._cut = cut

    async def receive(self) -> list[Event]:
        self._cut.check()
        return self._cut.pass_on(await self._inner.receive())

    async def close(self) -> None:
        await self._inner.close()

"""Sample the figures of the console once a second, while somebody looks at them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final, NamedTuple

import msgspec

from streamydb.errors import StreamyError
from streamydb.facade.console.contention import Contention
from streamydb.facade.console.pipelines import PipelineWatch
from streamydb.facade.console.traffic import Traffic
from streamydb.facade.ports import ModelPosition
from streamydb.facade.services import Services
from streamydb.local.folder import PipelineStatus

WINDOW_S: Final = 300
"""Seconds of the figures that are kept."""

CONTENTION_S: Final = 60
_IDLE_S: Final = 15
_LOOK_S: Final = 0.5
_GAP_S: Final = 5


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures at the end of a second; None: not known."""

    second: int
    seq: int | None = None
    transactions_per_s: float | None = None
    watermark_age_ms: int | None = None
    log_lag: int | None = None
    status: PipelineStatus | None = None


class Sampler:
    """The latest seconds; requests are always noted, the rest while somebody looks."""

    def __init__(
        self, services: Services, pipeline: Callable[[], PipelineStatus] | None = None
    ) -> None:
        self.services = services
        self.began = int(time.time())
        self.traffic = Traffic(WINDOW_S)
        self.contention = Contention(CONTENTION_S)
        self.figures: deque[Figures] = deque(maxlen=WINDOW_S)
        self._pipeline = pipeline
        self._asked = 0.0
        self._task: asyncio.Task[None] | None = None
        self._look: asyncio.Task[Mapping[int, int]] | None = None

    def ask(self) -> None:
        """Take figures for some seconds from now on."""
        self._asked = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        running = [task for task in (self._task, self._look) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def sample(self, now: float) -> Figures:
        """Return the figures of the second before the time `now`, and keep them."""
        ends = await self._ends()
        status = await asyncio.to_thread(self._status)
        second = int(now) - 1
        try:
            latest = self.services.model.latest()
        except StreamyError:
            figures = Figures(second=second, status=status)
        else:
            figures = Figures(
                second=second,
                seq=latest.seq,
                transactions_per_s=self._rate(second, latest.seq),
                watermark_age_ms=max(0, round(1000 * now) - latest.ts_ms) if latest.seq else None,
                log_lag=None if ends is None else self._lag(ends, latest),
                status=status,
            )
        self.figures.append(figures)
        return figures

    async def _run(self) -> None:
        following = asyncio.create_task(self._follow())
        try:
            while time.monotonic() - self._asked < _IDLE_S:
                await asyncio.sleep(1 - time.time() % 1)
                await self.sample(time.time())
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _follow(self) -> None:
        feed = self.services.feed
        while True:
            try:
                await feed.start()
                async with aclosing(feed.batches(feed.latest, _IDLE_S)) as batches:
                    async for batch in batches:
                        if batch is not None:
                            self.contention.take(int(time.time()), batch)
            except StreamyError:
                await asyncio.sleep(1)

    def _status(self) -> PipelineStatus | None:
        if self._pipeline is None:
            return None
        try:
            status = self._pipeline()
        except OSError:
            return None
        return status if status.updated_ms is not None else None

    async def _ends(self) -> Mapping[int, int] | None:
        """The ends of the log; None if they are not known soon. One look at a time."""
        if self._look is None:
            self._look = asyncio.ensure_future(self._look_at_log())
        done, _ = await asyncio.wait([self._look], timeout=_LOOK_S)
        if not done:
            return None
        look, self._look = self._look, None
        return look.result() or None

    async def _look_at_log(self) -> Mapping[int, int]:
        try:
            return await self.services.log.ends()
        except StreamyError:
            return {}

    def _rate(self, second: int, seq: int) -> float | None:
        before = self.figures[-1] if self.figures else None
        if before is None or before.seq is None or not 0 < second - before.second <= _GAP_S:
            return None
        return max(0.0, round((seq - before.seq) / (second - before.second), 1))

    def _lag(self, ends: Mapping[int, int], latest: ModelPosition) -> int:
        """Return how many records of the log the read model does not show yet.

        The log is asked about gaps meanwhile, so that the next answer is more exact.
        """
        coverage = self.services.reader.coverage
        coverage.note(ends)
        behind = coverage.behind(latest, ends)
        coverage.look()
        return sum(ends[number] - at for number, at in behind.items())


class Console(NamedTuple):
    """The console of one facade: figures of the latest seconds, and the pipelines."""

    database: str
    sampler: Sampler
    watch: PipelineWatch

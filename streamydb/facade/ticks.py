"""Time goes on in a database that nobody writes: *ticks*, transactions that do nothing.

Keys end at commit times (docs/semantics.md, Expiry), so without transactions none ends. A facade
that shows a key whose end has come, and nothing after it, appends a tick. Each facade does so by
itself, at moments that differ by chance, so mostly there is one of them; more do no harm.

What has ended is absent for every transaction in any case: ticks are for those who only read.

After a broker's clock was ahead, commit times stand still until it has come there again, and a tick
does not move them. The clock of the log knows that by the stamps of the ticks themselves; a tick
that did not reach the end it was for is not repeated at once in any case.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from typing import Final

import msgspec

from streamydb.facade.ports import ReadModel, TransactionLog
from streamydb.facade.reads import in_thread
from streamydb.facade.settings import FacadeSettings

_LOG = logging.getLogger(__name__)
_PAUSE_S_MAX: Final = 60.0


class Ticker:
    """Appends a tick when a key has ended and nobody writes.

    ``vain``: how many ticks in a row did not reach the end that they were for.
    """

    def __init__(self, model: ReadModel, log: TransactionLog, settings: FacadeSettings) -> None:
        self.appended = self.vain = 0
        self._model = model
        self._log = log
        self._settings = settings
        self._chance = random.Random()  # noqa: S311 - no secret
        self._seq = -1
        self._looked = -1
        self._end: int | None = None

    async def run(self) -> None:
        """Look again and again until cancelled; less often while ticks fail."""
        pause_s = least_s = self._settings.tick_s
        while least_s:
            await asyncio.sleep(pause_s * self._chance.uniform(0.8, 1.2))
            try:
                due = await self._is_due()
                if due:
                    self.vain = 0 if await self._tick() else self.vain + 1
                longer_s = least_s * 2.0 ** (self.vain if due else 0)
                pause_s = min(longer_s, max(_PAUSE_S_MAX, least_s))
            except Exception as error:  # noqa: BLE001 - whatever it is: ticks must not end
                if pause_s == least_s:
                    _LOG.warning("a tick failed with %s; it is tried again", type(error).__name__)
                pause_s = min(2 * pause_s, max(_PAUSE_S_MAX, least_s))

    async def _is_due(self) -> bool:
        """Return True if a key has ended, and nothing was resolved since the last look."""
        seq, before = self._model.latest().seq, self._seq
        self._seq = seq
        if seq != before:
            return False
        if self._looked != seq:
            self._end = await in_thread(self._first_end)
            self._looked = seq
        return self._end is not None and self._end <= self._log.time_ms()

    def _first_end(self) -> int | None:
        with self._model.snapshot() as snapshot:
            return snapshot.first_end()

    async def _tick(self) -> bool:
        """Append a transaction without updates, and wait until it is decided.

        Return True if its commit time reached the end that it was for.
        """
        txn_id = f"tick-{uuid.uuid4()}"
        deadline_ms = self._log.time_ms() + int(1_000 * self._settings.deadline_s)
        record = {"id": txn_id, "deadline_ms": deadline_ms, "updates": []}
        async with asyncio.timeout(self._settings.append_timeout_s):
            position = await self._log.append(txn_id, msgspec.json.encode(record))
        self.appended += 1
        async with asyncio.timeout(self._settings.verdict_timeout_s):
            result = await self._log.result(txn_id, position)
        return self._end is None or result.ts_ms >= self._end

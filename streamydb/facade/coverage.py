"""Find out how far a read model has passed the log, by counting records and the gaps without any.

What a read model covers ends after a record. The log may end later: a Kafka transaction leaves a
control record behind when it commits or aborts, which nobody executes, and whose offset nothing
ever covers. So while somebody waits and the read model stands still, the log is asked for the next
record after what is covered. If there is none before the end, the gap is passed. The answer is
kept, so that no gap is looked at twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from streamydb.errors import StreamyError
from streamydb.facade.ports import ReadModel, Resolved, TransactionLog


class _Gap(NamedTuple):
    """No record lies from `start` on before `stop`; ``closed``: one is known to lie at `stop`."""

    start: int
    stop: int
    closed: bool


class Coverage:
    """Compares what a read model covers with ends of the log."""

    def __init__(self, model: ReadModel, log: TransactionLog) -> None:
        self._model = model
        self._log = log
        self._gaps: dict[int, _Gap] = {}
        self._ends: Mapping[int, int] = {}
        self._looking: asyncio.Task[bool] | None = None

    def note(self, ends: Mapping[int, int]) -> None:
        """Take note of where the log ends now; a gap that went beyond is none any more."""
        self._ends = {n: max(end, self._ends.get(n, 0)) for n, end in ends.items()} or self._ends
        gone = [n for n, gap in self._gaps.items() if gap.stop > ends.get(n, gap.stop)]
        for number in gone:
            del self._gaps[number]

    def behind(self, now: Resolved, ends: Mapping[int, int]) -> dict[int, int]:
        """Return, for each partition that is not passed to its end, from where on."""
        passed = {number: self._passed(number, now.offsets.get(number, 0)) for number in ends}
        return {number: at for number, at in passed.items() if at < ends[number]}

    def look(self) -> asyncio.Task[bool] | None:
        """Look for the next records, in a task of its own; None: that would tell nothing new.

        The task's result is whether a gap was found. There is one look at a time.
        """
        if self._looking is None or self._looking.done():
            unknown = self._unknown()
            self._looking = asyncio.create_task(self._look(unknown)) if unknown else None
        return self._looking

    def _unknown(self) -> dict[int, int]:
        """Return the partitions and offsets where it is not known whether a record comes next."""
        try:
            behind = self.behind(self._model.latest(), self._ends)
        except StreamyError:
            return {}
        gaps = self._gaps
        return {n: at for n, at in behind.items() if n not in gaps or gaps[n][1:] != (at, True)}

    async def _look(self, places: Mapping[int, int]) -> bool:
        """Ask the log for the next records, and keep the answer; without an answer nothing is
        known.
        """
        try:
            found = await self._log.next_records(places)
        except StreamyError:
            return False
        grown = False
        for number, next_record in found.items():
            gap = self._gaps.get(number)
            at = places[number]
            start = gap.start if gap is not None and gap.stop == at else at
            self._gaps[number] = _Gap(start, max(at, next_record.offset), next_record.found)
            grown = grown or next_record.offset > at
        return grown

    def _passed(self, number: int, covered: int) -> int:
        gap = self._gaps.get(number)
        return gap.stop if gap is not None and gap.start <= covered <= gap.stop else covered

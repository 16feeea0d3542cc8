"""The results that were seen lately, by position and by id, bounded in number and bytes."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import NamedTuple

from streamydb.errors import ID_REUSED, UNTIMELY
from streamydb.facade.ports import Decided, LogPosition
from streamydb.records import Result, decode_result

__all__ = ["REFUSED_COPIES", "ResultIndex", "position_of"]

REFUSED_COPIES = UNTIMELY | {ID_REUSED}
"""Codes of copies that were not executed, while another record with their id may have been."""

_OVERHEAD_BYTES = 400


class _Kept(NamedTuple):
    """A result as it was read; it is decoded again on the rare occasions when somebody asks."""

    txn_id: str | None
    value: bytes


def position_of(result: Result) -> LogPosition:
    """Return where the record is that a result answers; for a repetition, the repeated one."""
    again = result.duplicate
    source = again or result.source
    return LogPosition(source.partition, source.offset)


class ResultIndex:
    """Results by position and by id; used in one event loop.

    An id's result is the first that was seen, unless that was a refusal of a copy: the
    verdict of an id is that of the transaction which was executed under it.

    Attributes:
        held: bytes of the results that are kept.
        counts: how many results were seen, by status and reason code.
    """

    def __init__(self, bytes_max: int) -> None:
        """Keep results of `bytes_max` bytes."""
        self._bytes_max = bytes_max
        self._kept: OrderedDict[LogPosition, _Kept] = OrderedDict()
        self._by_id: dict[str, LogPosition] = {}
        self._waiting: dict[LogPosition, set[asyncio.Future[Result]]] = {}
        self._newest = (0, 0)
        self._ends: dict[int, int] = {}
        self.held = 0
        self.counts: Counter[tuple[str, str]] = Counter()

    def add(self, result: Result, value: bytes) -> bool:
        """Take in a result and the record it is in; a repetition changes nothing.

        Returns whether somebody waits for it.
        """
        position = position_of(result)
        if position in self._kept:
            return False
        self.counts[result.status, result.code or ""] += 1
        self._newest = max(self._newest, (result.seq, result.ts_ms))
        ended = self._ends.get(position.partition, 0)
        self._ends[position.partition] = max(ended, position.offset + 1)
        self._kept[position] = _Kept(result.id, value)
        self.held += len(value) + _OVERHEAD_BYTES
        if result.id is not None and self._names(result):
            self._by_id[result.id] = position
        self._evict()
        waiting = self._waiting.pop(position, ())
        for future in waiting:
            if not future.done():
                future.set_result(result)
        return bool(waiting)

    def decided(self) -> Decided:
        """Return how far the results go."""
        return Decided(*self._newest, self._ends)

    def at(self, position: LogPosition) -> Result | None:
        """Return the result of the record at a position, if it is kept."""
        kept = self._kept.get(position)
        return None if kept is None else decode_result(kept.value)

    def of(self, txn_id: str) -> Result | None:
        """Return the result of an id, if it is kept."""
        position = self._by_id.get(txn_id)
        return None if position is None else self.at(position)

    async def wait(self, position: LogPosition) -> Result:
        """Wait for the result of the record at a position, without an end."""
        found = self.at(position)
        if found is not None:
            return found
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(position, set()).add(future)
        try:
            return await future
        finally:
            self._leave(position, future)

    def _leave(self, position: LogPosition, future: asyncio.Future[Result]) -> None:
        waiting = self._waiting.get(position)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[position]

    def _names(self, result: Result) -> bool:
        """Return True if this result is the one of its id."""
        first = self._by_id.get(result.id or "")
        if first is None:
            return True
        known = decode_result(self._kept[first].value).code
        return result.code not in REFUSED_COPIES and known in REFUSED_COPIES

    def _evict(self) -> None:
        """Drop the oldest results while there are too many; the newest stays."""
        while self.held > self._bytes_max and len(self._kept) > 1:
            position, kept = self._kept.popitem(last=False)
            self.held -= len(kept.value) + _OVERHEAD_BYTES
            if kept.txn_id is not None and self._by_id.get(kept.txn_id) == position:
                del self._by_id[kept.txn_id]

"""The results that were seen lately, by position and by id, bounded in number and bytes."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from streamydb.errors import ID_REUSED, UNTIMELY
from streamydb.facade.ports import LogPosition, ResultsEnd
from streamydb.facade.result_batch import (
    CommitColumns,
    Commits,
    ResultBatch,
    hash_of,
    place_of,
    position_of,
)
from streamydb.records import Result, decode_result

REFUSED_COPIES = UNTIMELY | {ID_REUSED}
"""Codes of copies that were not executed, while another record with their id may have been."""

_OVERHEAD_BYTES = 400
_AT_ONCE = 100
"""Commits that may have been seen are taken in so many at a time."""


class _Block(NamedTuple):
    """Results that are dropped together: their places and ids, as far as they have one,
    and size.
    """

    places: Sequence[Hashable]
    ids: list[bytes]
    size: int


class ResultIndex:
    """Results by position and by id; used in one event loop.

    Records are kept as they were read, and decoded again on the rare occasions when somebody asks.
    Many commits that came together stay in columns, and are looked through when somebody asks.
    An id's result is the first that was seen, unless that was a refusal of a copy: the
    verdict of an id is that of the transaction which was executed under it.

    Attributes:
        held: bytes of the results that are kept.
        counts: how many results were seen, by status and reason code.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[Hashable, bytes] = {}
        self._by_id: dict[bytes, Hashable] = {}
        self._blocks: deque[_Block | CommitColumns] = deque()
        self._columns: deque[CommitColumns] = deque()
        self._waiting: dict[Hashable, set[asyncio.Future[Result]]] = {}
        self._newest = (0, 0)
        self._ends: dict[int, int] = {}
        self.held = 0
        self.counts: Counter[tuple[str, str]] = Counter()

    def take(self, batch: ResultBatch) -> Iterator[None]:
        """Take in results; pause after each that somebody waits for, and after many others.

        A micro-batch gives hundreds of verdicts at once, and each is half a millisecond of work
        for its request: reads that come meanwhile must not wait for all of them.
        """
        for each in batch:
            if isinstance(each, CommitColumns):
                yield from self._take_columns(each)
            elif isinstance(each, Commits) and self._add_new(each):
                yield from self._wake_all(self._waiting.keys() & set(each.places))
                yield
            else:
                single = [each] if not isinstance(each, Commits) else _one_by_one(each.values)
                for result, value in single:
                    if self.add(result, value):
                        yield

    def _take_columns(self, commits: CommitColumns) -> Iterator[None]:
        """Take in commits at once if all are new, as nearly always; else one after the other."""
        if not self._are_new(commits):
            for number, (result, value) in enumerate(_one_by_one(commits)):
                if self.add(result, value) or number % _AT_ONCE == 0:
                    yield
            return
        self.counts["committed", ""] += len(commits)
        self._reached(commits.newest, commits.ends)
        self._columns.append(commits)
        self._keep(commits)
        places = [place for place in self._waiting if isinstance(place, int)]
        yield from self._wake_all(commits.among(places))
        yield

    def _are_new(self, commits: CommitColumns) -> bool:
        if commits.beyond(self._ends):
            return True
        return self._kept.keys().isdisjoint(commits.places()) and not any(
            commits.meets(others) for others in self._columns
        )

    def _wake_all(self, places: Iterable[Hashable]) -> Iterator[None]:
        """Tell those who wait for the results of these records; pause after each record."""
        for place in places:
            if (result := self._at(place)) is not None:
                self._wake(place, result)
                yield

    def add(self, result: Result, value: bytes) -> bool:
        """Take in a result and the record it is in; a repetition changes nothing.

        Returns whether somebody waits for it.
        """
        position = position_of(result)
        place = place_of(position)
        if self._value(place) is not None:
            return False
        self.counts[result.status, result.code or ""] += 1
        self._reached((result.seq, result.ts_ms), {position.partition: position.offset + 1})
        self._kept[place] = value
        ids = [] if result.id is None else [result.id.encode()]
        if ids and self._names(ids[0], result):
            self._by_id[ids[0]] = place
        self._keep(_Block([place], ids, len(value) + _OVERHEAD_BYTES))
        return self._wake(place, result)

    def _add_new(self, commits: Commits) -> bool:
        """Take in plain commits at once; False, and nothing was done, unless all are new."""
        places, ids, values, newest, ends = commits
        some, named = set(places), set(ids)
        if len(some) < len(places) or len(named) < len(ids):
            return False
        if self._kept.keys() & some or self._by_id.keys() & named:
            return False
        first, last = min(places), max(places)
        if any(each.among(places) for each in self._columns if each.spans(first, last)):
            return False
        self.counts["committed", ""] += len(places)
        self._reached(newest, ends)
        self._kept.update(zip(places, values, strict=True))
        self._by_id.update(zip(ids, places, strict=True))
        size = sum(map(len, values)) + _OVERHEAD_BYTES * len(values)
        self._keep(_Block(places, ids, size))
        return True

    def _reached(self, newest: tuple[int, int], ends: dict[int, int]) -> None:
        self._newest = max(self._newest, newest)
        for number, end in ends.items():
            self._ends[number] = max(self._ends.get(number, 0), end)

    def _wake(self, place: Hashable, result: Result) -> bool:
        """Tell those who wait for a result; return True if there are any."""
        waiting = self._waiting.pop(place, ())
        for future in waiting:
            if not future.done():
                future.set_result(result)
        return bool(waiting)

    def decided(self) -> ResultsEnd:
        return ResultsEnd(*self._newest, self._ends)

    def at(self, position: LogPosition) -> Result | None:
        return self._at(place_of(position))

    def of(self, txn_id: str) -> Result | None:
        name = txn_id.encode()
        place = self._by_id.get(name)
        found = None if place is None else self._at(place)
        commit = self._commit_of(name) if self._columns else None
        if commit is None:
            return found
        if found is None or found.code in REFUSED_COPIES:
            return commit
        return min(found, commit, key=lambda result: result.seq)

    def _commit_of(self, name: bytes) -> Result | None:
        hashed = hash_of(name)
        found = (each.of(name, hashed) for each in self._columns)
        value = next((value for value in found if value is not None), None)
        return None if value is None else decode_result(value)

    def _at(self, place: Hashable) -> Result | None:
        kept = self._value(place)
        return None if kept is None else decode_result(kept)

    def _value(self, place: Hashable) -> bytes | None:
        kept = self._kept.get(place)
        return self._in_columns(place) if kept is None else kept

    def _in_columns(self, place: Hashable) -> bytes | None:
        if not isinstance(place, int):
            return None
        found = (each.at(place) for each in self._columns)
        return next((value for value in found if value is not None), None)

    async def wait(self, position: LogPosition) -> Result:
        """Wait for the result of the record at a position, without an end."""
        place = place_of(position)
        found = self._at(place)
        if found is not None:
            return found
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(place, set()).add(future)
        try:
            return await future
        finally:
            self._leave(place, future)

    def _leave(self, place: Hashable, future: asyncio.Future[Result]) -> None:
        waiting = self._waiting.get(place)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[place]

    def _names(self, txn_id: bytes, result: Result) -> bool:
        """Return True if this result is the one of its id."""
        first = self._by_id.get(txn_id)
        if first is None:
            return True
        known = decode_result(self._kept[first]).code
        return result.code not in REFUSED_COPIES and known in REFUSED_COPIES

    def _keep(self, block: _Block | CommitColumns) -> None:
        """Note what was taken in, and drop the oldest while there is too much; the newest stays."""
        self._blocks.append(block)
        self.held += block.size
        while self.held > self._bytes_max and len(self._blocks) > 1:
            oldest = self._blocks.popleft()
            self.held -= oldest.size
            if isinstance(oldest, CommitColumns):
                self._columns.popleft()
                continue
            places, ids, _ = oldest
            for place in places:
                del self._kept[place]
            for place, txn_id in zip(places, ids, strict=False):
                if self._by_id.get(txn_id) == place:
                    del self._by_id[txn_id]


def _one_by_one(values: Iterable[bytes]) -> Iterator[tuple[Result, bytes]]:
    for value in values:
        yield decode_result(value), value

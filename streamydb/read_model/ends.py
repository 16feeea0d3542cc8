"""Remembers of each part of a store its earliest end, so that a look at all ends costs little.

A part is never changed. As the seq grows, a version in it can only be superseded. So the earliest
end in a part stays what it was, until the version that has it is superseded; then that part is
looked through again. What is new since the last look are the parts that were written since.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

import numpy as np

from streamydb.read_model.lookup import DAMAGED, NONE, earliest_ends, is_current
from streamydb.read_model.rows import DamagedError, Ints

_PARTS = 64  # as many parts are looked through at a time, so that other threads go on


class ShownParts(NamedTuple):
    """The parts of a store, as kernels take them; the number and the largest seq of each."""

    view: Ints
    ids: Ints
    newest: Ints


class _Earliest(NamedTuple):
    """The earliest end in a part (`NONE`: none ends), the row that has it, and as of which seq."""

    end: int
    row: int
    seq: int


class Ends:
    """The earliest ends of a store's parts.

    Attributes:
        looked: how many parts were looked through so far.
    """

    def __init__(self) -> None:
        self.looked = 0
        self._known: dict[int, _Earliest] = {}
        self._lock = Lock()

    def first(self, parts: ShownParts, seq: int, pause: Callable[[], object]) -> int | None:
        """Return the earliest end (ms) of the keys that exist at a seq; None: no key ends.

        ``pause``: called before each step; it fails when the store is closed.
        Raises DamagedError: a part cannot be read.
        """
        with self._lock:
            places = {part: place for place, part in enumerate(parts.ids.tolist())}
            self._known = {part: each for part, each in self._known.items() if part in places}
            earliest_by_part = self._known
            if any(each.seq > seq for each in earliest_by_part.values()):
                earliest_by_part = {}  # an earlier state: what was superseded later is not there
            newest = parts.newest.tolist()
            unknown = [
                part for part, place in places.items()
                if part not in earliest_by_part or newest[place] > earliest_by_part[part].seq
            ]  # fmt: skip
            self._look(parts, places, unknown, earliest_by_part, seq, pause)
            # The earliest end of all parts; look again through those where it has gone.
            heap = [(each.end, part) for part, each in earliest_by_part.items() if each.end != NONE]
            heapq.heapify(heap)
            while heap:
                end, part = heap[0]
                pause()
                if is_current(parts.view, places[part], earliest_by_part[part].row, seq):
                    return end
                self._look(parts, places, [part], earliest_by_part, seq, pause)
                earliest = earliest_by_part[part].end
                if earliest == NONE:
                    heapq.heappop(heap)
                else:
                    heapq.heapreplace(heap, (earliest, part))
            return None

    def _look(
        self,
        parts: ShownParts,
        places: dict[int, int],
        numbers_of_parts: list[int],
        earliest_by_part: dict[int, _Earliest],
        seq: int,
        pause: Callable[[], object],
    ) -> None:
        for start in range(0, len(numbers_of_parts), _PARTS):
            some = numbers_of_parts[start : start + _PARTS]
            pause()
            numbers = np.array([places[part] for part in some], np.int64)
            earliest = earliest_ends(parts.view, numbers, seq)
            self.looked += len(some)
            for part, (end, row) in zip(some, earliest.tolist(), strict=True):
                if end == DAMAGED:
                    raise DamagedError
                earliest_by_part[part] = _Earliest(end, row, seq)

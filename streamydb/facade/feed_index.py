"""An index of the changes topic: where the changes after a seq begin, by what a reader has met.

A commit timestamp tells it only to within two minutes, as clocks may differ by so much. A watcher
that came back had to wait until the facade had read the changes of two minutes again: seconds,
under load. The facade reads all changes once anyway, and notes at some resolved records which seq
is the largest so far.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from streamydb.read_model.progress import PartitionProgress
from streamydb.records import Change, Resolved

__all__ = ["FeedIndex"]

_APART: Final = 1_000
"""So many offsets lie between two notes at least."""

_NOTES_MAX: Final = 10_000
"""When a partition has so many, every second one goes."""


class _Note(NamedTuple):
    """No record before ``offset``, nor the one there, has a seq above ``seq``."""

    offset: int
    seq: int


@dataclass(slots=True)
class _PartitionNotes:
    """The notes of one partition; ``met``: the largest seq so far."""

    met: int
    apart: int = field(default_factory=lambda: _APART)
    notes: list[_Note] = field(default_factory=list)

    def add(self, offset: int) -> None:
        """Note a place, unless it lies close to the last one."""
        if self.notes and offset < self.notes[-1].offset + self.apart:
            return
        if len(self.notes) >= _NOTES_MAX:
            self.apart *= 2
            self.notes = self.notes[::2]
        self.notes.append(_Note(offset, self.met))


class FeedIndex:
    """Keeps what one reader has met in each partition, since it began.

    One thread notes, others may ask meanwhile.
    """

    def __init__(self, followed: Mapping[int, PartitionProgress], newest: int) -> None:
        """Tell what lies before the place where the reader begins.

        ``followed``: how far a read model has read. ``newest``: the largest seq that it met there.
        """
        self._followed = {number: part.position for number, part in followed.items()}
        self._newest = newest
        self._parts: dict[int, _PartitionNotes] = {}

    def begin(self, starts: Mapping[int, int]) -> None:
        """Note at which offset of each partition the reader begins.

        A partition has no notes if nobody has read what lies, or lay, before that offset.
        """
        for number, start in starts.items():
            if start == 0:
                self._parts[number] = _PartitionNotes(0)
            elif start <= self._followed.get(number, -1):
                self._parts[number] = _PartitionNotes(self._newest)

    def note(self, number: int, offset: int, record: Change | Resolved) -> None:
        """Note a record that the reader has met.

        The reader skips none; it may go back, and meet some again.
        """
        part = self._parts.get(number)
        if part is None:
            return
        if isinstance(record, Change):
            part.met = max(part.met, record.source.seq)
        else:
            part.met = max(part.met, record.resolved)
            part.add(offset)

    def place(self, number: int, since: int) -> int | None:
        """Return the offset of a resolved record: neither it nor any record before it has a seq
        above ``since``. None: no such place is known.
        """
        part = self._parts.get(number)
        if part is None:
            return None
        notes = part.notes
        at = bisect_right(notes, since, key=attrgetter("seq"))
        return notes[at - 1].offset if at else None

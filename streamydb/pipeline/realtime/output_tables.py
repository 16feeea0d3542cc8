"""Tables of outputs: those that groups wait for, and those that were seen too early.

Both are hash tables with open addressing, from which nothing is taken but by making them anew. An
output is its hash. Where it lies depends on a number that only this process knows, see
`streamydb.frames.hashing.FACTOR`; what is found does not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames.hashing import FACTOR, shift_of
from streamydb.frames.jit import brief, leaf

__all__ = ["Hashes", "Ints", "OutputTables"]

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

_SEEN: Final = -1
_ENTRIES_MIN: Final = 4_096
_PLACES_EACH: Final = 2
"""Places of a table for each entry, at least."""

_GENERATIONS: Final = 2


class _Waiting(NamedTuple):
    """Outputs that groups wait for, in the order in which the groups came.

    Entry 0 stands for none. Arrays of a shape of entries, then of places:

    ``hashes``: of each entry. ``groups``: the number of its group; `_SEEN`: it waits no more.
    ``following``: the next entry of this hash. ``oldest``: the first entry of the hash at a place
    that waits. ``newest``: the last one, whether it waits or not; none: the place is free.
    """

    hashes: Hashes
    groups: Ints
    following: Ints
    oldest: Ints
    newest: Ints


class _Early(NamedTuple):
    """Outputs that were seen before a group has told of them, in two generations.

    ``hashes``: shape (generations, places). ``counts``: 0: the place is free; else one more than
    the outputs that are there. ``state``: the newer generation, and how many were added to it.
    """

    hashes: npt.NDArray[np.uint64]
    counts: Ints
    state: Ints


@leaf
def _waiting_place(waiting: _Waiting, output: np.uint64, factor: np.uint64) -> int:
    """Return the place of a hash, or the free one in which it is to lie."""
    places = len(waiting.newest)
    at = np.int64((output * factor) >> shift_of(places))
    while waiting.newest[at] and waiting.hashes[waiting.newest[at]] != output:
        at = (at + 1) & (places - 1)
    return int(at)


@leaf
def _early_place(early: _Early, generation: int, output: np.uint64, factor: np.uint64) -> int:
    """As `_waiting_place`, in a generation."""
    places = early.counts.shape[1]
    at = np.int64((output * factor) >> shift_of(places))
    while early.counts[generation, at] and early.hashes[generation, at] != output:
        at = (at + 1) & (places - 1)
    return int(at)


@leaf
def _enter(waiting: _Waiting, entry: int, output: np.uint64, group: int, factor: np.uint64) -> None:
    """Have a group wait for an output, behind the groups that wait for it already."""
    place = _waiting_place(waiting, output, factor)
    waiting.hashes[entry], waiting.groups[entry], waiting.following[entry] = output, group, 0
    if waiting.oldest[place]:
        waiting.following[waiting.newest[place]] = entry
    else:
        waiting.oldest[place] = entry
    waiting.newest[place] = entry


@leaf
def _take(early: _Early, output: np.uint64, factor: np.uint64) -> bool:
    """Take an early output of this hash away, an older one first; return False if there is none."""
    newer = early.state[0]
    for generation in (1 - newer, newer):
        place = _early_place(early, generation, output, factor)
        if early.counts[generation, place] > 1:
            early.counts[generation, place] -= 1
            return True
    return False


@leaf
def _keep(early: _Early, output: np.uint64, generation_max: int, factor: np.uint64) -> None:
    """Keep an early output; forget the older generation when the newer one is full."""
    newer = early.state[0]
    place = _early_place(early, newer, output, factor)
    early.hashes[newer, place] = output
    early.counts[newer, place] += 1 + (early.counts[newer, place] == 0)
    early.state[1] += 1
    if early.state[1] > generation_max:
        for other in range(early.counts.shape[1]):
            early.counts[1 - newer, other] = 0
        early.state[0], early.state[1] = 1 - newer, 0


@brief
def _await(
    waiting: _Waiting, early: _Early, outputs: Hashes, group: int, entries: int, factor: np.uint64
) -> int:
    """Have a group wait for those of its outputs that did not come early; return the new number
    of entries.
    """
    for output in outputs:
        if not _take(early, output, factor):
            _enter(waiting, entries, output, group, factor)
            entries += 1
    return entries


@brief
def _see(
    waiting: _Waiting, early: _Early, outputs: Hashes, first: int, groups: int,
    generation_max: int, factor: np.uint64,
) -> Ints:  # fmt: skip
    """Note outputs; return how many of each group there were; shape (groups,)."""
    seen = np.zeros(groups, np.int64)
    for output in outputs:
        place = _waiting_place(waiting, output, factor)
        entry = waiting.oldest[place]
        if entry:
            seen[waiting.groups[entry] - first] += 1
            waiting.groups[entry] = _SEEN
            waiting.oldest[place] = waiting.following[entry]
        else:
            _keep(early, output, generation_max, factor)
    return seen


@brief
def _without_seen(
    waiting: _Waiting, entries: int, more: int, factor: np.uint64
) -> tuple[_Waiting, int]:
    """Return a table of the outputs that still are waited for, in their order, with room for
    more; and its number of entries.
    """
    count = 1 + more
    for entry in range(1, entries):
        count += waiting.groups[entry] != _SEEN
    size = _ENTRIES_MIN
    while size < 2 * count:
        size *= 2
    out = _Waiting(
        np.zeros(size, np.uint64), np.zeros(size, np.int64), np.zeros(size, np.int64),
        np.zeros(_PLACES_EACH * size, np.int64), np.zeros(_PLACES_EACH * size, np.int64),
    )  # fmt: skip
    at = 1
    for entry in range(1, entries):
        if waiting.groups[entry] != _SEEN:
            _enter(out, at, waiting.hashes[entry], waiting.groups[entry], factor)
            at += 1
    return out, at


class OutputTables:
    """Tells of outputs that are in Kafka for which groups they count.

    An output counts for the oldest group that waits for one of its hash. If none does, it was seen
    before its group has told of it, or another pipeline has written it, whose outputs nobody here
    tells of. So of those the older half is dropped when there are too many; this gear's own wait
    for some milliseconds.
    """

    def __init__(self, early_max: int) -> None:
        """``early_max``: so many early outputs are kept at most; the newest."""
        self._generation_max = early_max // 2
        places = _PLACES_EACH
        while places < _PLACES_EACH * (self._generation_max + 1):
            places *= 2
        shape = (_GENERATIONS, places)
        self._early = _Early(
            np.zeros(shape, np.uint64), np.zeros(shape, np.int64), np.zeros(2, np.int64)
        )
        empty = np.zeros(1, np.int64)
        nothing = _Waiting(np.zeros(1, np.uint64), empty, empty, empty, empty)
        self._waiting, self._entries = _without_seen(nothing, 1, 0, FACTOR)

    def expect(self, outputs: Hashes, group: int) -> int:
        """Have a group wait for its outputs; return how many of them were not seen yet.

        ``group``: its number, larger than those of before.
        """
        if self._entries + len(outputs) > len(self._waiting.hashes):
            self._waiting, self._entries = _without_seen(
                self._waiting, self._entries, len(outputs), FACTOR
            )
        before = self._entries
        self._entries = _await(self._waiting, self._early, outputs, group, before, FACTOR)
        return self._entries - before

    def see(self, outputs: Hashes, groups: range) -> Ints:
        """Note outputs; return how many of each group there were, shape (n,).

        ``groups``: the numbers of all groups that wait.
        """
        return _see(
            self._waiting, self._early, outputs, groups.start, len(groups),
            self._generation_max, FACTOR,
        )  # fmt: skip

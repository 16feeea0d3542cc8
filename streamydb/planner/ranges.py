"""The ranges of a plan: which of its written keys lie in which of them.

A range is as a key that its transaction reads, and that every transaction of the plan writes that
may write a key inside it. The bounds of all ranges divide the keys into *intervals*; each written
key is looked up among the bounds once, and a range is a run of intervals. So transactions are
linked in a time that grows with the plan, however many ranges overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames.jit import kernel, leaf
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.table import Ragged, Texts, starts_of

Ints = npt.NDArray[np.int64]
Masks = npt.NDArray[np.bool_]

_NOWHERE = -1


@dataclass(slots=True)
class PlanRanges:
    """The ranges of a plan with r occurrences, d different ones, and s keys (slots).

    ``slot``: which range each occurrence is, ``read``: whether its entries are read, (r,).
    ``counts``: of each transaction, (n,). ``bounds``: of the different ranges. ``runs``: the first
    interval of each, and the one behind its last, (d, 2). ``interval``: where a key lies that is
    written, and is in some range, else -1, (s,).
    """

    slot: Ints
    read: Masks
    counts: Ints
    bounds: list[tuple[bytes, bytes]]
    runs: Ints
    interval: Ints

    @property
    def covered(self) -> Masks:
        """The keys that are written and are in some range; shape (s,)."""
        return self.interval >= 0


@leaf
def _is_before(left: Texts, i: int, right: Texts, j: int) -> bool:
    """Return True if a text is smaller than another one, by their bytes."""
    begin, other = left.offsets[i], right.offsets[j]
    length, most = left.offsets[i + 1] - begin, right.offsets[j + 1] - other
    for k in range(min(length, most)):
        if left.data[begin + k] != right.data[other + k]:
            return bool(left.data[begin + k] < right.data[other + k])
    return bool(length < most)


@kernel
def _intervals(keys: Texts, first: Ints, chosen: Masks, bounds: Texts, covered: Masks) -> Ints:
    """Return the interval of each chosen slot's key, if it is a covered one."""
    out = np.full(len(first), _NOWHERE, np.int64)
    for s in range(len(first)):
        if not chosen[s]:
            continue
        low, high = 0, len(bounds.offsets) - 1
        while low < high:
            middle = (low + high) // 2
            if _is_before(keys, first[s], bounds, middle):
                high = middle
            else:
                low = middle + 1
        if low > 0 and covered[low - 1]:
            out[s] = low - 1
    return out


def ranges_of(released: TimedRecords, slot: Ints, first: Ints) -> PlanRanges | None:
    """Return the ranges of records whose keys have these slots; None if there are none."""
    if released.ranges is None or not len(released.ranges.rows):
        return None
    counts, rows = released.ranges
    keys = released.keys.rows
    named = list(zip(rows.start.tolist(), rows.end.tolist(), strict=True))
    numbers = {bounds: i for i, bounds in enumerate(dict.fromkeys(named))}
    occurrences = np.array([numbers[bounds] for bounds in named], np.int64)
    cuts = sorted({bound for bounds in numbers for bound in bounds})
    place = {bound: i for i, bound in enumerate(cuts)}
    runs = np.array([(place[start], place[end]) for start, end in numbers], np.int64)
    steps = np.zeros(len(cuts) + 1, np.int64)
    runs[:, 1] = np.maximum(runs[:, 0], runs[:, 1])
    np.add.at(steps, runs[:, 0], 1)
    np.add.at(steps, runs[:, 1], -1)
    written = np.zeros(len(first), np.bool_)
    written[slot[keys.write != 0]] = True
    interval = _intervals(
        keys.key.texts(), first, written, Ragged.of(cuts).texts(), np.cumsum(steps) > 0
    )
    return PlanRanges(occurrences, rows.read != 0, counts, list(numbers), runs, interval)


class _Spans(NamedTuple):
    """The ranges of a plan as the kernel takes them; see `PlanRanges`."""

    starts: Ints
    slot: Ints
    runs: Ints
    interval: Ints


@leaf
def _last_joined(joined: Ints, i: int) -> int:
    while joined[i] != i:
        joined[i] = joined[joined[i]]
        i = joined[i]
    return i


@kernel
def _links(spans: _Spans, owner: Ints, used: Ints, place: Ints) -> Ints:
    """Pairs of transactions that belong together; ``used``: intervals that have written keys, in
    order; ``place``: how many of them are before each interval; ``owner``: a transaction of each
    slot.
    """
    anchor = np.full(len(used), _NOWHERE, np.int64)
    joined = np.arange(len(used))
    most = len(spans.interval) + len(spans.slot) + len(used)
    out = np.empty((most, 2), np.int64)
    at = 0
    for s in range(len(spans.interval)):
        if spans.interval[s] < 0:
            continue
        i = place[spans.interval[s]]
        if anchor[i] < 0:
            anchor[i] = owner[s]
        else:
            out[at, 0], out[at, 1] = anchor[i], owner[s]
            at += 1
    for txn in range(len(spans.starts) - 1):
        for k in range(spans.starts[txn], spans.starts[txn + 1]):
            run = spans.runs[spans.slot[k]]
            i, end = place[run[0]], place[run[1]]
            if i >= end:
                continue
            out[at, 0], out[at, 1] = txn, anchor[i]
            at += 1
            last = _last_joined(joined, i)
            while last + 1 < end:
                out[at, 0], out[at, 1] = anchor[last], anchor[last + 1]
                at += 1
                joined[last] = last + 1
                last = _last_joined(joined, last + 1)
    return out[:at].copy()


def links_of(ranges: PlanRanges, owner: Ints) -> Ints:
    """Return pairs of transactions that are in one conflict group because of ranges; shape (l, 2).

    All keys that are written in one interval belong together, as some range has them all.
    ``owner``: a transaction that touches each slot, (s,).
    """
    used = np.unique(ranges.interval[ranges.interval >= 0])
    most = int(ranges.runs.max(initial=0)) + 1
    place = np.searchsorted(used, np.arange(most + 1)).astype(np.int64)
    spans = _Spans(starts_of(ranges.counts), ranges.slot, ranges.runs, ranges.interval)
    return _links(spans, owner, used, place)

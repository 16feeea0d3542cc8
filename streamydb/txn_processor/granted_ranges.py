"""The ranges that the shards have granted to a partition of a plan, beside the values of keys."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.columns import program as p
from streamydb.columns.grant_rows import RangeEntries, RangeRows
from streamydb.columns.table import starts_of
from streamydb.errors import InvariantViolation
from streamydb.records.ranges import Bounds
from streamydb.txn_processor import checks
from streamydb.txn_processor.kernel import RangeTable
from streamydb.txn_processor.ranges import Entries, FixedPart, See, Seen, joined
from streamydb.txn_processor.run import Run

__all__ = ["NO_PARTS", "GrantedRanges", "RangeParts", "is_of_range"]


class RangeParts(NamedTuple):
    """Tables of ranges as they were granted, and how many shards there are."""

    tables: Sequence[RangeRows]
    shards: int


_NOTHING: Final = np.empty(0, np.int64)
_START: Final = np.zeros(1, np.int64)

NO_PARTS: Final = RangeParts((), 0)
"""Where no transaction names a range."""


class _Row(NamedTuple):
    """The part of a range that a shard has found: a row, its entries, and those that end."""

    table: RangeRows
    row: int
    entries: tuple[int, int]
    ending: tuple[int, int]

    @property
    def keys(self) -> int:
        """The number of its keys that the plan does not write."""
        return int(self.table.count[self.row])

    @property
    def version(self) -> int:
        """As in `RangeRows`."""
        return int(self.table.version[self.row])

    @property
    def written(self) -> int:
        """As in `RangeRows`."""
        return int(self.table.written[self.row])

    def ends(self) -> RangeEntries:
        """Return the entries of the table that end."""
        if self.table.ending is None:
            raise InvariantViolation("entries of a range end in a plan in which no key can")
        return self.table.ending.rows


@dataclass(slots=True)
class _Place:
    """A range of the plan: its parts, and the slots of the written keys in it.

    ``fixed``: its entries that nobody writes, once they were asked for. ``ends``, ``versions``: of
    those that nobody writes and that end in the plan; ``ending``: where they are.
    """

    rows: list[_Row]
    slots: npt.NDArray[np.int64]
    count: int
    version: int
    ends: npt.NDArray[np.int64]
    versions: npt.NDArray[np.int64]
    ending: list[tuple[_Row, int]]
    fixed: FixedPart | None = None


class GrantedRanges:
    """Shows ranges as they are before each transaction of the plan.

    The sum is exact: a key that somebody in the plan may write is a slot here, because ranges and
    the writers of keys in them are one conflict group, and the shards have left those keys out.
    """

    def __init__(self, run: Run, parts: RangeParts) -> None:
        """Look at the slots of ``run`` as they change."""
        self._run = run
        self._shards = parts.shards
        self._rows: dict[Bounds, list[_Row]] = {}
        for table in parts.tables:
            starts, none = starts_of(table.entries.counts).tolist(), np.zeros(len(table), np.int64)
            ending = starts_of(none if table.ending is None else table.ending.counts).tolist()
            bounds = zip(table.start.tolist(), table.end.tolist(), strict=True)
            for row, each in enumerate(bounds):
                found = _Row(
                    table, row, (starts[row], starts[row + 1]), (ending[row], ending[row + 1])
                )
                self._rows.setdefault(each, []).append(found)
        names = run.keys.take(run.covered).tolist() if self._rows else []
        order = sorted(range(len(names)), key=names.__getitem__)
        self._names = [names[i] for i in order]
        self._slots = run.covered[np.array(order, np.int64)]
        self._places: dict[Bounds, _Place] = {}
        self.see = See(self._seen, self._entries)

    def compiled(self) -> RangeTable:
        """Return the ranges that compiled checks name, and note in each step which one it is."""
        run = self._run
        steps, first = run.program.steps, run.values.first_operand
        named = is_of_range(steps["op"]).nonzero()[0]
        if not len(named):
            return RangeTable(_NOTHING, _NOTHING, _START, _NOTHING, limits.RANGE_KEYS_MAX)
        rows: dict[bytes, int] = {}
        steps["a"][named] = [
            rows.setdefault(run.pool[first + step], len(rows)) for step in named.tolist()
        ]
        places = [self._place(p.operand_bounds(operand)) for operand in rows]
        slots = [place.slots for place in places]
        return RangeTable(
            np.array([place.count for place in places], np.int64),
            np.array([place.version for place in places], np.int64),
            starts_of(np.array([len(place.slots) for place in places], np.int64)),
            np.concatenate(slots),
            limits.RANGE_KEYS_MAX,
        )

    @property
    def end(self) -> bool:
        """True if one of those that were compiled has keys that end in the plan."""
        return any(len(place.ends) for place in self._places.values())

    def _place(self, bounds: Bounds) -> _Place:
        place = self._places.get(bounds)
        if place is None:
            rows = self._rows.get(bounds)
            if rows is None:
                raise InvariantViolation("a range of a granted transaction was sent by no shard")
            start, end = (bisect_left(self._names, bound) for bound in bounds)
            slots = self._slots[start : max(start, end)]
            written = sum(row.written for row in rows)
            checks.ranged(len(rows), self._shards, written, len(slots))
            count = sum(row.keys for row in rows)
            version = max(row.version for row in rows)
            ending = [(row, at) for row in rows for at in range(*row.ending)]
            ends = np.array([int(row.ends().number[at]) for row, at in ending], np.int64)
            versions = np.array([int(row.ends().version[at]) for row, at in ending], np.int64)
            place = self._places[bounds] = _Place(
                rows, slots, count, version, ends, versions, ending
            )
        return place

    def _seen(self, bounds: Bounds) -> Seen:
        place = self._place(bounds)
        if not (len(place.slots) or len(place.ends)):
            return Seen(place.count, place.version)
        slots, now = self._run.values.slots[place.slots], self._run.now
        over = (slots["tag"] == p.EXPIRING) & (slots["number"] <= now)
        there = slots[(slots["tag"] != p.ABSENT) & ~over]
        ending = place.versions[place.ends > now]
        version = max(int(there["version"].max(initial=0)), int(ending.max(initial=0)))
        return Seen(place.count + len(there) + len(ending), max(place.version, version))

    def _entries(self, bounds: Bounds) -> Entries | None:
        place, run = self._place(bounds), self._run
        if place.fixed is None:
            place.fixed = joined([_part(row) for row in place.rows])
        if place.fixed.entries is None or not (len(place.slots) or place.ending):
            return place.fixed.entries
        found = dict(place.fixed.entries)
        for at in np.flatnonzero(place.ends > run.now).tolist():
            row, number = place.ending[at]
            key, value = row.ends().key[number], row.ends().text[number]
            if not value:
                return None
            found[key.decode()] = value, int(place.versions[at])
        for slot in place.slots.tolist():
            version, number, ref, tag, *_ = run.values.slots[slot].item()
            if tag != p.ABSENT and not (tag == p.EXPIRING and number <= run.now):
                found[run.keys[slot].decode()] = run.value(tag, number, ref), version
        return found


def is_of_range(ops: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Mark the steps that check a range; shape (n,)."""
    return (ops >= p.FIRST_OF_RANGE) & (ops <= p.LAST_OF_RANGE)


def _part(row: _Row) -> FixedPart:
    """Return the part of a range that one shard has found."""
    entries: Entries | None = None
    if row.table.whole[row.row]:
        own = row.table.entries.rows.part(*row.entries)
        columns = own.tag.tolist(), own.number.tolist(), own.version.tolist()
        texts = own.key.tolist(), own.text.tolist()
        entries = {
            key.decode(): (b"%d" % number if tag == p.INT else text, version)
            for tag, number, version, key, text in zip(*columns, *texts, strict=True)
        }
    return FixedPart(row.keys, row.version, entries)

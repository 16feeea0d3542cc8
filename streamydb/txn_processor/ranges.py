"""Ranges of keys within a transaction: what it sees of them, and what its checks say of that.

What an executing partition sees of a range is the sum of what the shards found in it, which nobody
changes, and of the keys in it that were granted one by one, as they are at the transaction's
instant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from streamydb import limits
from streamydb import records as r
from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.grant_rows import RangeEntries, RangeRows
from streamydb.frames.table import starts_of
from streamydb.records.ranges import Bounds, Range
from streamydb.txn_processor import checks
from streamydb.txn_processor.comparisons import Failed, Value
from streamydb.txn_processor.kernel import RangeTable
from streamydb.txn_processor.run import Run

Entries: TypeAlias = dict[str, Value]
"""The keys of a range with their values and versions, in order."""


class Seen(NamedTuple):
    """A range at an instant: how many keys it has, and the highest version, 0 if it has none."""

    keys: int
    version: int


class FixedPart(NamedTuple):
    """The part of a range that no granted key changes; ``entries``: None if they are not here."""

    keys: int
    version: int
    entries: Entries | None


class See(NamedTuple):
    """The ranges of a transaction before its instant, by their bounds.

    ``entries``: None if they are too many bytes for a result, whatever else is in it.
    """

    seen: Callable[[Bounds], Seen]
    entries: Callable[[Bounds], Entries | None]


def _unseen(bounds: Bounds) -> Seen:
    raise InvariantViolation(f"the range {bounds} was not granted to a transaction that names it")


nothing_seen = See(_unseen, _unseen)  # type: ignore[arg-type]
"""What transactions see that name no range."""


def joined(parts: Sequence[FixedPart]) -> FixedPart:
    """Join the parts of several shards."""
    if len(parts) == 1:  # its entries are in order
        return parts[0]
    keys, version = 0, 0
    entries: list[tuple[str, Value]] | None = []
    for part in parts:
        keys, version = keys + part.keys, max(version, part.version)
        if entries is not None:
            entries = None if part.entries is None else [*entries, *part.entries.items()]
    return FixedPart(keys, version, None if entries is None else dict(sorted(entries)))


def too_many(txn: r.Transaction, see: See) -> bool:
    """Return True if the ranges of a transaction have more keys than they may."""
    return sum(see.seen(bounds).keys for bounds in txn.ranges) > limits.RANGE_KEYS_MAX


def too_heavy(txn: r.Transaction, see: See) -> bool:
    """Return True if a call scans ranges, and those that are read are more bytes than they may be.

    What shards leave out is surely more.
    """
    if txn.call is UNSET or not txn.call.ranges:
        return False
    size = 0
    for bounds, read in txn.ranges.items():
        entries = see.entries(bounds) if read else {}
        if entries is None:
            return True
        size += sum(len(key.encode()) + len(value or b"") for key, (value, _) in entries.items())
        size += limits.RANGE_ENTRY_BYTES * len(entries)
    return size > limits.RESULT_BYTES_MAX


def failed_range(index: int, check: r.Check, see: See) -> Failed | None:
    """Return the entry of a check of a range that does not hold; None if it does."""
    if check.range is UNSET:
        raise InvariantViolation("a check names neither a key nor a range")
    seen = see.seen(check.range.bounds())
    holds = (
        (check.exists is UNSET or (seen.keys > 0) == check.exists)
        and (check.count is UNSET or seen.keys == check.count)
        and (check.count_le is UNSET or seen.keys <= check.count_le)
        and (check.count_ge is UNSET or seen.keys >= check.count_ge)
        and (check.version_le is UNSET or seen.version <= check.version_le)
    )
    if holds:
        return None
    return {
        "check": "range",
        "index": index,
        "key": check.range.begin,
        "value": None,
        "version": seen.version,
        "count": seen.keys,
    }


def entries_after(
    txn: r.Transaction, see: See, after: Mapping[str, bytes | None], seq: int
) -> list[tuple[Range, Entries]] | None:
    """Return the ranges that a transaction reads, after its own writes; None if they are too much.

    Args:
        txn: the transaction.
        see: the ranges before it.
        after: what it writes; None: a delete.
        seq: the version of what it writes.
    """
    ranges = []
    for named in txn.read_ranges:
        start, end = bounds = named.bounds()
        before = see.entries(bounds)
        if before is None:
            return None
        entries = dict(before)
        for key, value in after.items():
            if start <= key.encode() < end:
                entries.pop(key, None)
                if value is not None:
                    entries[key] = value, seq
        ranges.append((named, dict(sorted(entries.items()))))
    return ranges


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
                part = _Row(
                    table, row, (starts[row], starts[row + 1]), (ending[row], ending[row + 1])
                )
                self._rows.setdefault(each, []).append(part)
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
        entries = dict(place.fixed.entries)
        for at in np.flatnonzero(place.ends > run.now).tolist():
            row, number = place.ending[at]
            key, value = row.ends().key[number], row.ends().text[number]
            if not value:
                return None
            entries[key.decode()] = value, int(place.versions[at])
        for slot in place.slots.tolist():
            version, number, ref, tag, *_ = run.values.slots[slot].item()
            if tag != p.ABSENT and not (tag == p.EXPIRING and number <= run.now):
                entries[run.keys[slot].decode()] = run.value(tag, number, ref), version
        return entries


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

"""The ranges that transactions name, as a shard holds them at one place in the order.

Left out are the keys that the transaction itself, or the plan, may write in the meantime: whoever
executes it is granted those one by one, and adds what they hold at its instant. So what is found
here holds until then, and what it lacks was surely too much: too many keys for a transaction, or
too many bytes for a result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.frames.blobs import ENDING_HEAD_BYTES, HEAD_BYTES, KeyScan
from streamydb.frames.grant_rows import RangeEntries, RangeRows
from streamydb.frames.plans import Timeline
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.frames.table import ChildRows, Ragged, chunk_bounds, starts_of
from streamydb.key_processor.value_store import decoded
from streamydb.key_processor.values import ShardValues
from streamydb.planner.plan import Plan
from streamydb.records.ranges import Bounds

Ints = npt.NDArray[np.int64]

_KEY_COST: Final = 16
_RANGE_COST: Final = 64
_HEAD: Final = np.dtype([("version", "<i8"), ("tag", "u1")])


class OwnValues(NamedTuple):
    """The values of a shard, which slots of a plan they are, and its timeline if keys may end."""

    values: ShardValues
    owned: Ints
    timeline: Timeline | None = None

    def ending(self, skip: Container[bytes]) -> dict[bytes, int]:
        """Return the keys that end by the last commit time of the plan, and when, by key."""
        if self.timeline is None:
            return {}
        due = self.values.due(int(self.timeline.ts[-1]))
        keys = [(key, end) for part in due for end, key in part if key not in skip]
        return dict(sorted(keys))


class FoundRange(NamedTuple):
    """A range as a shard holds it.

    ``keys``: how many it has, `RANGE_KEYS_MAX` + 1 if they are more, or if whoever asks names too
    many already. ``version``: the highest of them. ``items``: keys and encoded values, ``size``
    bytes; None if they were not asked for, or are too many bytes. ``counted``, ``tried``: whether
    it was looked for its keys, and for its items. ``ending``: keys and items, in no order, that end
    in the plan, which do not count in ``keys``; what ends last comes in any case, until it is too
    much, of what ends before perhaps the head alone.
    """

    keys: int
    version: int
    items: list[tuple[bytes, bytes]] | None = None
    size: int = 0
    counted: bool = True
    tried: bool = False
    ending: Sequence[tuple[bytes, bytes]] = ()

    @property
    def result_bytes(self) -> int:
        """Bytes of its items that count in a result, or less: never more than those of a call."""
        return self.size - HEAD_BYTES * len(self.items or ())

    @property
    def cost(self) -> int:
        """Bytes that it counts as in a plan: looking at a key has a cost, too."""
        ending = sum(_KEY_COST + len(item) for _, item in self.ending)
        return _RANGE_COST + _KEY_COST * self.keys + self.size + ending


_UNCOUNTED: Final = FoundRange(limits.RANGE_KEYS_MAX + 1, 0, counted=False)


@dataclass(slots=True)
class EitherKeys(Container[bytes]):
    """The keys in one container or another."""

    one: Container[bytes]
    other: Container[bytes]

    def __contains__(self, key: object) -> bool:
        return key in self.one or key in self.other


@dataclass(slots=True)
class RangeScanner:
    """Looks for ranges in the values of one shard, each once.

    ``skip``: keys that it leaves out. ``ending``: keys, in order, that end in the plan, and when;
    ``begins_ms``: the first commit time of the plan; what ends by then nobody sees.
    """

    values: ShardValues
    skip: Container[bytes]
    ending: dict[bytes, int] = field(default_factory=dict)
    begins_ms: int = 0
    known: dict[Bounds, FoundRange] = field(default_factory=dict)
    _keys: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._keys = list(self.ending)
        if self.ending:
            self.skip = EitherKeys(self.skip, self.ending)

    def serve(self, wanted: Iterable[tuple[Bounds, bool]]) -> list[FoundRange]:
        """Return the ranges of one transaction, and whether they are read.

        Once they have too many keys, or too many bytes for a result, the rest is not looked for.
        """
        ranges, keys, size = [], 0, 0
        for bounds, read in wanted:
            reads = read and size <= limits.RESULT_BYTES_MAX
            each = self.known.get(bounds, _UNCOUNTED)
            if keys <= limits.RANGE_KEYS_MAX and not (each.counted and (each.tried or not reads)):
                each = self._look(bounds, read=reads)
            self.known[bounds] = each
            keys += each.keys
            size += each.result_bytes if read else 0
            ranges.append(each)
        return ranges

    def _look(self, bounds: Bounds, *, read: bool) -> FoundRange:
        room = limits.RESULT_BYTES_MAX if read else -1
        items = self.values.scan(KeyScan(*bounds, self.skip, limits.RANGE_KEYS_MAX + 1, room))
        count = len(items)
        heads = np.frombuffer(b"".join([item[:HEAD_BYTES] for _, item in items]), _HEAD)
        version = int(heads["version"].max(initial=0))
        whole = read and count <= limits.RANGE_KEYS_MAX
        whole = whole and all(len(item) > HEAD_BYTES for _, item in items)
        size = sum(len(key) + len(item) for key, item in items) if whole else 0
        ending = self._ending(bounds, read=read) if self.ending else ()
        return FoundRange(count, version, items if whole else None, size, tried=read, ending=ending)

    def _ending(self, bounds: Bounds, *, read: bool) -> list[tuple[bytes, bytes]]:
        """Return the items in a range that end in the plan, those last that end last; as many as
        there may be.
        """
        keys = self._keys
        covered = keys[bisect_left(keys, bounds[0]) : bisect_left(keys, bounds[1])]
        covered = [key for key in covered if self.ending[key] > self.begins_ms]
        covered.sort(key=self.ending.__getitem__, reverse=True)
        items, size = [], 0
        for key in covered[: limits.RANGE_KEYS_MAX + 1]:
            item = self.values.items([key])[0]
            size += len(key) + len(item) - ENDING_HEAD_BYTES
            cut = size > limits.RESULT_BYTES_MAX or not read
            items.append((key, item[:ENDING_HEAD_BYTES] if cut else item))
        return items


class RangeGrants(NamedTuple):
    """The ranges that a shard grants, by executing partition.

    ``left_out``: the seq of the first transaction whose ranges do not fit into the plan; 0: none.
    """

    by_proc: dict[int, RangeRows]
    left_out: int


def range_grants(released: ReleasedRecords, plan: Plan, own: OwnValues, bound: int) -> RangeGrants:
    """Return the ranges of a plan as this shard holds them.

    Those of the first transaction that has some always fit.

    Args:
        released: the records, in order.
        plan: of them.
        own: the values of the shard.
        bound: bytes that the ranges may have here, about.
    """
    ranges = plan.ranges
    if ranges is None:
        return RangeGrants({}, 0)
    keys = released.keys.rows.key
    here = own.owned[ranges.covered[own.owned]]
    skip = set(keys.take(plan.first[here]).tolist())
    scanner = RangeScanner(own.values, skip, own.ending(skip), int(released.ts_ms[0]))
    starts = starts_of(ranges.counts)
    chosen: dict[int, set[int]] = {proc: set() for proc in plan.procs()}
    spent, left_out = 0, 0
    for number, i in enumerate(np.flatnonzero(ranges.counts).tolist()):
        if number and spent > bound:
            left_out = int(released.seq[i])
            break
        named = ranges.slot[starts[i] : starts[i + 1]].tolist()
        read = ranges.read[starts[i] : starts[i + 1]].tolist()
        requests = zip(map(ranges.bounds.__getitem__, named), read, strict=True)
        parts = scanner.serve(requests)
        mine = chosen[int(plan.proc[i])]
        spent += sum(each.cost for r, each in zip(named, parts, strict=True) if r not in mine)
        mine.update(named)
    top = int(ranges.runs.max(initial=0)) + 1
    written = starts_of(np.bincount(ranges.interval[here], minlength=top))
    per_range = written[ranges.runs[:, 1]] - written[ranges.runs[:, 0]]
    return RangeGrants(
        {
            proc: _table([(ranges.bounds[r], scanner.known[ranges.bounds[r]], int(per_range[r]))
                          for r in sorted(mine)], ends=own.timeline is not None)
            for proc, mine in chosen.items()
        },
        left_out,
    )  # fmt: skip


def _table(rows: list[tuple[Bounds, FoundRange, int]], *, ends: bool) -> RangeRows:
    """Return ranges as a grant carries them; the last number: keys in it that are granted one by
    one. ``ends``: keys may end.
    """
    return RangeRows(
        np.array([part.keys for _, part, _ in rows], np.int64),
        np.array([part.version for _, part, _ in rows], np.int64),
        np.array([part.items is not None for _, part, _ in rows], np.uint8),
        np.array([written for _, _, written in rows], np.int64),
        Ragged.of([start for (start, _), _, _ in rows]),
        Ragged.of([end for (_, end), _, _ in rows]),
        _entries([part.items or () for _, part, _ in rows]),
        _entries([part.ending for _, part, _ in rows]) if ends else None,
    )


def _entries(rows: Sequence[Sequence[tuple[bytes, bytes]]]) -> ChildRows[RangeEntries]:
    items = [item for row in rows for item in row]
    values = decoded(Ragged.of([item for _, item in items]))
    keys = Ragged.of([key for key, _ in items])
    entries = RangeEntries(values.tag, values.number, values.version, values.text, keys)
    return ChildRows(np.array([len(row) for row in rows], np.int64), entries)


def blocks_of(ranges: RangeRows) -> list[RangeRows]:
    """Cut granted ranges into parts for one block each."""
    counts, entries = ranges.entries
    ends = starts_of(entries.text_bytes())
    sizes = np.diff(ends[starts_of(counts)])
    bounds = chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, len(sizes))
    return [ranges.part(start, end) for start, end in bounds]

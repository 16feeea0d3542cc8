"""Expiry in a shard: the removal of what has ended and that the plan in hand does not write.

A key is absent from its end on, whatever lies under it: whoever executes a transaction sees to
that. What tells the removal, once, is a change at the first seq whose commit time is not before the
end, so it depends on the log alone. If the plan may write the key, the executing partition tells
it, because it knows whether the end was moved before; all others are told by their shard when the
plan is made, and leave the values when it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import BlobStore, first_name
from streamydb.frames.digest import item_lanes
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.messages import KeyRemovals
from streamydb.frames.plans import OpenPlan, Timeline
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.table import ColumnTable, Ragged, chunk_bounds
from streamydb.frames.value_rows import ChangeRows, ValueRows, WrittenValues
from streamydb.key_processor.values import ShardValues
from streamydb.planner.plan import Plan
from streamydb.records.expiry import EXPIRY_ID, removal_number

Ints = npt.NDArray[np.int64]

_BLOB: Final = "plan/removals"
_ENDED: Final = "plan/ended"
_MASK: Final = (1 << 64) - 1
_REMOVAL_BYTES: Final = 250
"""Of a change that tells of a removal, without key and value."""
_KEPT_BYTES: Final = 48
"""Of a key that is kept, in memory, without its text."""


def may_write(released: TimedRecords, plan: Plan) -> npt.NDArray[np.bool_]:
    """Mark the slots that a plan may write; shape (slots,)."""
    written = np.zeros(len(plan.first), np.bool_)
    written[plan.slot[released.keys.rows.write != 0]] = True
    return written


def written_keys(released: TimedRecords, plan: Plan, owned: Ints) -> set[bytes]:
    """Return the keys among the ``owned`` slots that a plan may write."""
    chosen = owned[may_write(released, plan)[owned]]
    texts = released.keys.rows.key
    return set(texts.take(plan.first[chosen]).tolist())


class Removals:
    """The removals that a shard tells of the plan in hand, within one step.

    At most so many bytes are told in a micro-batch: if there are more, they take turns, as repeated
    results do (`key_processor.duplicates`).

    Attributes:
        deltas: by how much those that were taken in this step change the digest: (interval, low,
            high).
    """

    def __init__(self, blobs: BlobStore, values: ShardValues, interval: int) -> None:
        """Look for them in ``values``; keep in ``blobs`` what later turns need.

        ``interval``: seqs from digest to digest.
        """
        self._blobs = blobs
        self._values = values
        self._interval = interval
        self._sums: dict[int, tuple[int, int]] = {}
        self._turns: _Turns | None = None

    @property
    def turns(self) -> int:
        """In how many turns the plan's removals are told; 0: there are none."""
        return 0 if self._turns is None else len(self._turns.cuts) + 1

    @property
    def deltas(self) -> list[tuple[int, int, int]]:
        """By how much the removals change the digest: (interval, low, high)."""
        return [(place, *sums) for place, sums in sorted(self._sums.items())]

    def begin(self, timeline: Timeline, skip: set[bytes], bytes_max: int) -> int:
        """Find the removals of a plan, but none of ``skip``, and divide them into turns; each has
        at most ``bytes_max`` bytes, about, or one removal. Return how many keys have ended in all.
        """
        cuts, size, last = [], 0, b""
        ended = _Ended(self._blobs)
        for due in self._values.due(int(timeline.ts[-1])):
            ended.add([key for _, key in due])
            sizes = self._values.sizes(Ragged.of([key for _, key in due])).tolist()
            for (end, key), own in zip(due, sizes, strict=True):
                if key in skip:
                    continue
                needed = own + len(key) + _REMOVAL_BYTES
                if size and size + needed > bytes_max:
                    cuts.append(last)
                    size = 0
                size, last = size + needed, first_name(end) + key
        self._turns = _Turns(timeline.packed(), skip, cuts)
        if cuts:
            self._blobs.put(_BLOB, msgspec.msgpack.encode(self._turns, order="deterministic"))
        return ended.close()

    def ended(self, plan: OpenPlan) -> Iterator[list[bytes]]:
        """Yield the keys that had ended by the last commit time of a plan, when it was made, in
        parts of some `BLOCK_BYTES_MAX`.

        The file of the values may be one plan ahead: to bring it back would build it anew. Raises
        InvariantViolation: the state lacks them.
        """
        yield from _Ended(self._blobs).parts(plan.ended)

    def forget_ended(self, plan: OpenPlan) -> None:
        """Keep these keys no more."""
        _Ended(self._blobs).forget(plan.ended)

    def go_on(self, turn: int) -> None:
        """Go on with those of the plan in flight, if there are some; none are kept after the last
        turn.
        """
        data = self._blobs.get(_BLOB)
        self._turns = None if data is None else msgspec.msgpack.decode(data, type=_Turns)
        if data is not None and turn == self.turns - 1:
            self._blobs.delete(_BLOB)

    def take(self, turn: int) -> list[KeyRemovals]:
        """Return the removals of a turn, if there is one, and add them to `deltas`."""
        return [*self._of_turn(turn)]

    def count(self) -> list[tuple[int, int, int]]:
        """Return by how much all removals change the digest; nothing is told of them."""
        for _ in self._of_turn(0):
            pass  # one block after the other: they may be more than memory should hold
        return self.deltas

    def _of_turn(self, turn: int) -> Iterator[KeyRemovals]:
        turns = self._turns
        if turns is None or turn >= self.turns:
            return
        timeline, skip = Timeline.unpacked(turns.timeline), turns.skip
        after = turns.cuts[turn - 1] if turn else b""
        end_name = turns.cuts[turn] if turn < len(turns.cuts) else None
        for due in self._values.due(int(timeline.ts[-1]), after):
            named = [(end, key) for end, key in due if key not in skip]
            if end_name is not None:
                named = [(end, key) for end, key in named if first_name(end) + key <= end_name]
            ends = np.array([end for end, _ in named], np.int64)
            keys = Ragged.of([key for _, key in named])
            sizes = self._values.sizes(keys)
            for start, stop in chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, len(sizes)):
                part = keys.part(start, stop)
                yield KeyRemovals(self._table(part, ends[start:stop], timeline))
            if end_name is not None and first_name(due[-1][0]) + due[-1][1] >= end_name:
                return

    def _table(self, keys: Ragged, ends: Ints, timeline: Timeline) -> ChangeRows:
        keys = Ragged.of(keys.tolist())
        values, rows = self._values.read(keys), timeline.at(ends)
        seqs = timeline.seq[rows]
        lanes = item_lanes(values.of_keys(keys))
        for place, (low, high) in zip(
            ((seqs - 1) // self._interval).tolist(), lanes.tolist(), strict=True
        ):
            known = self._sums.get(place, (0, 0))
            self._sums[place] = (known[0] - low) & _MASK, (known[1] - high) & _MASK
        return removed(keys, values, timeline, rows)


class _EndedKeys(ColumnTable, frozen=True):
    """Keys that end."""

    key: Ragged


class _Ended:
    """The keys that end by the end of a plan, in blobs:
    there may be more than memory should hold.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._kept = self._parts = self._bytes = 0
        self._open: list[bytes] = []

    def add(self, keys: list[bytes]) -> None:
        """Keep some more."""
        self._open += keys
        self._bytes += sum(map(len, keys)) + _KEPT_BYTES * len(keys)
        if self._bytes > limits.BLOCK_BYTES_MAX:
            self.close()

    def close(self) -> int:
        """Keep what was added; how many keys there are."""
        if self._open:
            data = pack(_EndedKeys(Ragged.of(self._open)).flatten())
            self._blobs.put(_part(self._parts), data)
            self._kept, self._parts = self._kept + len(self._open), self._parts + 1
            self._open, self._bytes = [], 0
        return self._kept

    def parts(self, count: int) -> Iterator[list[bytes]]:
        """Yield so many keys, in parts."""
        part = 0
        while count > 0:
            data = self._blobs.get(_part(part))
            if data is None:
                raise InvariantViolation(f"the blob {_part(part)} is missing from the state")
            keys = _EndedKeys.unflatten(unpack(data)[1]).key.tolist()
            yield keys
            part, count = part + 1, count - len(keys)

    def forget(self, count: int) -> None:
        """Keep so many keys no more."""
        for part, _ in enumerate(self.parts(count)):
            self._blobs.delete(_part(part))


def _part(number: int) -> str:
    return f"{_ENDED}/{number}" if number else _ENDED


class _Turns(msgspec.Struct):
    """The turns of a plan's removals: its `Timeline`, the keys that others tell, and the
    names (`frames.blobs`) with which all but the last one end.
    """

    timeline: bytes
    skip: set[bytes]
    cuts: list[bytes]


def removed(keys: Ragged, values: ValueRows, timeline: Timeline, rows: Ints) -> ChangeRows:
    """Return the removals of keys with these values, at ``rows`` of a timeline, as changes."""
    n = len(keys)
    return ChangeRows(
        timeline.seq[rows],
        timeline.ts[rows],
        timeline.part[rows].astype(np.int32),
        timeline.off[rows],
        np.array([removal_number(key) for key in keys.tolist()], np.int64),
        values.tag,
        values.number,
        np.zeros(n, np.uint8),
        np.zeros(n, np.int64),
        Ragged.of([EXPIRY_ID.encode()] * n),
        keys,
        values.text,
        Ragged.empty(n),
    )


def with_removed(ended: Iterable[list[bytes]], written: WrittenValues) -> Iterator[WrittenValues]:
    """Yield what a plan has written, and deletes of what has ended and was not written,
    in parts.
    """
    known: set[bytes] | None = None
    for part in ended:
        known = set(written.key.tolist()) if known is None else known
        gone = [key for key in part if key not in known]
        deletes = WrittenValues.deletes(gone)
        yield WrittenValues.concat([written, deletes]) if gone else written
        written = WrittenValues.none()
    if known is None:
        yield written

"""Expiry in `grouping=single`: the removals that a shard tells itself, and how far it has.

A writer that is granted a key which has ended before it tells the removal. What nobody waits for is
*swept*: its shard tells it, at most so many bytes in a step, and deletes it in the next one, when
that has been written. A seq is resolved when every shard has told the removals up to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.messages import KeyRemovals
from streamydb.frames.plans import Timeline
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import WrittenValues
from streamydb.key_processor.expiry import removed
from streamydb.key_processor.locking.locks import LockTable
from streamydb.key_processor.locking.messages import RemovedAt, is_key_lock, key_lock
from streamydb.key_processor.locking.state import SingleMeta
from streamydb.key_processor.values import ShardValues

_KEYS_MAX = 4_096
"""As many keys are swept in a step at most."""


def place_of(meta: SingleMeta, end: int) -> RemovedAt:
    """Return the place at which a key with this end is removed.
    Raises InvariantViolation: it is resolved already, or it has not come.
    """
    i = bisect_left(meta.unresolved, end, key=lambda txn: txn.ts)
    early = i == 0 and end <= meta.resolved_ts
    if early or i == len(meta.unresolved):
        raise InvariantViolation(f"a key that ends at {end} is to be removed, but not here")
    txn = meta.unresolved[i]
    return RemovedAt(meta.resolved + 1 + i, txn.ts, txn.part, txn.off)


@dataclass(slots=True)
class EndedKeys(Container[bytes]):
    """The keys that have ended by a commit time and are still there, by when they end."""

    ends: Mapping[bytes, int]
    ts_ms: int

    def __contains__(self, key: object) -> bool:
        end = self.ends.get(key) if isinstance(key, bytes) else None
        return end is not None and end <= self.ts_ms


@dataclass(slots=True)
class Sweep:
    """One step's sweep: the places and the keys that are removed.

    ``pending``: the first seq at which something has still to be removed, if anything has.
    """

    keys: list[bytes] = field(default_factory=list)
    places: list[RemovedAt] = field(default_factory=list)
    pending: int | None = None

    @classmethod
    def of(cls, meta: SingleMeta, values: ShardValues, locks: LockTable, bytes_max: int) -> Sweep:
        """Find what has ended by the last released record, and nobody waits for."""
        sweep, size = cls(), 0
        if not (meta.expires and meta.unresolved):
            return sweep
        ranges = locks.spans()
        for due in values.due(meta.unresolved[-1].ts):
            sizes = values.sizes(Ragged.of([key for _, key in due])).tolist()
            for (end, key), own in zip(due, sizes, strict=True):
                place, name = place_of(meta, end), key_lock(key)
                waits = name in locks.state or ranges.earlier(name, place.seq)
                full = bool(sweep.keys) and (size + own > bytes_max or len(sweep.keys) >= _KEYS_MAX)
                if waits or full:
                    sweep.pending = min(sweep.pending or place.seq, place.seq)
                else:
                    sweep.keys.append(key)
                    sweep.places.append(place)
                    size += own
                if full:
                    return sweep
        return sweep

    def removals(self, values: ShardValues, covered: int) -> Iterator[KeyRemovals]:
        """Yield what is to be told of it: nothing of seqs that are ``covered``."""
        rows = [i for i, place in enumerate(self.places) if place.seq > covered]
        if rows:
            keys = Ragged.of([self.keys[i] for i in rows])
            columns = zip(*(self.places[i] for i in rows), strict=True)
            seq, ts, part, off = (np.array(column, np.int64) for column in columns)
            at = Timeline(ts, seq, part, off)
            yield KeyRemovals(removed(keys, values.read(keys), at, np.arange(len(keys))))


def swept(meta: SingleMeta, locks: LockTable, sweep: Sweep) -> int:
    """Return up to which seq a shard has told all removals, with a step's ``sweep``.

    Whoever may write a key may let it end at any seq after its own.
    """
    bound = meta.seq if sweep.pending is None else sweep.pending - 1
    for name, lock in locks.state.items():
        if is_key_lock(name):
            bound = min(bound, lock.first_writer or bound)
    return bound


def split_removals(
    meta: SingleMeta, before: WrittenValues, after: WrittenValues, seqs: Sequence[int]
) -> tuple[WrittenValues, WrittenValues, list[int]]:
    """Part writes of keys that have ended in their removals, at their places, and what comes then.

    Args:
        meta: the state; the writers are unresolved.
        before: the values that the keys held, with their keys.
        after: the values that they hold then.
        seqs: of the writers.

    Returns:
        before, after, and seqs of both.
    """
    tags, ends = before.tag.copy(), before.number
    over = [
        row
        for row in np.flatnonzero(tags == p.EXPIRING).tolist()
        if ends[row] <= meta.unresolved[seqs[row] - meta.resolved - 1].ts
    ]
    if not over:
        return before, after, list(seqs)
    rows = np.array(over, np.int64)
    gone = before.take(rows)
    absent = WrittenValues.deletes(gone.key.tolist())
    tags[rows] = p.ABSENT
    rest = WrittenValues(tags, ends, before.version, before.key, before.text)
    places = [place_of(meta, int(ends[row])).seq for row in over]
    return (
        WrittenValues.concat([gone, rest]),
        WrittenValues.concat([absent, after]),
        [*places, *seqs],
    )

"""Ranges in `grouping=single`: what a transaction sees of the parts that the shards have sent."""

from __future__ import annotations

from streamydb import records as r
from streamydb.frames.lock_messages import Granted
from streamydb.key_processor.locking.messages import decode_list, key_lock, unpacked
from streamydb.key_processor.locking.ranges import RangePart
from streamydb.records.ranges import Bounds
from streamydb.txn_processor.comparisons import Value
from streamydb.txn_processor.gathering.gathered import Gathered
from streamydb.txn_processor.ranges import Entries, FixedPart, See, Seen, joined, nothing_seen


def see_of(gathered: Gathered, txn: r.Transaction) -> See:
    """Return the ranges of a gathered transaction: what the shards found, and its own keys."""
    payload, grants = gathered.payload, gathered.grants
    if not payload.ranges:
        return nothing_seen
    answers = [decode_list(grants[name].value or b"", RangePart) for name in payload.ranges]
    fixed: dict[Bounds, FixedPart] = {
        bounds: joined([_fixed(part) for part in parts])
        for bounds, *parts in zip(txn.ranges, *answers, strict=True)
    }
    values = {key: looked(grants[key_lock(key)]) for key, write, _ in payload.keys if write}
    own: dict[bytes, Value] = {key: seen for key, seen in values.items() if seen[0] is not None}

    def here(bounds: Bounds) -> Entries:
        return {key.decode(): value for key, value in own.items() if bounds[0] <= key < bounds[1]}

    def seen(bounds: Bounds) -> Seen:
        found, more = fixed[bounds], here(bounds)
        versions = (version for _, version in more.values())
        return Seen(found.keys + len(more), max([found.version, *versions]))

    def entries(bounds: Bounds) -> Entries | None:
        known = fixed[bounds].entries
        return None if known is None else {**known, **here(bounds)}

    return See(seen, entries)


def looked(grant: Granted) -> Value:
    """Return what a transaction sees under a lock: nothing of what has ended."""
    value, removed = unpacked(grant.value)
    return (value, grant.version) if removed is None else (None, 0)


def _fixed(part: RangePart) -> FixedPart:
    entries: Entries | None = None
    if part.entries is not None:
        entries = {key.decode(): (value, version) for key, value, version in part.entries}
    return FixedPart(part.count, part.version, entries)

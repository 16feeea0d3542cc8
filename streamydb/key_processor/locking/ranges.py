"""Ranges in `grouping=single`: what a shard sends of those of a transaction,
and what comes of it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec
import numpy as np

from streamydb import records as r
from streamydb.columns import program as p
from streamydb.columns.lock_messages import Granted
from streamydb.columns.record_rows import ReleasedRecords
from streamydb.columns.table import Ragged, starts_of
from streamydb.key_processor.locking.gatherer import Gathered
from streamydb.key_processor.locking.locks import RangeLock
from streamydb.key_processor.locking.messages import (
    decode_list,
    encode_list,
    key_lock,
    locked_name,
    range_lock,
    unpacked,
)
from streamydb.key_processor.ranges import EitherKeys, FoundRange, RangeScanner
from streamydb.key_processor.value_store import decoded
from streamydb.key_processor.values import ShardValues
from streamydb.records.ranges import Bounds
from streamydb.txn_processor.comparisons import Value
from streamydb.txn_processor.ranges import Entries, FixedPart, See, Seen, joined, nothing_seen

__all__ = ["answer", "looked", "range_locks", "see_of"]


class _Part(msgspec.Struct, array_like=True, gc=False):
    """A range as one shard has found it; ``entries``: None if they are not needed, or too many."""

    count: int
    version: int
    entries: list[tuple[bytes, bytes, int]] | None


def range_locks(
    released: ReleasedRecords, shard: int, own: Sequence[Sequence[tuple[bytes, bool, int]]]
) -> dict[int, RangeLock]:
    """Return the range locks of transactions at a shard, by their position.

    ``own``: of each transaction its keys, whether it may write them, and where they live.
    """
    if released.ranges is None:
        return {}
    counts, rows = released.ranges
    starts = starts_of(counts).tolist()
    named = list(zip(rows.start.tolist(), rows.end.tolist(), strict=True))
    reads = rows.read.astype(bool).tolist()
    seqs = released.seq.tolist()
    return {
        i: RangeLock(
            seqs[i], range_lock(shard),
            [(key_lock(start), key_lock(end)) for start, end in named[starts[i] : starts[i + 1]]],
            reads[starts[i] : starts[i + 1]],
            [key for key, write, owner in own[i] if write and owner == shard],
        )
        for i in np.flatnonzero(counts).tolist()
    }  # fmt: skip


def answer(values: ShardValues, lock: RangeLock, over: Container[bytes]) -> bytes:
    """Return the ranges of a transaction as this shard holds them, without its own written keys.

    ``over``: keys that have ended before it.
    """
    scanner = RangeScanner(values, EitherKeys(over, set(lock.own)))
    wanted = [
        ((locked_name(first), locked_name(last)), read)
        for (first, last), read in zip(lock.spans, lock.reads, strict=True)
    ]
    return encode_list([_part(found) for found in scanner.serve(wanted)])


def _part(found: FoundRange) -> _Part:
    if found.items is None:
        return _Part(found.keys, found.version, None)
    table = decoded(Ragged.of([item for _, item in found.items]))
    columns = table.tag.tolist(), table.number.tolist(), table.version.tolist()
    values = zip(*columns, table.text.tolist(), strict=True)
    entries = [
        (key, b"%d" % number if tag == p.INT else text, version)
        for (key, _), (tag, number, version, text) in zip(found.items, values, strict=True)
    ]
    return _Part(found.keys, found.version, entries)


def see_of(gathered: Gathered, txn: r.Transaction) -> See:
    """Return the ranges of a gathered transaction: what the shards found, and its own keys."""
    payload, grants = gathered.payload, gathered.grants
    if not payload.ranges:
        return nothing_seen
    answers = [decode_list(grants[name].value or b"", _Part) for name in payload.ranges]
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


def _fixed(part: _Part) -> FixedPart:
    entries: Entries | None = None
    if part.entries is not None:
        entries = {key.decode(): (value, version) for key, value, version in part.entries}
    return FixedPart(part.count, part.version, entries)

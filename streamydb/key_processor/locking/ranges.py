"""Ranges in `grouping=single`: what a shard sends of those of a transaction."""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec
import numpy as np

from streamydb.frames import program as p
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.frames.table import Ragged, starts_of
from streamydb.key_processor.locking.locks import RangeLock
from streamydb.key_processor.locking.messages import encode_list, key_lock, locked_name, range_lock
from streamydb.key_processor.ranges import EitherKeys, FoundRange, RangeScanner
from streamydb.key_processor.value_store import decoded
from streamydb.key_processor.values import ShardValues


class RangePart(msgspec.Struct, array_like=True, gc=False):
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


def _part(found: FoundRange) -> RangePart:
    if found.items is None:
        return RangePart(found.keys, found.version, None)
    table = decoded(Ragged.of([item for _, item in found.items]))
    columns = table.tag.tolist(), table.number.tolist(), table.version.tolist()
    values = zip(*columns, table.text.tolist(), strict=True)
    entries = [
        (key, b"%d" % number if tag == p.INT else text, version)
        for (key, _), (tag, number, version, text) in zip(found.items, values, strict=True)
    ]
    return RangePart(found.keys, found.version, entries)

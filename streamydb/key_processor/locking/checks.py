"""Checks of what `grouping=single` is handed, and hands on; see `frames.invariants`.

Here everything is plain objects, and so are the checks: beside what a transaction costs one at a
time, they are as cheap as the kernels are beside the planner's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from streamydb import limits
from streamydb.frames.hashing import KEY_SEED, hash_ragged
from streamydb.frames.invariants import HANDED_IN, HANDED_ON, Seam, repeats, stray
from streamydb.frames.lock_messages import Granted, Payload, Released
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.locking.messages import (
    is_id_lock,
    is_range_lock,
    locked_name,
    unpacked,
)
from streamydb.key_processor.locking.state import SingleMeta
from streamydb.sorter.checks import require_order

_ORDER = Seam("key_processor/locking", HANDED_IN, "an order")
_FEEDBACK = Seam("key_processor/locking", HANDED_IN, "released locks")
_SENT = Seam("key_processor/locking", HANDED_ON, "payloads and grants")
_COUNTS = Seam("key_processor/locking", HANDED_ON, "a state")

_RANGES_BYTES_MAX: Final = 4 * limits.RESULT_BYTES_MAX
"""What is found of ranges ends with the one with which a result is too large."""


def ordered(released: TimedRecords, meta: SingleMeta) -> None:
    """Require an order that goes on after what was released before."""
    last = meta.unresolved[-1].ts if meta.unresolved else meta.resolved_ts
    require_order(_ORDER, released, last)


def addressed(rows: Sequence[Released], shard: int, shards: int) -> None:
    """Require that locks of keys come back to the shard where they live."""
    if shards == 1:
        return
    names = Ragged.of([locked_name(row.lock) for row in rows if not is_id_lock(row.lock)])
    homes = hash_ragged(names, KEY_SEED) % np.uint64(shards)
    here = bool(np.all(homes == np.uint64(shard)))
    _FEEDBACK.require(here, "they live here", shard=shard)


def released(meta: SingleMeta, shard: int, writes: WrittenValues, verdicts: Verdicts) -> None:
    """Require that what comes back is of unresolved transactions, and each key is there once."""
    seqs = meta.resolved + 1, meta.seq
    writes.check(_FEEDBACK, seqs)
    verdicts.check(_FEEDBACK, seqs)
    row = repeats(writes.key)
    _FEEDBACK.require(row < 0, "each key is there once", row=row, shard=shard)
    row = stray(writes.key, meta.config.shards, shard)
    _FEEDBACK.require(row < 0, "each key lives here", row=row, shard=shard)


def sent(payloads: Sequence[Payload], grants: Sequence[Granted], meta: SingleMeta) -> None:
    """Require that what an executing partition gets is of unresolved transactions."""
    low, high = meta.resolved, meta.seq
    seqs = [payload.seq for payload in payloads]
    within = all(low < seq <= high for seq in (*seqs, *(grant.seq for grant in grants)))
    _SENT.require(within, "it is of unresolved transactions", after=low, last=high)
    require_messages(_SENT, payloads, grants)


def require_messages(seam: Seam, payloads: Sequence[Payload], grants: Sequence[Granted]) -> None:
    """Require that payloads and grants are in order, each once, with values from before."""
    ascends = all(one.seq < other.seq for one, other in pairwise(payloads))
    seam.require(ascends, "payloads are in order, each once", payloads=len(payloads))
    once = len({(grant.seq, grant.lock) for grant in grants}) == len(grants)
    seam.require(once, "each lock is granted once", grants=len(grants))
    for grant in grants:
        size = len(unpacked(grant.value)[0] or b"")
        earlier = 0 <= grant.version < grant.seq and (grant.value is not None or not grant.version)
        seam.require(earlier, "values are from before", seq=grant.seq, version=grant.version)
        small = size <= limits.VALUE_BYTES_MAX or is_id_lock(grant.lock)
        small = small or (is_range_lock(grant.lock) and size <= _RANGES_BYTES_MAX)
        seam.require(small, "values are within their limit", seq=grant.seq, size=size)


def counted(meta: SingleMeta) -> None:
    """Require that every transaction is resolved, or waits for that."""
    waiting = len(meta.unresolved)
    holds = meta.resolved + waiting == meta.seq
    _COUNTS.require(holds, "seqs add up", resolved=meta.resolved, waiting=waiting, seq=meta.seq)

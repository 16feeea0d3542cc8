"""Checks of what executing partitions are handed, and hand on: `frames.invariants`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.grant_rows import GrantedTransactions, SlotRows
from streamydb.frames.invariants import HANDED_IN, HANDED_ON, Seam
from streamydb.frames.jit import kernel
from streamydb.frames.plans import PlanName

if TYPE_CHECKING:
    from streamydb.txn_processor.feedback import FeedbackChunk
    from streamydb.txn_processor.outcome import ExecutionOutcome

Ints = npt.NDArray[np.int64]
Grants = Sequence[tuple[int, GrantedTransactions, SlotRows]]

_GRANTS = Seam("txn_processor", HANDED_IN, "grants")
_OUTCOME = Seam("txn_processor", HANDED_ON, "an outcome")
_FEEDBACK = Seam("txn_processor", HANDED_ON, "feedback")


def one_plan(names: Iterable[PlanName]) -> None:
    """Require that all shards of a batch have made the same plan."""
    plans = sorted(set(names))
    numbers = [(name.number, name.first, name.last) for name in plans]
    _GRANTS.require(len(plans) < 2, "all shards make one plan", plans=numbers)


def granted(name: PlanName, parts: Grants, chunks: Iterable[tuple[int, int]], members: int) -> None:
    """Require that one partition has all its grants of a plan, each once.

    Args:
        name: the plan's.
        parts: (shard, transactions, slots).
        chunks: (shard, chunk) of the blocks that came.
        members: how many transactions the partition has.
    """
    seqs, where = (name.first, name.last), {"first": name.first, "last": name.last}
    numbers: dict[int, list[int]] = {}
    for shard, chunk in chunks:
        numbers.setdefault(shard, []).append(chunk)
    whole = all(
        sorted(chunk_numbers) == list(range(len(chunk_numbers)))
        for chunk_numbers in numbers.values()
    )
    _GRANTS.require(whole, "every chunk is there once", **where)
    for shard, txns, slots in parts:
        slots.check(_GRANTS, seqs, shard=shard)
        txns.check(_GRANTS, seqs, shard=shard)
    count = sum(len(txns) for _, txns, _ in parts)
    _GRANTS.require(
        count == members, "each transaction is there once", members=members, found=count, **where
    )
    slot = [slots.slot for _, _, slots in parts if len(slots)]
    if len(slot) > 1:
        owners = np.bincount(np.concatenate(slot))
        _GRANTS.require(int(owners.max()) == 1, "each slot is of one shard", **where)


def ranged(parts: int, shards: int, written: int, found: int) -> None:
    """Require that every shard has sent its part of a range, and all keys that the plan may write
    in it are here: ``written``, as the shards have counted them, and ``found``.
    """
    _GRANTS.require(parts == shards, "all shards send each range", parts=parts, shards=shards)
    fact = "all written keys of a range are where it is read"
    _GRANTS.require(written == found, fact, written=written, found=found)


_STANDING: Final = np.dtype([("content", "<i8"), ("txn", "<i4"), ("tag", "u1"), ("pad", "u1", 3)])
"""What a slot holds, as its writes tell: an integer, or the number of a text; and who wrote it."""


@kernel
def _unchained(
    writes: Any, slots: Any, seqs: Ints, granted: tuple[Any, Any], standing: Any
) -> tuple[int, int]:
    """The first write that does not follow from those before it, or the first slot that is not as
    its last write has left it.
    """
    tags, numbers = granted
    for s in range(len(slots)):
        standing[s].tag, standing[s].txn = tags[s], -1
        standing[s].content = numbers[s] if tags[s] == p.INT else s
    last = 0
    for w in range(len(writes)):
        txn, s = writes[w].txn, writes[w].slot
        if txn < last or txn >= len(seqs) or s < 0 or s >= len(slots):
            return 0, w
        last = txn
        if standing[s].txn == txn:
            return 1, w
        tag = writes[w].before_tag
        content = writes[w].before_number if tag == p.INT else writes[w].before_ref
        if tag != standing[s].tag or (tag != p.ABSENT and content != standing[s].content):
            return 2, w
        tag = writes[w].after_tag
        standing[s].tag, standing[s].txn = tag, txn
        standing[s].content = writes[w].after_number if tag == p.INT else writes[w].after_ref
    for s in range(len(slots)):
        txn, tag = standing[s].txn, slots[s].tag
        if slots[s].dirty != (txn >= 0):
            return 3, s
        if txn < 0:
            continue
        content = slots[s].number if tag == p.INT else slots[s].ref
        if tag != standing[s].tag or (tag != p.ABSENT and content != standing[s].content):
            return 3, s
        if slots[s].version != (0 if tag == p.ABSENT else seqs[txn]):
            return 3, s
    return -1, -1


_OUTCOME_FACTS: Final = (
    "writes are of its transactions and slots, in order",
    "a transaction writes a key once",
    "each write finds what the one before it has left",
    "each slot holds what its last write has left, and the version of who wrote it",
)


def executed(name: PlanName, outcome: ExecutionOutcome, parts: Grants) -> None:
    """Require that the writes follow from each other, and the slots from the writes: a key is
    written once by a transaction, in seq order, and each write finds what the one before has left.
    """
    tags = np.concatenate([slots.tag for _, _, slots in parts])
    numbers = np.concatenate([slots.number for _, _, slots in parts])
    slots, where = outcome.slots, {"first": name.first, "last": name.last}
    version = _unchained(
        outcome.writes,
        slots,
        outcome.places.table.seq,
        (tags, numbers),
        np.empty(len(slots), _STANDING),
    )
    _OUTCOME.require_none(version, _OUTCOME_FACTS, **where)
    late = outcome.reads["txn"]
    seen = not len(late) or (int(late.min()) >= 0 and int(late.max()) < len(outcome.txns))
    _OUTCOME.require(seen, "reads are of its transactions", **where)


def require_chunk(chunk: FeedbackChunk, seqs: tuple[int, int]) -> None:
    """Require what holds of a part of the feedback; ``seqs``: first and last of the plan."""
    chunk.writes.check(_FEEDBACK, seqs)
    chunk.verdicts.check(_FEEDBACK, seqs)


def fed(
    name: PlanName, outcome: ExecutionOutcome, chunks: Iterable[FeedbackChunk]
) -> Iterator[FeedbackChunk]:
    """Pass on what every shard must learn; require that every written key is told, once."""
    written, count, seqs = int(np.count_nonzero(outcome.slots["dirty"])), 0, (name.first, name.last)
    for chunk in chunks:
        require_chunk(chunk, seqs)
        count += len(chunk.writes)
        yield chunk
    _FEEDBACK.require(count == written, "each written key is told", written=written, told=count)

"""Checks of what a shard is handed, and hands on; see `frames.invariants`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.frames.blobs import Blob
from streamydb.frames.grant_rows import GrantedTransactions, SlotRows
from streamydb.frames.invariants import HANDED_IN, HANDED_ON, Seam, repeats, stray
from streamydb.frames.jit import leaf, same_text
from streamydb.frames.messages import Feedback, Token
from streamydb.frames.plans import OpenPlan
from streamydb.frames.record_rows import TimedRecords
from streamydb.frames.table import Ragged, Texts
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.value_store import FileOrder
from streamydb.limits import SHARDS_MAX
from streamydb.sorter.checks import require_order

Ints = npt.NDArray[np.int64]

_ALIKE_MAX: Final = 8
_MANY: Final = -2

_BLOCK = Seam("key_processor", HANDED_IN, "a block of feedback")
_FEEDBACK = Seam("key_processor", HANDED_IN, "the feedback of a plan")
_ORDER = Seam("key_processor", HANDED_IN, "an order")
_GRANT = Seam("key_processor", HANDED_ON, "a grant")
_STATE = Seam("key_processor", HANDED_ON, "an index of blobs")


def addressed(message: Feedback | Token, plan: OpenPlan, shard: int, shards: int) -> None:
    """Require that feedback, or a token of it, is of the plan's partitions and came here."""
    to, proc, chunk, chunks = message.shard, message.proc, message.chunk, message.chunks
    mine = to == shard if isinstance(message, Feedback) else 0 <= to < shards
    _BLOCK.require(mine, "it is for this shard", shard=shard, named=to)
    known = proc in plan.procs or SHARDS_MAX <= proc < SHARDS_MAX + shards
    _BLOCK.require(known, "it is of a partition of the plan", plan=plan.number)
    _BLOCK.require(0 <= chunk < chunks, "chunks are numbered", chunk=chunk, chunks=chunks)


def fed(
    plan: OpenPlan,
    chunks: Sequence[Feedback],
    writes: WrittenValues,
    verdicts: Verdicts,
    at: tuple[int, int],
) -> None:
    """Require that the feedback of a plan is all there, once; ``at``: shard, and shards.

    `written` looks whether a key is there twice, once the keys are in order.
    """
    seqs, where = (plan.after + 1, plan.seq), {"plan": plan.number, "shard": at[0]}
    counts = Counter((part.proc, part.chunks) for part in chunks)
    whole = {(proc, total) for (proc, total), count in counts.items() if count == total}
    complete = sorted(proc for proc, _ in whole) == sorted(plan.procs) and len(counts) == len(whole)
    _FEEDBACK.require(complete, "every chunk of every partition is there once", **where)
    writes.check(_FEEDBACK, seqs)
    verdicts.check(_FEEDBACK, seqs)
    row = stray(writes.key, at[1], at[0])
    _FEEDBACK.require(row < 0, "each key lives here", row=row, **where)
    own = verdicts.seq
    once = len(own) < 2 or len(np.unique(own)) == len(own)
    _FEEDBACK.require(once, "each verdict is there once", **where)


@leaf
def _twice(keys: Texts, order: FileOrder) -> int:
    """Return where a key came before, among those that begin alike; _MANY if too many do."""
    rows, begin, last = order.rows, 0, np.uint64(0)
    for i in range(len(rows)):
        prefix = order.prefixes[rows[i]]
        if prefix != last:
            begin, last = i, prefix
        if i - begin > _ALIKE_MAX:
            return _MANY
        for j in range(begin, i):
            if same_text(keys.data, keys.offsets, rows[j], rows[i]):
                return int(rows[i])
    return -1


def written(keys: Ragged, order: FileOrder) -> None:
    """Require that feedback tells each key once; in the order of the file that takes no table."""
    row = _twice(keys.texts(), order)
    row = repeats(keys) if row == _MANY else row
    _FEEDBACK.require(row < 0, "each key is there once", row=row)


def ordered(released: TimedRecords, before: tuple[int, int]) -> None:
    """Require an order that goes on after ``before`` (seq, ms)."""
    require_order(_ORDER, released, before[1])


def granted(plan: OpenPlan, chunk: int, txns: GrantedTransactions, slots: SlotRows) -> None:
    """Require that a grant, or a chunk of it, is of its plan, with values from before it."""
    seqs = plan.after + 1, plan.seq
    slots.check(_GRANT, seqs, chunk=chunk)
    txns.check(_GRANT, seqs, chunk=chunk)


def applied(resolved: int, seq: int, *, in_flight: bool) -> None:
    """Require that nothing is called resolved before its feedback was applied."""
    seam = Seam("key_processor", HANDED_ON, "a resolved seq")
    seam.require(resolved <= seq and not in_flight, "it was applied", resolved=resolved, seq=seq)


def indexed(blobs: Sequence[Blob], last: int, digest: str) -> None:
    """Require that the blobs of values follow each other up to the ``last`` plan."""
    ends = [0, *(blob.last for blob in blobs)]
    chained = all(blob.first == end + 1 for blob, end in zip(blobs, ends, strict=False))
    _STATE.require(chained and ends[-1] == last, "no plan is missing", plans=last)
    _STATE.require(blobs[-1].digest == digest, "it ends with the state's digest", plans=last)

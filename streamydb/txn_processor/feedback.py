"""Feedback to the shards: last values, and the results that they cannot make up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamydb.columns import program as p
from streamydb.columns.program import NOT_A_DUPLICATE
from streamydb.columns.sizes import class_of
from streamydb.columns.table import Bytes, Columns, Ragged, starts_of
from streamydb.txn_processor.format import format_results
from streamydb.txn_processor.outcome import ExecutionOutcome
from streamydb.txn_processor.rows import result_rows

__all__ = ["feedback_chunks"]

Ints = npt.NDArray[np.int64]


def feedback_chunks(
    outcome: ExecutionOutcome, shards: int, bytes_max: int
) -> Iterator[tuple[int, int, int, Columns, Columns]]:
    """Yield the feedback for every shard as (shard, chunk, chunks, writes, verdicts), each of at
    most some ``bytes_max`` bytes.
    """
    writes, owners = _final_writes(outcome)
    if shards > 1:
        writes.cols["grown"] = _grown(outcome, writes)
    verdicts, homes = _verdicts(outcome)
    for shard in range(shards):
        own = writes.take(np.flatnonzero(owners == shard))
        told = verdicts.take(np.flatnonzero(homes == shard))
        sizes = own.texts["key"].lengths() + own.texts["text"].lengths() + 24
        write_cuts = _cuts(sizes, bytes_max)
        verdict_cuts = _cuts(told.texts["result"].lengths() + 16, bytes_max)
        if len(write_cuts) == 1 and len(verdict_cuts) == 1 and _size(own, told) < bytes_max:
            yield shard, 0, 1, own, told
            continue
        none = np.empty(0, np.int64)
        parts = [(rows, none) for rows in write_cuts] + [(none, rows) for rows in verdict_cuts]
        for chunk, (left, right) in enumerate(parts):
            yield shard, chunk, len(parts), own.take(left), told.take(right)


def _size(writes: Columns, verdicts: Columns) -> int:
    texts = (*writes.texts.values(), *verdicts.texts.values())
    fixed = 40 * len(writes) + 16 * len(verdicts)
    return sum(len(text.data) for text in texts) + fixed


def _cuts(sizes: Ints, bytes_max: int) -> list[Ints]:
    """Row numbers in runs whose sizes sum up to ``bytes_max`` at the most; at least one run."""
    ends = np.cumsum(sizes)
    rows = np.arange(len(sizes))
    runs, start = [], 0
    while start < len(sizes):
        base = ends[start] - sizes[start]
        end = int(np.searchsorted(ends, base + bytes_max, "right"))
        end = max(end, start + 1)
        runs.append(rows[start:end])
        start = end
    return runs or [rows]


def _final_writes(outcome: ExecutionOutcome) -> tuple[Columns, Ints]:
    """The last value of every slot that was written, and the shard that owns it."""
    dirty = np.flatnonzero(outcome.slots["dirty"])
    slots = outcome.slots[dirty]
    opaque = slots["tag"] >= p.OPAQUE
    lengths = np.zeros(len(dirty), np.int64)
    texts = outcome.pool.take(slots["ref"][opaque])
    lengths[opaque] = texts.lengths()
    table = Columns(
        {name: np.ascontiguousarray(slots[name]) for name in ("tag", "number", "version")},
        {"key": outcome.slot_keys.take(dirty), "text": Ragged(texts.data, starts_of(lengths))},
    )
    return table, outcome.slot_home[dirty]


def _grown(outcome: ExecutionOutcome, writes: Columns) -> Bytes:
    """Of each final write, the class of its size if it is larger than that of the value before."""
    dirty = np.flatnonzero(outcome.slots["dirty"])
    offsets = outcome.pool.offsets  # it begins with the values that were granted, slot by slot
    before = class_of(offsets[dirty + 1] - offsets[dirty])
    after = class_of(writes.texts["text"].lengths())
    return np.where(after > before, after, 0).astype(np.uint8)


def _verdicts(outcome: ExecutionOutcome) -> tuple[Columns, Ints]:
    """Return the results that a home shard cannot derive: of executed transactions that aborted or
    read.
    """
    txns = outcome.txns
    special = np.zeros(len(txns), np.bool_)
    special[list(outcome.special)] = True
    special[outcome.reads["txn"]] = True
    executed = (txns.cols["kind"] != p.REJECTED) & (txns.cols["duplicate"] == NOT_A_DUPLICATE)
    rows = np.flatnonzero(special & executed)
    results = format_results(result_rows(outcome, rows)) if len(rows) else Ragged.empty()
    table = Columns({"seq": txns.cols["seq"][rows]}, {"result": results})
    return table, txns.cols["home"][rows].astype(np.int64)

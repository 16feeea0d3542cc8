"""Feedback to the shards: last values, and the results that they cannot make up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.program import NOT_A_DUPLICATE
from streamydb.frames.sizes import class_of, tells
from streamydb.frames.table import Bytes, Ragged, starts_of
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.txn_processor.format import format_results, result_rows
from streamydb.txn_processor.outcome import ExecutionOutcome

Ints = npt.NDArray[np.int64]


class FeedbackChunk(NamedTuple):
    """The feedback for a shard, or a part of it: number ``chunk`` of ``chunks``.

    ``sizes``: see `frames.sizes`.
    """

    shard: int
    chunk: int
    chunks: int
    writes: WrittenValues
    verdicts: Verdicts
    sizes: bytes


def feedback_chunks(
    outcome: ExecutionOutcome, shards: int, bytes_max: int
) -> Iterator[FeedbackChunk]:
    """Yield the feedback for every shard, in chunks of at most some ``bytes_max`` bytes."""
    # The last value of every slot that was written, and the shard that owns it.
    dirty = outcome.slots["dirty"].nonzero()[0]
    slots = outcome.slots[dirty]
    opaque = slots["tag"] >= p.OPAQUE
    texts = Ragged.empty(len(dirty))
    if opaque.any():
        lengths = np.zeros(len(dirty), np.int64)
        values = outcome.pool.take(slots["ref"][opaque])
        lengths[opaque] = values.lengths()
        texts = Ragged(values.data, starts_of(lengths))
    table = WrittenValues(
        np.ascontiguousarray(slots["tag"]),
        np.ascontiguousarray(slots["number"]),
        np.ascontiguousarray(slots["version"]),
        outcome.slot_keys.take(dirty),
        texts,
    )
    writes, owners = table, outcome.slot_home[dirty]
    grown = _grown(outcome, writes) if shards > 1 else np.zeros(len(writes), np.uint8)
    verdicts, homes = _verdicts(outcome)
    for shard in range(shards):
        own, classes, results = writes, grown, verdicts
        if shards > 1:
            at = np.flatnonzero(owners == shard)
            own, classes = writes.take(at), grown[at]
            results = verdicts.take(np.flatnonzero(homes == shard))
        if _size(own, results) < bytes_max:  # as the cuts count it, and more
            yield FeedbackChunk(shard, 0, 1, own, results, _sizes(own, classes))
            continue
        write_cuts = _cuts(own.text_bytes() + 24, bytes_max)
        verdict_cuts = _cuts(results.text_bytes() + 16, bytes_max)
        none = np.empty(0, np.int64)
        parts = [(rows, none) for rows in write_cuts] + [(none, rows) for rows in verdict_cuts]
        for chunk, (left, right) in enumerate(parts):
            part = own.take(left)
            yield FeedbackChunk(
                shard, chunk, len(parts), part, results.take(right), _sizes(part, classes[left])
            )


def _sizes(writes: WrittenValues, grown: Bytes) -> bytes:
    """Encode the size classes that written values have newly reached, for all shards."""
    rows = np.flatnonzero(grown)
    return tells(writes.key.take(rows), grown[rows]) if len(rows) else b""


def _size(writes: WrittenValues, verdicts: Verdicts) -> int:
    texts = len(writes.key.data) + len(writes.text.data) + len(verdicts.result.data)
    return texts + 40 * len(writes) + 16 * len(verdicts)


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


def _grown(outcome: ExecutionOutcome, writes: WrittenValues) -> Bytes:
    """Of each final write, the class of its size if it is larger than that of the value before."""
    dirty = np.flatnonzero(outcome.slots["dirty"])
    offsets = outcome.pool.offsets  # it begins with the values that were granted, slot by slot
    before = class_of(offsets[dirty + 1] - offsets[dirty])
    after = class_of(writes.text.lengths())
    return np.where(after > before, after, 0).astype(np.uint8)


def _verdicts(outcome: ExecutionOutcome) -> tuple[Verdicts, Ints]:
    """Return the results that a home shard cannot derive: of executed transactions that aborted or
    read.
    """
    txns = outcome.txns
    if not outcome.special and not len(outcome.reads):
        return Verdicts.none(), np.empty(0, np.int64)
    special = np.zeros(len(txns), np.bool_)
    special[list(outcome.special)] = True
    special[outcome.reads["txn"]] = True
    executed = (txns.kind != p.REJECTED) & (txns.duplicate == NOT_A_DUPLICATE)
    rows = np.flatnonzero(special & executed)
    results = format_results(result_rows(outcome, rows)) if len(rows) else Ragged.empty()
    return Verdicts(txns.seq[rows], results), txns.home[rows].astype(np.int64)

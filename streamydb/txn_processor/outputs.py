"""Make the records of an outcome: results, changes and dead letters, and feedback to the shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb import errors, limits
from streamydb import records as r
from streamydb.columns import program as p
from streamydb.columns.hashing import hash_ragged
from streamydb.columns.jit import kernel
from streamydb.columns.program import NOT_A_DUPLICATE, PLAN_DUPLICATE
from streamydb.columns.sizes import class_of
from streamydb.columns.table import Array, Bytes, Columns, Ragged, chunk_bounds, expand, starts_of
from streamydb.procedures.follow_ups import Outputs
from streamydb.txn_processor.execution import ExecutionOutcome
from streamydb.txn_processor.fault import opened
from streamydb.txn_processor.format import format_changes, format_results
from streamydb.txn_processor.result import as_duplicate

__all__ = [
    "CHANGES",
    "DEAD_LETTERS",
    "DIGESTS",
    "FEEDBACK",
    "FOLLOW_UPS",
    "RESULTS",
    "STREAMS",
    "Records",
    "Rows",
    "feedback_chunks",
    "formatted",
    "outputs_of",
    "workflow_records",
]

RESULTS: Final = 0
CHANGES: Final = 1
FEEDBACK: Final = 2
DEAD_LETTERS: Final = 3
DIGESTS: Final = 4
STREAMS: Final = 5
FOLLOW_UPS: Final = 6

_FOLLOW_UP_PARTITION: Final = 0
"""Of the log: follow-ups are in order along one partition."""

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]


@dataclass(slots=True)
class Records:
    """Output records of one topic: keys (an empty one is null), values (an empty one is null).

    ``spread``: which formatting task writes them. ``partition``: the Kafka partition, or -1 for the
    key's.
    """

    topic: int
    keys: Ragged
    values: Ragged
    spread: int = 0
    partition: int = -1


@dataclass(slots=True)
class Rows:
    """Results or changes before they are formatted; see `format` for the columns.

    ``spread``: which formatting task does it.
    """

    topic: int
    table: Columns
    spread: int = 0


def formatted(item: Rows | Records, database: str) -> Records:
    """The records of some rows."""
    if isinstance(item, Records):
        return item
    if item.topic == RESULTS:
        return Records(RESULTS, item.table.texts["id"], format_results(item.table), item.spread)
    keys, values = format_changes(database, item.table)
    return Records(CHANGES, keys, values, item.spread)


def outputs_of(outcome: ExecutionOutcome, spreads: int) -> Iterator[Rows | Records]:
    """All outputs of an outcome except feedback; the changes of one key keep one ``spread``."""
    if not len(outcome.txns):
        return
    _copy_originals(outcome)
    n = len(outcome.txns)
    sizes = _result_bytes(outcome)
    for spread, rows in enumerate(np.array_split(np.arange(n), spreads)):
        for part in _in_blocks(rows, sizes):
            yield Rows(RESULTS, _result_rows(outcome, part), spread)
    yield from _changes(outcome, spreads)
    yield from _dead_letters(outcome)
    yield from workflow_records(outcome.workflow)


def _in_blocks(rows: Ints, sizes: Ints | None) -> Iterator[Ints]:
    """Rows in runs of at most a block of bytes, none of them empty; ``sizes``: None if small."""
    if not len(rows):
        return
    if sizes is None or int(sizes[rows].sum()) <= limits.BLOCK_BYTES_MAX:
        yield rows
        return
    for start, end in chunk_bounds(sizes[rows], limits.BLOCK_BYTES_MAX, len(rows)):
        yield rows[start:end]


def _text_bytes(pool: Ragged, tags: Array, refs: Array) -> Ints | None:
    """Bytes of the values that are no integers; None when there are none."""
    opaque = tags == p.OPAQUE
    if not opaque.any():
        return None
    chosen = np.where(opaque, refs, 0)
    return np.where(opaque, pool.offsets[chosen + 1] - pool.offsets[chosen], 0)


def _result_bytes(outcome: ExecutionOutcome) -> Ints | None:
    """Return the size of each result, about; None when all are small."""
    read = _text_bytes(outcome.pool, outcome.reads["tag"], outcome.reads["ref"])
    special = sum(map(len, outcome.special.values()))
    if read is None and special <= limits.BLOCK_BYTES_MAX:
        return None
    sizes = np.zeros(len(outcome.txns), np.int64)
    if read is not None:
        np.add.at(sizes, outcome.reads["txn"], read)
    for i, result in outcome.special.items():
        sizes[i] += len(result)
    return sizes


def _change_bytes(outcome: ExecutionOutcome) -> Ints | None:
    """Return the size of each change record, about; None when all are small."""
    sizes = None
    for tag, ref in (("before_tag", "before_ref"), ("after_tag", "after_ref")):
        own = _text_bytes(outcome.pool, outcome.writes[tag], outcome.writes[ref])
        if own is not None:
            sizes = own if sizes is None else sizes + own
    return sizes


def workflow_records(outputs: Outputs) -> Iterator[Records]:
    """Records of streams and of the log, each in one piece, so that they keep their order."""
    for topic, records, partition in (
        (STREAMS, outputs.emitted, -1),
        (FOLLOW_UPS, outputs.follow_ups, _FOLLOW_UP_PARTITION),
    ):
        if records:
            keys, values = (Ragged.of(list(column)) for column in zip(*records, strict=True))
            yield Records(topic, keys, values, 0, partition)


def _copy_originals(outcome: ExecutionOutcome) -> None:
    """Make the results of duplicates within the plan from those of their originals."""
    txns = outcome.txns
    copies = np.flatnonzero(txns.cols["duplicate"] == PLAN_DUPLICATE)
    if not len(copies):
        return
    originals = np.searchsorted(txns.cols["seq"], txns.cols["original"][copies])
    results = format_results(_result_rows(outcome, originals)).tolist()
    for i, result in zip(copies.tolist(), results, strict=True):
        outcome.special[i] = as_duplicate(txns, i, result)


def _result_rows(outcome: ExecutionOutcome, rows: Ints) -> Columns:
    """Return the columns of the results of the transactions at ``rows``."""
    txns, reads = outcome.txns, outcome.reads
    counts = np.bincount(reads["txn"], minlength=len(txns))
    seen = reads
    if len(reads):
        starts = starts_of(counts)[rows]
        seen = reads[expand(starts, counts[rows])]
    return Columns(
        {name: txns.cols[name][rows] for name in _POSITION},
        {"id": txns.texts["id"].take(rows), "special": _at(outcome.special, rows)},
        {
            "reads": (
                counts[rows],
                Columns(
                    {name: np.ascontiguousarray(seen[name]) for name in ("tag", "number")},
                    {
                        "key": outcome.slot_keys.take(seen["slot"]),
                        "text": _opaque(outcome.pool, seen["tag"], seen["ref"]),
                    },
                ),
            )
        },
    )


def _at(texts: dict[int, bytes], rows: Ints) -> Ragged:
    """The texts of the positions ``rows``, empty where there is none."""
    known = np.fromiter(texts, np.int64, len(texts))
    chosen = np.flatnonzero(np.isin(rows, known))
    found = Ragged.of([texts[i] for i in rows[chosen].tolist()])
    lengths = np.zeros(len(rows), np.int64)
    lengths[chosen] = found.lengths()
    return Ragged(found.data, starts_of(lengths))


def _opaque(pool: Ragged, tags: Array, refs: Array) -> Ragged:
    """The texts of the values that are no integers, empty for the others."""
    chosen = tags == p.OPAQUE
    if not chosen.any():
        return Ragged.empty(len(tags))
    texts = pool.take(refs[chosen])
    lengths = np.zeros(len(tags), np.int64)
    lengths[chosen] = texts.lengths()
    return Ragged(texts.data, starts_of(lengths))


_POSITION = ("seq", "ts", "part", "off")


@kernel
def _ordinals(txn: Parts) -> Parts:
    out = np.ones(len(txn), np.int32)
    for i in range(1, len(txn)):
        if txn[i] == txn[i - 1]:
            out[i] = out[i - 1] + 1
    return out


@kernel
def _by_lane(lane: Bytes, slot: Parts, lanes: int) -> tuple[Ints, Ints]:
    """Positions of the writes of each lane, in order, and where each lane's begin."""
    starts = np.zeros(lanes + 1, np.int64)
    for s in slot:
        starts[lane[s] + 1] += 1
    for q in range(lanes):
        starts[q + 1] += starts[q]
    at = starts[:-1].copy()
    order = np.empty(len(slot), np.int64)
    for i in range(len(slot)):
        q = lane[slot[i]]
        order[at[q]] = i
        at[q] += 1
    return order, starts


def _changes(outcome: ExecutionOutcome, spreads: int) -> Iterator[Rows]:
    writes = outcome.writes
    if not len(writes):
        return
    index = _ordinals(np.ascontiguousarray(writes["txn"]))
    order, starts = np.arange(len(writes)), np.array([0, len(writes)])
    if spreads > 1:
        lane = (hash_ragged(outcome.slot_keys) >> np.uint64(32)) % np.uint64(spreads)
        slot = np.ascontiguousarray(writes["slot"])
        order, starts = _by_lane(lane.astype(np.uint8), slot, spreads)
    sizes = _change_bytes(outcome)
    for spread, (start, end) in enumerate(pairwise(starts.tolist())):
        for chosen in _in_blocks(order[start:end], sizes):
            yield Rows(CHANGES, _change_rows(outcome, writes[chosen], index[chosen]), spread)


def _change_rows(outcome: ExecutionOutcome, writes: npt.NDArray[Any], index: Parts) -> Columns:
    """Return the columns of the change records of ``writes``."""
    txns, pool = outcome.txns, outcome.pool
    txn = np.ascontiguousarray(writes["txn"])
    cols = {name: txns.cols[name][txn] for name in _POSITION}
    cols["index"] = index
    for name in ("before_tag", "before_number", "after_tag", "after_number"):
        cols[name] = np.ascontiguousarray(writes[name])
    texts = {
        "id": txns.texts["id"].take(txn),
        "key": outcome.slot_keys.take(np.ascontiguousarray(writes["slot"])),
        "before": _opaque(pool, writes["before_tag"], writes["before_ref"]),
        "after": _opaque(pool, writes["after_tag"], writes["after_ref"]),
    }
    return Columns(cols, texts)


def _dead_letters(outcome: ExecutionOutcome) -> Iterator[Records]:
    cols = outcome.txns.cols
    rows = sorted({*np.flatnonzero(cols["kind"] == p.REJECTED).tolist(), *outcome.internal})
    if rows:
        letters = [_dead_letter(outcome, i) for i in rows]
        keys = [r.dead_letter_key(letter.source) for letter in letters]
        values = [r.encode_dead_letter(letter) for letter in letters]
        yield Records(DEAD_LETTERS, Ragged.of(keys), Ragged.of(values))


def _dead_letter(outcome: ExecutionOutcome, i: int) -> r.DeadLetter:
    txns = outcome.txns
    raw: bytes | None = txns.texts["raw"][i] or None
    code, error = errors.INTERNAL, None
    fault = outcome.internal.get(i)
    if fault is not None:
        raw, error = raw if fault.shown else None, fault.error
    if txns.cols["kind"][i] == p.REJECTED:
        code = p.REJECT_CODES[txns.cols["code"][i]]
        raw, error = opened(raw or b"")
    return r.dead_letter(
        raw,
        seq=int(txns.cols["seq"][i]),
        ts_ms=int(txns.cols["ts"][i]),
        code=code,
        id=txns.texts["id"][i].decode() or None,
        source=r.Source(int(txns.cols["part"][i]), int(txns.cols["off"][i])),
        error=error,
    )


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
        parts: list[tuple[Ints, Ints]] = []
        none = np.empty(0, np.int64)
        if len(write_cuts) == 1 and len(verdict_cuts) == 1 and _size(own, told) < bytes_max:
            parts = [(write_cuts[0], verdict_cuts[0])]
        else:
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
    opaque = slots["tag"] == p.OPAQUE
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
    results = format_results(_result_rows(outcome, rows)) if len(rows) else Ragged.empty()
    table = Columns({"seq": txns.cols["seq"][rows]}, {"result": results})
    return table, txns.cols["home"][rows].astype(np.int64)

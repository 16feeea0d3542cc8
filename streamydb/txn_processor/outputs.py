"""From an outcome to records: results, changes and dead letters, and the feedback to the shards."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import errors
from streamydb.columns import Ragged, Table, starts_of
from streamydb.hashing import hash_ragged
from streamydb.limits import DEAD_LETTER_PAYLOAD_BYTES_MAX, FEEDBACK_BLOCK_BYTES_MAX
from streamydb.txn_processor import program as p
from streamydb.txn_processor.execution import NOT_A_DUPLICATE, PLAN_DUPLICATE, Outcome
from streamydb.txn_processor.format import format_changes, format_results, json_strings
from streamydb.txn_processor.result import as_duplicate

__all__ = [
    "CHANGES",
    "DEAD_LETTERS",
    "FEEDBACK",
    "RESULTS",
    "Records",
    "feedback_chunks",
    "records_of",
]

RESULTS: Final = 0
CHANGES: Final = 1
FEEDBACK: Final = 2
DEAD_LETTERS: Final = 3

Ints = npt.NDArray[np.int64]


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


def records_of(outcome: Outcome, database: str, spreads: int) -> Iterator[Records]:
    """All records of an outcome except feedback; the changes of one key keep one ``spread``."""
    if not len(outcome.txns):
        return
    columns = _Positions(outcome.txns)
    yield from _results(outcome, columns, spreads)
    yield from _changes(outcome, columns, database, spreads)
    yield from _dead_letters(outcome)


@dataclass(slots=True, init=False)
class _Positions:
    """The columns of the transactions that records show, as the kernels take them."""

    seqs: Ints
    ts: Ints
    parts: Ints
    offs: Ints
    json_ids: Ragged

    def __init__(self, txns: Table) -> None:
        """Take them from the table of transactions."""
        cols = txns.cols
        self.seqs, self.ts = cols["seq"], cols["ts"]
        self.parts, self.offs = cols["part"].astype(np.int64), cols["off"]
        self.json_ids = json_strings(txns.texts["id"])


def _results(outcome: Outcome, c: _Positions, spreads: int) -> Iterator[Records]:
    n = len(outcome.txns)
    special = _ragged_at(outcome.special, n)
    read_counts = np.bincount(outcome.reads["txn"], minlength=n)
    json_keys = json_strings(outcome.slot_keys)
    values = format_results(
        c.json_ids, c.seqs, c.ts, c.parts, c.offs, special, outcome.reads, read_counts, json_keys,
        outcome.pool,
    )
    copies = np.flatnonzero(outcome.txns.cols["duplicate"] == PLAN_DUPLICATE)
    if len(copies):
        values = _with_copies(outcome.txns, copies, values)
    outcome.results = values
    ids = outcome.txns.texts["id"]
    if spreads == 1:
        yield Records(RESULTS, ids, values)
        return
    for spread, rows in enumerate(np.array_split(np.arange(n), spreads)):
        if len(rows):
            yield Records(RESULTS, ids.take(rows), values.take(rows), spread)


def _ragged_at(texts: dict[int, bytes], n: int) -> Ragged:
    """N texts, empty but for those given by position."""
    order = sorted(texts)
    lengths = np.zeros(n, np.int64)
    lengths[order] = [len(texts[i]) for i in order]
    data = np.frombuffer(bytearray().join(texts[i] for i in order), np.uint8)
    return Ragged(data, starts_of(lengths))


def _with_copies(txns: Table, copies: Ints, values: Ragged) -> Ragged:
    """The results with those of duplicates within the plan filled in from their originals."""
    every = values.tolist()
    rows = np.searchsorted(txns.cols["seq"], txns.cols["original"][copies])
    for i, original in zip(copies.tolist(), rows.tolist(), strict=True):
        every[i] = as_duplicate(txns, i, every[original])
    return Ragged.of(every)


def _changes(
    outcome: Outcome, c: _Positions, database: str, spreads: int
) -> Iterator[Records]:
    writes = outcome.writes
    if not len(writes):
        return
    lanes: list[Ints | None] = [None]
    if spreads > 1:
        lane = (hash_ragged(outcome.slot_keys) >> np.uint64(32)) % np.uint64(spreads)
        lanes = [np.flatnonzero(lane[writes["slot"]] == q) for q in range(spreads)]
    for spread, chosen in enumerate(lanes):
        if chosen is not None and not len(chosen):
            continue
        values, slots = format_changes(
            database, chosen, writes, c.json_ids, c.seqs, c.ts, c.parts, c.offs, outcome.pool
        )
        yield Records(CHANGES, outcome.slot_keys.take(slots), values, spread)


def _dead_letters(outcome: Outcome) -> Iterator[Records]:
    cols = outcome.txns.cols
    rows = sorted({*np.flatnonzero(cols["kind"] == p.REJECTED).tolist(), *outcome.internal})
    if rows:
        letters = [_dead_letter(outcome, i) for i in rows]
        keys = [b"%d/%d" % (cols["part"][i], cols["off"][i]) for i in rows]
        yield Records(DEAD_LETTERS, Ragged.of(keys), Ragged.of(letters))


def _dead_letter(outcome: Outcome, i: int) -> bytes:
    txns = outcome.txns
    raw: bytes | None = txns.texts["raw"][i]
    code = errors.INTERNAL
    if txns.cols["kind"][i] == p.REJECTED:
        code = p.REJECT_CODES[txns.cols["code"][i]]
        raw = (raw or b"")[1:] if raw and raw[0] else None
    shown = None if raw is None else raw[:DEAD_LETTER_PAYLOAD_BYTES_MAX]
    return msgspec.json.encode(
        {
            "seq": int(txns.cols["seq"][i]),
            "ts_ms": int(txns.cols["ts"][i]),
            "code": code,
            "id": txns.texts["id"][i].decode() or None,
            "source": {"partition": int(txns.cols["part"][i]), "offset": int(txns.cols["off"][i])},
            "payload": None if shown is None else base64.b64encode(shown).decode(),
            "truncated": raw is not None and len(raw) > DEAD_LETTER_PAYLOAD_BYTES_MAX,
            "error": outcome.internal.get(i),
        }
    )


def feedback_chunks(outcome: Outcome, shards: int) -> Iterator[tuple[int, int, int, Table, Table]]:
    """What every shard must learn: (shard, chunk, chunks, writes, verdicts), each below the block
    limit.

    Call after :func:`records_of` has been consumed: verdicts are the results that were formatted.
    """
    writes, owners = _final_writes(outcome)
    verdicts, homes = _verdicts(outcome)
    for shard in range(shards):
        own = writes.take(np.flatnonzero(owners == shard))
        told = verdicts.take(np.flatnonzero(homes == shard))
        write_cuts = _cuts(own.texts["key"].lengths() + own.texts["text"].lengths() + 24)
        verdict_cuts = _cuts(told.texts["result"].lengths() + 16)
        parts: list[tuple[Ints, Ints]] = []
        none = np.empty(0, np.int64)
        if len(write_cuts) == 1 and len(verdict_cuts) == 1 and _fits(own, told):
            parts = [(write_cuts[0], verdict_cuts[0])]
        else:
            parts = [(rows, none) for rows in write_cuts] + [(none, rows) for rows in verdict_cuts]
        for chunk, (left, right) in enumerate(parts):
            yield shard, chunk, len(parts), own.take(left), told.take(right)


def _fits(writes: Table, verdicts: Table) -> bool:
    texts = (*writes.texts.values(), *verdicts.texts.values())
    fixed = 40 * len(writes) + 16 * len(verdicts)
    return sum(len(text.data) for text in texts) + fixed < FEEDBACK_BLOCK_BYTES_MAX


def _cuts(sizes: Ints) -> list[Ints]:
    """Row numbers in runs whose sizes sum up to less than a block; at least one run."""
    ends = np.cumsum(sizes)
    rows = np.arange(len(sizes))
    runs, start = [], 0
    while start < len(sizes):
        base = ends[start] - sizes[start]
        end = int(np.searchsorted(ends, base + FEEDBACK_BLOCK_BYTES_MAX, "right"))
        end = max(end, start + 1)
        runs.append(rows[start:end])
        start = end
    return runs or [rows]


def _final_writes(outcome: Outcome) -> tuple[Table, Ints]:
    """The last value of every slot that was written, and the shard that owns it."""
    dirty = np.flatnonzero(outcome.slots["dirty"])
    slots = outcome.slots[dirty]
    opaque = slots["tag"] == p.OPAQUE
    lengths = np.zeros(len(dirty), np.int64)
    texts = outcome.pool.take(slots["ref"][opaque])
    lengths[opaque] = texts.lengths()
    table = Table(
        {name: np.ascontiguousarray(slots[name]) for name in ("tag", "number", "version")},
        {"key": outcome.slot_keys.take(dirty), "text": Ragged(texts.data, starts_of(lengths))},
    )
    return table, outcome.slot_home[dirty]


def _verdicts(outcome: Outcome) -> tuple[Table, Ints]:
    """The results that a home shard cannot make up: of executed transactions that aborted or read.
    """
    txns = outcome.txns
    special = np.zeros(len(txns), np.bool_)
    special[list(outcome.special)] = True
    special[outcome.reads["txn"]] = True
    executed = (txns.cols["kind"] != p.REJECTED) & (txns.cols["duplicate"] == NOT_A_DUPLICATE)
    rows = np.flatnonzero(special & executed)
    table = Table({"seq": txns.cols["seq"][rows]}, {"result": outcome.results.take(rows)})
    return table, txns.cols["home"][rows].astype(np.int64)

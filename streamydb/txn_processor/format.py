"""Results and changes: first their contents, as rows, then the bytes on the wire, as JSON.

The executing task makes the rows. They hold everything that is needed, so another task can format
them: a giant conflict group executes in one task. Kernels format them column-wise, in a few hundred
ns a record. They write the same bytes that `streamydb.records` would encode; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames import characters as c
from streamydb.frames import program as p
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.json_writer import JsonValues, json_strings, put_number, put_text, put_value
from streamydb.frames.table import Array, Bytes, ChildRows, Ragged, Texts, expand, starts_of
from streamydb.frames.value_rows import ChangeRows, ReadValues, ResultRows
from streamydb.txn_processor.outcome import ExecutionOutcome

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]

_NO_REFS: Final = np.empty(0, np.int64)
_NO_READS: Final = ReadValues(np.empty(0, np.uint8), _NO_REFS, Ragged.empty(), Ragged.empty())
_NONE: Final[Mapping[int, bytes]] = MappingProxyType({})

# What a record has at most beside its texts: its numbers and marks; and what a number takes.
_RESULT_NUMBERS_BYTES: Final = 80
_CHANGE_NUMBERS_BYTES: Final = 185
_VALUE_BYTES: Final = 24


def result_rows(
    outcome: ExecutionOutcome, rows: Ints, repeated: Mapping[int, bytes] = _NONE
) -> ResultRows:
    """Return the contents of the results of the transactions at ``rows``.

    ``repeated``: finished results beside those of the outcome, by position.
    """
    txns, reads = outcome.txns, outcome.reads
    if not len(reads):
        counts, values = np.zeros(len(rows), np.int64), _NO_READS
    else:
        counts, values = _reads_of(outcome, rows)
    return ResultRows(
        txns.seq[rows],
        txns.ts_ms[rows],
        txns.partition[rows],
        txns.offset[rows],
        txns.id.take(rows),
        _at({**outcome.special, **repeated}, rows),
        ChildRows(counts, values),
    )


def _reads_of(outcome: ExecutionOutcome, rows: Ints) -> tuple[Ints, ReadValues]:
    """Return how many values each of some transactions has read, and these."""
    txns, reads = outcome.txns, outcome.reads
    counts = np.bincount(reads["txn"], minlength=len(txns))
    seen = reads[expand(starts_of(counts)[rows], counts[rows])]
    return counts[rows], ReadValues(
        np.ascontiguousarray(seen["tag"]),
        np.ascontiguousarray(seen["number"]),
        outcome.slot_keys.take(seen["slot"]),
        _opaque(outcome.pool, seen["tag"], seen["ref"]),
    )


def _at(texts: dict[int, bytes], rows: Ints) -> Ragged:
    """The texts of the positions ``rows``, empty where there is none."""
    if not texts:
        return Ragged.empty(len(rows))
    known = np.fromiter(texts, np.int64, len(texts))
    chosen = np.flatnonzero(np.isin(rows, known))
    known_texts = Ragged.of([texts[i] for i in rows[chosen].tolist()])
    lengths = np.zeros(len(rows), np.int64)
    lengths[chosen] = known_texts.lengths()
    return Ragged(known_texts.data, starts_of(lengths))


def _opaque(pool: Ragged, tags: Array, refs: Array) -> Ragged:
    """The texts of the values that are no integers, empty for the others."""
    chosen = tags >= p.OPAQUE
    if not chosen.any():
        return Ragged.empty(len(tags))
    texts = pool.take(refs[chosen])
    lengths = np.zeros(len(tags), np.int64)
    lengths[chosen] = texts.lengths()
    return Ragged(texts.data, starts_of(lengths))


@kernel
def _columns_of(writes: npt.NDArray[Any], rows: Ints) -> tuple[Parts, Parts, Any, Any]:
    """Transactions and slots of the writes at ``rows``; tags and numbers before and after each."""
    n = len(rows)
    txn, slot = np.empty(n, np.int32), np.empty(n, np.int32)
    tags, numbers = np.empty((2, n), np.uint8), np.empty((2, n), np.int64)
    for i in range(n):
        write = writes[rows[i]]
        txn[i], slot[i] = write.txn, write.slot
        tags[0, i], tags[1, i] = write.before_tag, write.after_tag
        numbers[0, i], numbers[1, i] = write.before_number, write.after_number
    return txn, slot, tags, numbers


def change_rows(outcome: ExecutionOutcome, rows: Ints, index: Parts | Ints) -> ChangeRows:
    """Return the contents of the change records of the writes at ``rows``.

    ``index``: the number of each write of the outcome at its place.
    """
    places, writes = outcome.places.table, outcome.writes
    txn, slot, tags, numbers = _columns_of(writes, rows)

    def texts(at: int, name: str) -> Ragged:
        refs = writes[name][rows] if tags[at].max(initial=0) >= p.OPAQUE else _NO_REFS
        return _opaque(outcome.pool, tags[at], refs)

    return ChangeRows(
        places.seq[txn],
        places.ts_ms[txn],
        places.partition[txn],
        places.offset[txn],
        index[rows],
        tags[0],
        numbers[0],
        tags[1],
        numbers[1],
        places.id.take(txn),
        outcome.slot_keys.take(slot),
        texts(0, "before_ref"),
        texts(1, "after_ref"),
    )


class _Places(NamedTuple):
    """The places of transactions: seq, ts (ms), partition and offset in the log."""

    seq: Ints
    ts: Ints
    part: Parts
    off: Ints


@kernel
def _results(
    ids: Texts,
    places: _Places,
    special: Texts,
    starts: Ints,
    keys: Texts,
    values: JsonValues,
    pieces: Texts,
) -> tuple[Bytes, Ints]:
    """The records; ``pieces``: what stands between their parts, see `_RESULT`."""
    n, reads = len(places.seq), len(values.tag)
    size = special.offsets[n] + ids.offsets[n] - ids.offsets[0]
    size += n * (len(pieces.data) + _RESULT_NUMBERS_BYTES)
    size += keys.offsets[reads] + values.offsets[reads] + _VALUE_BYTES * reads
    out = np.empty(size, np.uint8)
    bounds = np.zeros(n + 1, np.int64)
    at = 0
    for i in range(n):
        if special.offsets[i + 1] > special.offsets[i]:
            at = put_text(out, at, special, i)
            bounds[i + 1] = at
            continue
        at = put_text(out, at, pieces, 0)
        at = put_text(out, at, ids, i)
        at = put_text(out, at, pieces, 1)
        at = put_number(out, at, places.seq[i])
        at = put_text(out, at, pieces, 2)
        at = put_number(out, at, places.ts[i])
        at = put_text(out, at, pieces, 3)
        for k in range(starts[i], starts[i + 1]):
            if k > starts[i]:
                out[at] = c.COMMA
                at += 1
            at = put_text(out, at, keys, k)
            out[at] = c.COLON
            at = put_value(out, at + 1, values, k)
        at = put_text(out, at, pieces, 4)
        at = put_number(out, at, places.part[i])
        at = put_text(out, at, pieces, 5)
        at = put_number(out, at, places.off[i])
        at = put_text(out, at, pieces, 6)
        bounds[i + 1] = at
    return out[:at].copy(), bounds


_RESULT = Ragged.of(
    [
        b'{"id":',
        b',"seq":',
        b',"ts_ms":',
        b',"status":"committed","reads":{',
        b'},"failed":[],"code":null,"source":{"partition":',
        b',"offset":',
        b"}}",
    ]
)


def format_results(rows: ResultRows) -> Ragged:
    """Return the result records of n transactions."""
    counts, reads = rows.reads
    ids, keys = json_strings(rows.id), json_strings(reads.key)
    values = JsonValues(reads.tag, reads.number, reads.text.data, reads.text.offsets)
    data, bounds = _results(
        ids.texts(),
        _places(rows),
        rows.special.texts(),
        starts_of(counts),
        keys.texts(),
        values,
        _RESULT.texts(),
    )
    return Ragged(data, bounds)


def _places(rows: ResultRows | ChangeRows) -> _Places:
    return _Places(rows.seq, rows.ts_ms, rows.partition, rows.offset)


@leaf
def _operation(before: int, after: int) -> int:
    """The letter of a change: created, updated or deleted."""
    if before == p.ABSENT:
        return c.LOWER_C
    return c.LOWER_D if after == p.ABSENT else c.LOWER_U


@kernel
def _changes(
    ids: Texts,
    places: _Places,
    index: Parts | Ints,
    before: JsonValues,
    after: JsonValues,
    pieces: Texts,
) -> tuple[Bytes, Ints, Ints]:
    """The records, and the row of each; ``pieces``: see `_change_pieces`."""
    n = len(places.seq)
    rows = n
    for i in range(n):
        rows += after.tag[i] == p.ABSENT
    size = n * (len(pieces.data) + _CHANGE_NUMBERS_BYTES) + ids.offsets[n] - ids.offsets[0]
    size += before.offsets[n] - before.offsets[0] + after.offsets[n] - after.offsets[0]
    out = np.empty(size, np.uint8)
    bounds = np.zeros(rows + 1, np.int64)
    source = np.empty(rows, np.int64)
    at, row = 0, 0
    for i in range(n):
        at = put_text(out, at, pieces, 0)
        out[at] = _operation(before.tag[i], after.tag[i])
        at = put_text(out, at + 1, pieces, 1)
        at = put_value(out, at, before, i)
        at = put_text(out, at, pieces, 2)
        at = put_value(out, at, after, i)
        at = put_text(out, at, pieces, 3)
        at = put_number(out, at, places.ts[i])
        at = put_text(out, at, pieces, 4)
        at = put_number(out, at, places.part[i])
        at = put_text(out, at, pieces, 5)
        at = put_number(out, at, places.off[i])
        at = put_text(out, at, pieces, 6)
        at = put_number(out, at, places.seq[i])
        at = put_text(out, at, pieces, 7)
        at = put_text(out, at, ids, i)
        at = put_text(out, at, pieces, 8)
        at = put_number(out, at, index[i])
        at = put_text(out, at, pieces, 9)
        at = put_number(out, at, index[i])
        at = put_text(out, at, pieces, 10)
        if after.tag[i] == p.EXPIRING:
            at = put_text(out, at - 1, pieces, 11)
            at = put_number(out, at, after.number[i])
            out[at] = c.CLOSE_BRACE
            at += 1
        source[row] = i
        row += 1
        bounds[row] = at
        if after.tag[i] == p.ABSENT:
            source[row] = i
            row += 1
            bounds[row] = at
    return out[:at].copy(), bounds, source


def format_changes(database: str, rows: ChangeRows) -> tuple[Ragged, Ragged]:
    """Keys and values of the change records of n writes, a tombstone after each delete.

    ``database``: its name.

    Returns:
        As many keys as values; a value is empty for a tombstone.
    """
    pieces, ids = _change_pieces(database), json_strings(rows.id)
    before, after = rows.before, rows.after
    met = JsonValues(rows.before_tag, rows.before_number, before.data, before.offsets)
    left = JsonValues(rows.after_tag, rows.after_number, after.data, after.offsets)
    data, bounds, source = _changes(
        ids.texts(), _places(rows), rows.index, met, left, pieces.texts()
    )
    keys = rows.key if len(source) == len(rows) else rows.key.take(source)
    return keys, Ragged(data, bounds)


@cache
def _change_pieces(database: str) -> Ragged:
    name = database.encode()
    return Ragged.of(
        [
            b'{"op":"',
            b'","before":',
            b',"after":',
            b',"ts_ms":',
            b',"source":{"connector":"streamydb","db":"' + name + b'","partition":',
            b',"offset":',
            b',"seq":',
            b'},"transaction":{"id":',
            b',"total_order":',
            b',"data_collection_order":',
            b"}}",
            b',"expires_ms":',
        ]
    )

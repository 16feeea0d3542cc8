"""Format results and changes as JSON, column-wise: the bytes on the wire, a few hundred ns a
record.

The kernels write the same bytes that `streamydb.records` would encode; a test compares them. Rows
are tables that hold everything that is needed, so another task than the executing one can format
them: a giant conflict group executes in one task.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames import characters as c
from streamydb.frames import program as p
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.json_writer import JsonValues, json_strings, put_number, put_text, put_value
from streamydb.frames.table import Bytes, Ragged, Texts, starts_of
from streamydb.frames.value_rows import ChangeRows, ResultRows

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]

# What a record has at most beside its texts: its numbers and marks; and what a number takes.
_RESULT_NUMBERS_BYTES: Final = 80
_CHANGE_NUMBERS_BYTES: Final = 185
_VALUE_BYTES: Final = 24


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

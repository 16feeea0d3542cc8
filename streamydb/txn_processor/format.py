"""Format results and changes as JSON, column-wise: the bytes on the wire, a few hundred ns a
record.

The kernels write the same bytes that `streamydb.records` would encode; a test holds them against
each other. Rows come as tables that say everything about themselves, so that they can be formatted
in another task than the one that executed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.columns import characters as c
from streamydb.columns import program as p
from streamydb.columns.jit import copy_bytes, kernel
from streamydb.columns.table import Array, Bytes, Columns, Ragged, Texts, starts_of

__all__ = ["format_changes", "format_results", "json_strings"]

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]

# What a record has at most beside its texts: its numbers and marks; and what a number takes.
_RESULT_NUMBERS_BYTES: Final = 80
_CHANGE_NUMBERS_BYTES: Final = 165
_VALUE_BYTES: Final = 24
_ESCAPED_BYTES: Final = 6


class Places(NamedTuple):
    """Where transactions stand: seq, ts (ms), partition and offset in the log."""

    seq: Ints
    ts: Ints
    part: Parts
    off: Ints


class Values(NamedTuple):
    """Tagged values: an integer is in ``number``, any other in the texts, canonical."""

    tag: Bytes
    number: Ints
    data: Bytes
    offsets: Ints


@kernel
def _text(out: Bytes, at: int, texts: Texts, i: int) -> int:
    """Write text ``i``; like all of these, return the position behind it."""
    start, end = texts.offsets[i], texts.offsets[i + 1]
    copy_bytes(out, at, texts.data, start, end - start)
    return at + end - start  # type: ignore[no-any-return]


@kernel
def _number(out: Bytes, at: int, value: int) -> int:
    if value < 0:
        out[at] = c.MINUS
        at += 1
        rest = np.uint64(-(value + 1)) + np.uint64(1)
    else:
        rest = np.uint64(value)
    digits = 1
    probe = rest
    while probe >= np.uint64(10):
        probe //= np.uint64(10)
        digits += 1
    for j in range(digits):
        out[at + digits - 1 - j] = np.uint8(c.ZERO) + np.uint8(rest % np.uint64(10))
        rest //= np.uint64(10)
    return at + digits


@kernel
def _hexadecimal(digit: int) -> int:
    return c.ZERO + digit if digit < 10 else c.LOWER_A + digit - 10


@kernel
def _short_escape(byte: int) -> int:
    """The character behind the backslash of a short escape, 0 when there is none."""
    if byte == c.QUOTE or byte == c.BACKSLASH:
        return byte
    if byte == c.BACKSPACE:
        return c.LOWER_B
    if byte == c.TAB:
        return c.LOWER_T
    if byte == c.LINE_FEED:
        return c.LOWER_N
    if byte == c.FORM_FEED:
        return c.LOWER_F
    if byte == c.RETURN:
        return c.LOWER_R
    return 0


@kernel
def _escaped(out: Bytes, at: int, texts: Texts, i: int) -> int:
    """Write text ``i`` as a JSON string with its quotes."""
    out[at] = c.QUOTE
    at += 1
    for j in range(texts.offsets[i], texts.offsets[i + 1]):
        byte = texts.data[j]
        if byte >= c.SPACE and byte != c.QUOTE and byte != c.BACKSLASH:
            out[at] = byte
            at += 1
            continue
        out[at] = c.BACKSLASH
        at += 1
        short = _short_escape(byte)
        if short != 0:
            out[at] = short
            at += 1
            continue
        out[at], out[at + 1], out[at + 2] = c.LOWER_U, c.ZERO, c.ZERO
        out[at + 3], out[at + 4] = _hexadecimal(byte >> 4), _hexadecimal(byte & 15)
        at += 5
    out[at] = c.QUOTE
    return at + 1


@kernel
def _strings(texts: Texts) -> tuple[Bytes, Ints]:
    n = len(texts.offsets) - 1
    size = _ESCAPED_BYTES * (texts.offsets[n] - texts.offsets[0]) + 2 * n
    out = np.empty(size, np.uint8)
    bounds = np.zeros(n + 1, np.int64)
    at = 0
    for i in range(n):
        at = _escaped(out, at, texts, i)
        bounds[i + 1] = at
    return out[:at].copy(), bounds


def json_strings(texts: Ragged) -> Ragged:
    """Each UTF-8 text as a JSON string with quotes and escapes."""
    return Ragged(*_strings(texts.texts()))


@kernel
def _value(out: Bytes, at: int, values: Values, i: int) -> int:
    """Write value ``i``."""
    if values.tag[i] == p.INT:
        return _number(out, at, values.number[i])
    if values.tag[i] == p.OPAQUE:
        start, end = values.offsets[i], values.offsets[i + 1]
        copy_bytes(out, at, values.data, start, end - start)
        return at + end - start  # type: ignore[no-any-return]
    out[at], out[at + 1], out[at + 2], out[at + 3] = c.LOWER_N, c.LOWER_U, c.LOWER_L, c.LOWER_L
    return at + 4


@kernel
def _results(
    ids: Texts, places: Places, special: Texts, starts: Ints, keys: Texts, values: Values,
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
            at = _text(out, at, special, i)
            bounds[i + 1] = at
            continue
        at = _text(out, at, pieces, 0)
        at = _text(out, at, ids, i)
        at = _text(out, at, pieces, 1)
        at = _number(out, at, places.seq[i])
        at = _text(out, at, pieces, 2)
        at = _number(out, at, places.ts[i])
        at = _text(out, at, pieces, 3)
        for k in range(starts[i], starts[i + 1]):
            if k > starts[i]:
                out[at] = c.COMMA
                at += 1
            at = _text(out, at, keys, k)
            out[at] = c.COLON
            at = _value(out, at + 1, values, k)
        at = _text(out, at, pieces, 4)
        at = _number(out, at, places.part[i])
        at = _text(out, at, pieces, 5)
        at = _number(out, at, places.off[i])
        at = _text(out, at, pieces, 6)
        bounds[i + 1] = at
    return out[:at].copy(), bounds


_RESULT = Ragged.of(
    [
        b'{"id":', b',"seq":', b',"ts_ms":', b',"status":"committed","reads":{',
        b'},"failed":[],"code":null,"source":{"partition":', b',"offset":', b"}}",
    ]
)


def format_results(rows: Columns) -> Ragged:
    """Result records of n transactions.

    Args:
        rows: columns seq, ts (ms), part, off; texts id, and ``special``, the finished record where
            it is not that of a plain commit, else empty; children ``reads``: columns tag, number,
            texts key, text.

    """
    cols = rows.cols
    counts, reads = rows.children["reads"]
    ids, keys = json_strings(rows.texts["id"]), json_strings(reads.texts["key"])
    special, texts = rows.texts["special"], reads.texts["text"]
    values = Values(reads.cols["tag"], reads.cols["number"], texts.data, texts.offsets)
    data, bounds = _results(
        ids.texts(), _places(cols), special.texts(), starts_of(counts), keys.texts(), values,
        _RESULT.texts(),
    )
    return Ragged(data, bounds)


def _places(cols: dict[str, Array]) -> Places:
    return Places(cols["seq"], cols["ts"], cols["part"], cols["off"])


@kernel
def _operation(before: int, after: int) -> int:
    """The letter of a change: created, updated or deleted."""
    if before == p.ABSENT:
        return c.LOWER_C
    return c.LOWER_D if after == p.ABSENT else c.LOWER_U


@kernel
def _changes(
    ids: Texts, places: Places, index: Parts, before: Values, after: Values, pieces: Texts
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
        at = _text(out, at, pieces, 0)
        out[at] = _operation(before.tag[i], after.tag[i])
        at = _text(out, at + 1, pieces, 1)
        at = _value(out, at, before, i)
        at = _text(out, at, pieces, 2)
        at = _value(out, at, after, i)
        at = _text(out, at, pieces, 3)
        at = _number(out, at, places.ts[i])
        at = _text(out, at, pieces, 4)
        at = _number(out, at, places.part[i])
        at = _text(out, at, pieces, 5)
        at = _number(out, at, places.off[i])
        at = _text(out, at, pieces, 6)
        at = _number(out, at, places.seq[i])
        at = _text(out, at, pieces, 7)
        at = _text(out, at, ids, i)
        at = _text(out, at, pieces, 8)
        at = _number(out, at, index[i])
        at = _text(out, at, pieces, 9)
        at = _number(out, at, index[i])
        at = _text(out, at, pieces, 10)
        source[row] = i
        row += 1
        bounds[row] = at
        if after.tag[i] == p.ABSENT:
            source[row] = i
            row += 1
            bounds[row] = at
    return out[:at].copy(), bounds, source


def format_changes(database: str, rows: Columns) -> tuple[Ragged, Ragged]:
    """Keys and values of the change records of n writes, a tombstone after each delete.

    Args:
        database: its name.
        rows: columns seq, ts (ms), part, off, index (the write's number in its transaction, from
            1), before_tag, before_number, after_tag, after_number; texts id, key, before, after
            (of values that are not integers, else empty).

    Returns:
        As many keys as values; a value is empty for a tombstone.

    """
    pieces, cols, texts = _change_pieces(database), rows.cols, rows.texts
    ids, before, after = json_strings(texts["id"]), texts["before"], texts["after"]
    met = Values(cols["before_tag"], cols["before_number"], before.data, before.offsets)
    left = Values(cols["after_tag"], cols["after_number"], after.data, after.offsets)
    data, bounds, source = _changes(
        ids.texts(), _places(cols), cols["index"], met, left, pieces.texts()
    )
    keys = texts["key"] if len(source) == len(rows) else texts["key"].take(source)
    return keys, Ragged(data, bounds)


def _change_pieces(database: str) -> Ragged:
    name = database.encode()
    return Ragged.of(
        [
            b'{"op":"', b'","before":', b',"after":', b',"ts_ms":',
            b',"source":{"connector":"streamydb","db":"' + name + b'","partition":', b',"offset":',
            b',"seq":', b'},"transaction":{"id":', b',"total_order":',
            b',"data_collection_order":', b"}}",
        ]
    )

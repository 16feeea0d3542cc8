"""Format results and changes as JSON, column-wise: the bytes on the wire, a few hundred ns a
record.

The kernels write the same bytes that `streamydb.records` would encode; a test compares them. Rows
are tables that hold everything that is needed, so another task than the executing one can format
them: a giant conflict group executes in one task.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamydb.columns.jit import copy_bytes, kernel
from streamydb.columns.table import Bytes, Columns, Ragged, starts_of

__all__ = ["format_changes", "format_results", "json_strings"]

Ints = npt.NDArray[np.int64]
Parts = npt.NDArray[np.int32]

_HEX = np.frombuffer(bytearray(b"0123456789abcdef"), np.uint8)


@kernel
def _text(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    copy_bytes(out, at, data, start, end - start)
    return at + end - start


@kernel
def _number(out: Bytes, at: int, value: int) -> int:
    if value < 0:
        out[at] = 45
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
        out[at + digits - 1 - j] = np.uint8(48) + np.uint8(rest % np.uint64(10))
        rest //= np.uint64(10)
    return at + digits


@kernel
def _escaped(out: Bytes, at: int, data: Bytes, start: int, end: int, hexadecimal: Bytes) -> int:
    """Write a JSON string with its quotes."""
    out[at] = 34
    at += 1
    for j in range(start, end):
        c = data[j]
        if c >= 32 and c != 34 and c != 92:
            out[at] = c
            at += 1
            continue
        out[at] = 92
        at += 1
        short = 0
        if c == 34 or c == 92:
            short = c
        elif c == 8:
            short = 98
        elif c == 9:
            short = 116
        elif c == 10:
            short = 110
        elif c == 12:
            short = 102
        elif c == 13:
            short = 114
        if short != 0:
            out[at] = short
            at += 1
            continue
        out[at], out[at + 1], out[at + 2] = 117, 48, 48
        out[at + 3], out[at + 4] = hexadecimal[c >> 4], hexadecimal[c & 15]
        at += 5
    out[at] = 34
    return at + 1


@kernel
def _strings(data: Bytes, offsets: Ints, hexadecimal: Bytes) -> tuple[Bytes, Ints]:
    n = len(offsets) - 1
    out = np.empty(6 * (offsets[n] - offsets[0]) + 2 * n, np.uint8)
    bounds = np.zeros(n + 1, np.int64)
    at = 0
    for i in range(n):
        at = _escaped(out, at, data, offsets[i], offsets[i + 1], hexadecimal)
        bounds[i + 1] = at
    return out[:at].copy(), bounds


def json_strings(texts: Ragged) -> Ragged:
    """Each UTF-8 text as a JSON string with quotes and escapes."""
    return Ragged(*_strings(texts.data, texts.offsets, _HEX))


@kernel
def _value(out: Bytes, at: int, tag: int, number: int, data: Bytes, start: int, end: int) -> int:
    if tag == 1:
        return _number(out, at, number)
    if tag == 2:
        return _text(out, at, data, start, end)
    out[at], out[at + 1], out[at + 2], out[at + 3] = 110, 117, 108, 108
    return at + 4


@kernel
def _results(
    ids: Bytes, id_offsets: Ints, seqs: Ints, ts: Ints, parts: Parts, offs: Ints,
    special: Bytes, special_offsets: Ints, starts: Ints, keys: Bytes, key_offsets: Ints,
    tags: Bytes, numbers: Ints, texts: Bytes, text_offsets: Ints, pieces: Bytes, cuts: Ints,
) -> tuple[Bytes, Ints]:
    n = len(seqs)
    size = special_offsets[n] + (id_offsets[n] - id_offsets[0]) + n * (len(pieces) + 80)
    size += key_offsets[len(tags)] + text_offsets[len(tags)] + 24 * len(tags)
    out = np.empty(size, np.uint8)
    bounds = np.zeros(n + 1, np.int64)
    at = 0
    for i in range(n):
        if special_offsets[i + 1] > special_offsets[i]:
            at = _text(out, at, special, special_offsets[i], special_offsets[i + 1])
            bounds[i + 1] = at
            continue
        at = _text(out, at, pieces, cuts[0], cuts[1])
        at = _text(out, at, ids, id_offsets[i], id_offsets[i + 1])
        at = _text(out, at, pieces, cuts[1], cuts[2])
        at = _number(out, at, seqs[i])
        at = _text(out, at, pieces, cuts[2], cuts[3])
        at = _number(out, at, ts[i])
        at = _text(out, at, pieces, cuts[3], cuts[4])
        for k in range(starts[i], starts[i + 1]):
            if k > starts[i]:
                out[at] = 44
                at += 1
            at = _text(out, at, keys, key_offsets[k], key_offsets[k + 1])
            out[at] = 58
            at = _value(
                out, at + 1, tags[k], numbers[k], texts, text_offsets[k], text_offsets[k + 1]
            )
        at = _text(out, at, pieces, cuts[4], cuts[5])
        at = _number(out, at, parts[i])
        at = _text(out, at, pieces, cuts[5], cuts[6])
        at = _number(out, at, offs[i])
        at = _text(out, at, pieces, cuts[6], cuts[7])
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
    data, bounds = _results(
        ids.data, ids.offsets, cols["seq"], cols["ts"], cols["part"], cols["off"], special.data,
        special.offsets, starts_of(counts), keys.data, keys.offsets, reads.cols["tag"],
        reads.cols["number"], texts.data, texts.offsets, _RESULT.data, _RESULT.offsets,
    )
    return Ragged(data, bounds)


@kernel
def _changes(
    ids: Bytes, id_offsets: Ints, seqs: Ints, ts: Ints, parts: Parts, offs: Ints, index: Parts,
    before_tags: Bytes, before_numbers: Ints, before: Bytes, before_offsets: Ints,
    after_tags: Bytes, after_numbers: Ints, after: Bytes, after_offsets: Ints,
    pieces: Bytes, cuts: Ints,
) -> tuple[Bytes, Ints, Ints]:
    n = len(seqs)
    rows = n
    for i in range(n):
        rows += after_tags[i] == 0
    size = n * (len(pieces) + 165) + id_offsets[n] - id_offsets[0]
    size += before_offsets[n] - before_offsets[0] + after_offsets[n] - after_offsets[0]
    out = np.empty(size, np.uint8)
    bounds = np.zeros(rows + 1, np.int64)
    source = np.empty(rows, np.int64)
    at, row = 0, 0
    for i in range(n):
        deleted = after_tags[i] == 0
        at = _text(out, at, pieces, cuts[0], cuts[1])
        out[at] = 99 if before_tags[i] == 0 else (100 if deleted else 117)
        at = _text(out, at + 1, pieces, cuts[1], cuts[2])
        at = _value(
            out, at, before_tags[i], before_numbers[i], before, before_offsets[i],
            before_offsets[i + 1],
        )
        at = _text(out, at, pieces, cuts[2], cuts[3])
        at = _value(
            out, at, after_tags[i], after_numbers[i], after, after_offsets[i], after_offsets[i + 1]
        )
        at = _text(out, at, pieces, cuts[3], cuts[4])
        at = _number(out, at, ts[i])
        at = _text(out, at, pieces, cuts[4], cuts[5])
        at = _number(out, at, parts[i])
        at = _text(out, at, pieces, cuts[5], cuts[6])
        at = _number(out, at, offs[i])
        at = _text(out, at, pieces, cuts[6], cuts[7])
        at = _number(out, at, seqs[i])
        at = _text(out, at, pieces, cuts[7], cuts[8])
        at = _text(out, at, ids, id_offsets[i], id_offsets[i + 1])
        at = _text(out, at, pieces, cuts[8], cuts[9])
        at = _number(out, at, index[i])
        at = _text(out, at, pieces, cuts[9], cuts[10])
        at = _number(out, at, index[i])
        at = _text(out, at, pieces, cuts[10], cuts[11])
        source[row] = i
        row += 1
        bounds[row] = at
        if deleted:
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
    data, bounds, source = _changes(
        ids.data, ids.offsets, cols["seq"], cols["ts"], cols["part"], cols["off"], cols["index"],
        cols["before_tag"], cols["before_number"], before.data, before.offsets,
        cols["after_tag"], cols["after_number"], after.data, after.offsets,
        pieces.data, pieces.offsets,
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

"""Format results and changes as JSON, column-wise: the bytes on the wire, a few hundred ns a
record.

The kernels write the same bytes that `streamydb.records` would encode; a test holds them against
each
other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamydb.columns import Bytes, Ragged, starts_of
from streamydb.jit import kernel

__all__ = ["format_changes", "format_results", "json_strings"]

Ints = npt.NDArray[np.int64]
Records = npt.NDArray[Any]

_HEX = np.frombuffer(bytearray(b"0123456789abcdef"), np.uint8)


@kernel
def _text(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    for j in range(start, end):
        out[at] = data[j]
        at += 1
    return at


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
def _value(
    out: Bytes, at: int, tag: int, number: int, ref: int, data: Bytes, offsets: Ints
) -> int:
    if tag == 1:
        return _number(out, at, number)
    if tag == 2:
        return _text(out, at, data, offsets[ref], offsets[ref + 1])
    out[at], out[at + 1], out[at + 2], out[at + 3] = 110, 117, 108, 108
    return at + 4


@kernel
def _value_bytes(tag: int, ref: int, offsets: Ints) -> int:
    return offsets[ref + 1] - offsets[ref] if tag == 2 else 20


@kernel
def _results(
    ids: Bytes, id_offsets: Ints, seqs: Ints, ts: Ints, parts: Ints, offs: Ints,
    special: Bytes, special_offsets: Ints, reads: Records, read_starts: Ints,
    keys: Bytes, key_offsets: Ints, data: Bytes, offsets: Ints, pieces: Bytes, cuts: Ints,
) -> tuple[Bytes, Ints]:
    n = len(seqs)
    size = special_offsets[n] + (id_offsets[n] - id_offsets[0]) + n * (len(pieces) + 80)
    for k in range(len(reads)):
        size += key_offsets[reads[k].slot + 1] - key_offsets[reads[k].slot] + 3
        size += _value_bytes(reads[k].tag, reads[k].ref, offsets)
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
        for k in range(read_starts[i], read_starts[i + 1]):
            if k > read_starts[i]:
                out[at] = 44
                at += 1
            read = reads[k]
            at = _text(out, at, keys, key_offsets[read.slot], key_offsets[read.slot + 1])
            out[at] = 58
            at = _value(out, at + 1, read.tag, read.number, read.ref, data, offsets)
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


def format_results(
    ids: Ragged, seqs: Ints, ts: Ints, parts: Ints, offs: Ints, special: Ragged,
    reads: Records, read_counts: Ints, json_keys: Ragged, pool: Ragged,
) -> Ragged:
    """Result records of n transactions.

    Args:
        ids: the ids as JSON strings, (n,).
        seqs: shape (n,), int64.
        ts: effective times in ms, (n,).
        parts: partitions of the log, (n,).
        offs: offsets in it, (n,).
        special: the finished record where it is not a plain commit, else empty, (n,).
        reads: SEEN records in order of transaction.
        read_counts: how many each transaction has, (n,).
        json_keys: the slots' keys as JSON strings.
        pool: the texts that reads refer to.

    """
    data, bounds = _results(
        ids.data, ids.offsets, seqs, ts, parts, offs, special.data, special.offsets, reads,
        starts_of(read_counts), json_keys.data, json_keys.offsets, pool.data, pool.offsets,
        _RESULT.data, _RESULT.offsets,
    )
    return Ragged(data, bounds)


@kernel
def _change(
    out: Bytes, at: int, write: Any, index: int, txn: int, ids: Bytes, id_offsets: Ints, seqs: Ints,
    ts: Ints, parts: Ints, offs: Ints, data: Bytes, offsets: Ints, pieces: Bytes, cuts: Ints,
) -> int:
    at = _text(out, at, pieces, cuts[0], cuts[1])
    out[at] = 99 if write.before_tag == 0 else (100 if write.after_tag == 0 else 117)
    at = _text(out, at + 1, pieces, cuts[1], cuts[2])
    at = _value(out, at, write.before_tag, write.before_number, write.before_ref, data, offsets)
    at = _text(out, at, pieces, cuts[2], cuts[3])
    at = _value(out, at, write.after_tag, write.after_number, write.after_ref, data, offsets)
    at = _text(out, at, pieces, cuts[3], cuts[4])
    at = _number(out, at, ts[txn])
    at = _text(out, at, pieces, cuts[4], cuts[5])
    at = _number(out, at, parts[txn])
    at = _text(out, at, pieces, cuts[5], cuts[6])
    at = _number(out, at, offs[txn])
    at = _text(out, at, pieces, cuts[6], cuts[7])
    at = _number(out, at, seqs[txn])
    at = _text(out, at, pieces, cuts[7], cuts[8])
    at = _text(out, at, ids, id_offsets[txn], id_offsets[txn + 1])
    at = _text(out, at, pieces, cuts[8], cuts[9])
    at = _number(out, at, index)
    at = _text(out, at, pieces, cuts[9], cuts[10])
    at = _number(out, at, index)
    return _text(out, at, pieces, cuts[10], cuts[11])


@kernel
def _changes(
    chosen: Ints, writes: Records, ordinals: Ints, ids: Bytes, id_offsets: Ints, seqs: Ints,
    ts: Ints, parts: Ints, offs: Ints, data: Bytes, offsets: Ints, pieces: Bytes, cuts: Ints,
) -> tuple[Bytes, Ints, Ints]:
    rows, size = 0, 0
    for i in chosen:
        w = writes[i]
        rows += 2 if w.after_tag == 0 else 1
        size += len(pieces) + 125 + id_offsets[w.txn + 1] - id_offsets[w.txn]
        size += _value_bytes(w.before_tag, w.before_ref, offsets)
        size += _value_bytes(w.after_tag, w.after_ref, offsets)
    out = np.empty(size, np.uint8)
    bounds = np.zeros(rows + 1, np.int64)
    source = np.empty(rows, np.int64)
    at, row = 0, 0
    for i in chosen:
        w = writes[i]
        at = _change(
            out, at, w, ordinals[i], w.txn, ids, id_offsets, seqs, ts, parts, offs, data, offsets,
            pieces, cuts,
        )
        source[row] = w.slot
        row += 1
        bounds[row] = at
        if w.after_tag == 0:
            source[row] = w.slot
            row += 1
            bounds[row] = at
    return out[:at].copy(), bounds, source


@kernel
def _ordinals(writes: Records) -> Ints:
    out = np.empty(len(writes), np.int64)
    for i in range(len(writes)):
        out[i] = out[i - 1] + 1 if i > 0 and writes[i].txn == writes[i - 1].txn else 1
    return out


def format_changes(
    database: str, chosen: Ints | None, writes: Records, ids: Ragged, seqs: Ints, ts: Ints,
    parts: Ints, offs: Ints, pool: Ragged,
) -> tuple[Ragged, Ints]:
    """Change records of the ``chosen`` writes (all when None), a tombstone after each delete.

    Returns:
        The values (an empty one is a tombstone) and the slot of each; both of the same length.

    """
    pieces = _change_pieces(database)
    if chosen is None:
        chosen = np.arange(len(writes), dtype=np.int64)
    data, bounds, slots = _changes(
        chosen, writes, _ordinals(writes), ids.data, ids.offsets, seqs, ts, parts, offs,
        pool.data, pool.offsets, pieces.data, pieces.offsets,
    )
    return Ragged(data, bounds), slots


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

"""Kernels that write entries as JSON, straight from where they are stored; see `lookup`.

An answer of a hundred entries that is made of a hundred objects costs ten times as much.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamydb.frames import characters as c
from streamydb.frames.addresses import byte_at, copy_at, start_of
from streamydb.frames.jit import brief, copy_bytes, leaf
from streamydb.frames.json_writer import ESCAPED_BYTES, put_character, put_number
from streamydb.frames.table import Bytes
from streamydb.read_model.lookup import DAMAGED, NONE, find_row
from streamydb.read_model.rows import (
    Ints,
    deleted,
    expires_of,
    key_bytes_of,
    key_of,
    row_bytes,
    seq_of,
    ts_of,
    value_of,
)
from streamydb.read_model.scanning import begun, filled

TOO_LARGE: Final = -2  # in place of a number of entries: their values have too many bytes
UNFINISHED: Final = -3  # in place of a number of entries: there are too many keys to pass at once
_KEY: Final = np.frombuffer(b'{"key":', np.uint8)
_VALUE: Final = np.frombuffer(b',"value":', np.uint8)
_VERSION: Final = np.frombuffer(b',"version":', np.uint8)
_TS: Final = np.frombuffer(b',"ts_ms":', np.uint8)
_EXPIRES: Final = np.frombuffer(b',"expires_ms":', np.uint8)
_ABSENT: Final = np.frombuffer(b"null", np.uint8)

_REST_BYTES: Final = 112  # an entry takes at most so many beside its key and its value
_QUOTED_BYTES: Final = 8  # and a name with its quotes, colon, comma and null so many beside the key


@leaf
def _value_bytes(row: int) -> int:
    return row + row_bytes(row) - value_of(row)


@leaf
def _put(out: Bytes, at: int, piece: Bytes) -> int:
    copy_bytes(out, at, piece, 0, len(piece))
    return at + len(piece)


@leaf
def _put_name(out: Bytes, at: int, key: int, key_bytes: int) -> int:
    """Write a key as a JSON string."""
    out[at] = c.QUOTE
    at += 1
    for i in range(key_bytes):
        at = put_character(out, at, byte_at(key + i))
    out[at] = c.QUOTE
    return at + 1


@leaf
def _put_entry(out: Bytes, at: int, row: int) -> int:
    at = _put_name(out, _put(out, at, _KEY), key_of(row), key_bytes_of(row))
    at = _put(out, at, _VALUE)
    copy_at(start_of(out) + at, value_of(row), _value_bytes(row))
    at = put_number(out, _put(out, at + _value_bytes(row), _VERSION), seq_of(row))
    at = put_number(out, _put(out, at, _TS), ts_of(row))
    if expires_of(row) != 0:
        at = put_number(out, _put(out, at, _EXPIRES), expires_of(row))
    out[at] = c.CLOSE_BRACE
    return at + 1


@brief
def named_as_json(
    view: Ints, keys: bytes, ends: Ints, seq: int, bytes_max: int
) -> tuple[Bytes, int]:
    """Members of a JSON object: each key with its entry at ``seq``, or null; and how many they are.

    Instead of how many: `DAMAGED`; `TOO_LARGE`, if the values have more than ``bytes_max``.
    ``keys``: one after the other, and `SPARE_BYTES`; ``ends``: where each ends.
    """
    rows = np.empty(len(ends), np.int64)
    base, start, size, values = start_of(keys), 0, 0, 0
    for i in range(len(ends)):
        rows[i] = find_row(view, base + start, ends[i] - start, seq)
        if rows[i] == DAMAGED:
            return np.empty(0, np.uint8), DAMAGED
        if rows[i] != NONE and deleted(rows[i]):
            rows[i] = NONE
        size += ESCAPED_BYTES * (ends[i] - start) + _QUOTED_BYTES
        if rows[i] != NONE:
            values += _value_bytes(rows[i])
            size += ESCAPED_BYTES * key_bytes_of(rows[i]) + _REST_BYTES
        start = ends[i]
    if values > bytes_max:
        return np.empty(0, np.uint8), TOO_LARGE
    out = np.empty(size + values, np.uint8)
    at, start = 0, 0
    for i in range(len(ends)):
        if i > 0:
            out[at] = c.COMMA
            at += 1
        at = _put_name(out, at, base + start, ends[i] - start)
        out[at] = c.COLON
        at += 1
        at = _put(out, at, _ABSENT) if rows[i] == NONE else _put_entry(out, at, rows[i])
        start = ends[i]
    return out[:at], len(ends)


@brief
def page_as_json(
    view: Ints, bounds: bytes, lengths: tuple[int, int], seq: int, limits: tuple[int, int, int]
) -> tuple[Bytes, int, int]:
    """Items of a JSON array: entries that exist at ``seq``; see `rows_as_json`.

    Instead of how many: `DAMAGED`; `UNFINISHED`.
    ``bounds``: the first key, the key to stop before (of no bytes: none), and `SPARE_BYTES`;
    ``lengths``: of both. ``limits``: entries, bytes of their values, keys to pass.
    """
    entries, bytes_max, keys = limits
    heads = np.empty((view[0], 3), np.int64)
    rows = np.empty(entries + 1, np.int64)
    first = start_of(bounds)
    stop = first + lengths[0], lengths[1]
    row, more = DAMAGED, False
    if begun(view, heads, first, lengths[0], seq):
        row, more = filled(view, heads, stop, seq, rows, (0, keys))
    if row == DAMAGED or more:
        return np.empty(0, np.uint8), UNFINISHED if more else DAMAGED, NONE
    return rows_as_json(rows[:row], entries, bytes_max)


@brief
def rows_as_json(rows: Ints, limits: int, bytes_max: int) -> tuple[Bytes, int, int]:
    """Items of a JSON array: the entries of rows; how many; the last one's row.

    The row is `NONE` if no others follow. At least one is given, if there is one, and then as many
    as have ``bytes_max`` bytes of values together, and ``limits``.
    """
    n, size, values = 0, 0, 0
    while n < len(rows):
        values += _value_bytes(rows[n])
        if n > 0 and (values > bytes_max or n == limits):
            break
        size += ESCAPED_BYTES * key_bytes_of(rows[n]) + _value_bytes(rows[n]) + _REST_BYTES
        n += 1
    out = np.empty(size, np.uint8)
    at = 0
    for i in range(n):
        if i > 0:
            out[at] = c.COMMA
            at += 1
        at = _put_entry(out, at, rows[i])
    return out[:at], n, rows[n - 1] if n < len(rows) else NONE

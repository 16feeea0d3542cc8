"""The encoding of versions: rows of bytes, in parts, in the order of keys and then newest first.

A row is a head of 24 bytes (seq, commit timestamp, and the lengths of value, key, id and end), then
the key, the transaction's id, the end and the value. A deletion has an empty value. The end, the
commit time (ms) from which on the key is absent, has eight bytes, or none if there is no end.

A part is rows in their order, where each of them begins (four bytes each), and how many they are
(eight bytes). So a search in a part halves it, a walk through it needs no index, and a row is
copied as it is.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.errors import INVALID_KEY, ValueRejected
from streamydb.frames.addresses import (
    byte_at,
    bytes_at,
    double_at,
    ordered_at,
    put_double,
    put_word,
    short_at,
    word_at,
)
from streamydb.frames.jit import leaf
from streamydb.limits import KEY_BYTES_MAX

Ints = npt.NDArray[np.int64]

HEAD_BYTES: Final = 24
INDEX_BYTES: Final = 4  # a row takes so many in its part's index
FOOT_BYTES: Final = 8

_TS_AT, _VALUE_AT, _KEY_AT, _ID_AT, _END_AT = 8, 16, 20, 22, 23
_WORD_BYTES: Final = 8

_head = struct.Struct("<qqIHBB")
_end = struct.Struct("<q")
_number = struct.Struct(">Q")


class DamagedError(Exception):
    """Raised when what is stored is no part."""


class Row(NamedTuple):
    """A version of a key; an empty value: it was deleted; ``expires_ms`` 0: it has no end."""

    key: bytes
    seq: int
    ts_ms: int
    txn_id: bytes
    value: bytes
    expires_ms: int = 0


def key_bytes(key: str) -> bytes:
    """A user's key, or a bound of a scan, as UTF-8.
    Raises ValueRejected: no key of a database can be like this.
    """
    try:
        data = key.encode()
    except UnicodeEncodeError as fault:
        raise ValueRejected(INVALID_KEY, f"the key {key!r} is not Unicode text") from fault
    if len(data) > KEY_BYTES_MAX:
        raise ValueRejected(
            INVALID_KEY, f"a key of {len(data)} bytes, {KEY_BYTES_MAX} is the most: {key[:40]!r}…"
        )
    return data


def pack_row(
    key: bytes, seq: int, ts_ms: int, txn_id: bytes, value: bytes, expires_ms: int = 0
) -> bytes:
    """A version of a key as a row; see `Row`."""
    end = _end.pack(expires_ms) if expires_ms else b""
    head = _head.pack(seq, ts_ms, len(value), len(key), len(txn_id), len(end))
    return b"".join((head, key, txn_id, end, value))


def unpack_row(data: bytes) -> Row:
    seq, ts_ms, _, key_length, id_length, end_length = _head.unpack_from(data)
    id_at = HEAD_BYTES + key_length
    end_at = id_at + id_length
    (expires_ms,) = _end.unpack_from(data, end_at) if end_length else (0,)
    key, value = data[HEAD_BYTES:id_at], data[end_at + end_length :]
    return Row(key, seq, ts_ms, data[id_at:end_at], value, expires_ms)


def row_named(row: int) -> tuple[bytes, int]:
    seq, _, _, key_length, _, _ = _head.unpack(bytes_at(row, HEAD_BYTES))
    return bytes_at(row + HEAD_BYTES, key_length), -seq


def last_row(part: int, length: int, count: int) -> int:
    """The address of the last row of a part. Raises DamagedError: it does not lie in the part."""
    row = int(row_at(part, length, count, count - 1))
    if row == 0:
        raise DamagedError
    return row


def pack_seq(*seqs: int) -> bytes:
    """Non-negative integers as bytes in their order."""
    return b"".join(map(_number.pack, seqs))


def unpack_seq(data: bytes | memoryview) -> int:
    number: int = _number.unpack_from(data)[0]
    return number


# In kernels a row is the address of its head.


@leaf
def seq_of(row: int) -> int:
    return word_at(row)


@leaf
def ts_of(row: int) -> int:
    return word_at(row + _TS_AT)


@leaf
def deleted(row: int) -> bool:
    return double_at(row + _VALUE_AT) == 0


@leaf
def key_of(row: int) -> int:
    return row + HEAD_BYTES


@leaf
def key_bytes_of(row: int) -> int:
    return short_at(row + _KEY_AT)


@leaf
def _end_of(row: int) -> int:
    """The address of a row's end, or of its value if it has no end."""
    return key_of(row) + key_bytes_of(row) + byte_at(row + _ID_AT)


@leaf
def expires_of(row: int) -> int:
    """The commit time (ms) from which on a row's key is absent; 0: it has no end."""
    return word_at(_end_of(row)) if byte_at(row + _END_AT) != 0 else 0


@leaf
def value_of(row: int) -> int:
    return _end_of(row) + byte_at(row + _END_AT)


@leaf
def row_bytes(row: int) -> int:
    return value_of(row) - row + double_at(row + _VALUE_AT)


@leaf
def put_head(row: int, version: tuple[int, int, int], lengths: tuple[int, int, int]) -> None:
    """Write a row's head and end: seq, commit timestamp, end; lengths of value, key and id."""
    seq, ts_ms, expires_ms = version
    value_bytes, key_bytes, id_bytes = lengths
    end_bytes = _WORD_BYTES if expires_ms != 0 else 0
    put_word(row, seq)
    put_word(row + _TS_AT, ts_ms)
    put_double(row + _VALUE_AT, value_bytes)
    short = id_bytes << 8 * (_ID_AT - _KEY_AT) | end_bytes << 8 * (_END_AT - _KEY_AT)
    put_double(row + _KEY_AT, key_bytes | short)
    if expires_ms != 0:
        put_word(_end_of(row), expires_ms)


@leaf
def row_at(part: int, length: int, count: int, i: int) -> int:
    """The row ``i`` of a part of ``count`` rows; 0 if it does not lie in the part."""
    index = length - FOOT_BYTES - INDEX_BYTES * count
    at = double_at(part + index + INDEX_BYTES * i)
    row = part + at
    if at + HEAD_BYTES > index or key_bytes_of(row) == 0 or at + row_bytes(row) > index:
        return 0
    return row


@leaf
def compare(left: int, left_bytes: int, right: int, right_bytes: int) -> int:
    """Return -1, 0 or 1 as a text at an address comes before, with or behind another."""
    length = min(left_bytes, right_bytes)
    at = 0
    while at < length:
        one, other = ordered_at(left + at), ordered_at(right + at)
        if length - at < _WORD_BYTES:
            beyond = np.uint64(8 * (_WORD_BYTES - (length - at)))
            one, other = one >> beyond, other >> beyond
        if one != other:
            return -1 if one < other else 1
        at += _WORD_BYTES
    if left_bytes == right_bytes:
        return 0
    return -1 if left_bytes < right_bytes else 1


@leaf
def same_key(left: int, right: int) -> bool:
    length = key_bytes_of(left)
    return (
        length == key_bytes_of(right) and compare(key_of(left), length, key_of(right), length) == 0
    )


@leaf
def compare_rows(left: int, right: int) -> int:
    """Return -1, 0 or 1 as a row comes before, with or behind another."""
    by_key = compare(key_of(left), key_bytes_of(left), key_of(right), key_bytes_of(right))
    if by_key != 0:
        return by_key
    one, other = seq_of(left), seq_of(right)
    if one == other:
        return 0
    return -1 if one > other else 1

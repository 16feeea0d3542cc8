"""The encoding of keys, versions and seqs in the store: byte strings that sort in the wanted order.

A version's key is the user's key, then 0x00, then the seq's complement as 8 bytes, big end first:
all versions of a key lie together, newest first, and the newest one up to a seq is one seek away.
So that keys may contain 0x00 and still sort right, every byte of a key is stored plus one; UTF-8
has no byte 0xFF, so none overflows, and a key of 480 bytes needs 489, below LMDB's 511.
"""

from __future__ import annotations

import struct

from streamydb.errors import INVALID_KEY, ValueRejected
from streamydb.limits import KEY_BYTES_MAX

__all__ = [
    "SUFFIX_BYTES",
    "key_bytes",
    "key_text",
    "pack_seq",
    "pack_version",
    "seq_of",
    "stored",
    "unpack_seq",
    "unpack_version",
    "version_key",
]

SUFFIX_BYTES = 9
"""Bytes of a version's key after the stored key."""

_SEQ_LAST = 2**64 - 1
_UP = bytes(range(1, 256)) + b"\xff"
_DOWN = b"\x00" + bytes(range(255))
_suffix = struct.Struct(">xQ").pack
_number = struct.Struct(">Q")
_head = struct.Struct("<qB")


def key_bytes(key: str) -> bytes:
    """A user's key, or a bound of a scan, as UTF-8.

    Raises:
        ValueRejected: no key of a database can be like this.
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


def stored(key: bytes) -> bytes:
    """A key as it is stored; never has a byte 0x00."""
    return key.translate(_UP)


def key_text(stored_key: bytes) -> str:
    """The user's key that is stored as ``stored_key``."""
    return stored_key.translate(_DOWN).decode()


def version_key(stored_key: bytes, seq: int) -> bytes:
    """Return the place of the version ``seq`` of a key, or of the first one up to it."""
    return stored_key + _suffix(_SEQ_LAST - seq)


def seq_of(stored_version: bytes) -> int:
    """The seq in a version's key."""
    found: int = _number.unpack_from(stored_version, len(stored_version) - 8)[0]
    return _SEQ_LAST - found


def pack_version(ts_ms: int, txn_id: bytes, value: bytes) -> bytes:
    """A version: commit timestamp, the transaction's id, the value (empty: deleted)."""
    return _head.pack(ts_ms, len(txn_id)) + txn_id + value


def unpack_version(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the arguments of `pack_version`."""
    ts_ms, length = _head.unpack_from(data)
    start = _head.size + length
    return ts_ms, data[_head.size : start], data[start:]


def pack_seq(*seqs: int) -> bytes:
    """Non-negative integers as bytes in their order."""
    return b"".join(map(_number.pack, seqs))


def unpack_seq(data: bytes) -> int:
    """The first integer in ``data``."""
    number: int = _number.unpack_from(data)[0]
    return number

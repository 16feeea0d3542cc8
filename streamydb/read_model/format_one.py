"""Take over the file of a release that stored every version by itself (format 1).

There a key was stored with one added to each byte, a zero byte, and the complement of the seq as
eight bytes, big end first; a version was its timestamp, the length of its id, the id and the value.
Their order is that of rows. No such key begins with a zero byte, and every part's number does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from streamydb.read_model.rows import pack_row

if TYPE_CHECKING:
    import lmdb

    from streamydb.read_model.environment import Tables

__all__ = ["SUPERSEDED", "taken_over"]

SUPERSEDED: Final = "superseded"
"""The table of what could be collected, which is no longer needed."""

_SEQ_LAST: Final = 2**64 - 1
_SUFFIX_BYTES: Final = 9
_ROWS: Final = 4_096
_FIRST: Final = b"\x01"
_DOWN: Final = b"\x00" + bytes(range(255))
_head = struct.Struct("<qB")


def taken_over(txn: lmdb.Transaction[memoryview], tables: Tables) -> Iterator[list[bytes]]:
    """Remove all versions; give them as rows, in their order, some at a time."""
    versions = _versions(txn, tables)
    while rows := list(islice(versions, _ROWS)):
        yield rows


def _versions(txn: lmdb.Transaction[memoryview], tables: Tables) -> Iterator[bytes]:
    versions = txn.cursor(tables.versions)
    while versions.set_range(_FIRST):
        yield _row(bytes(versions.key()), bytes(versions.value()))
        versions.delete()


def _row(name: bytes, data: bytes) -> bytes:
    key = name[:-_SUFFIX_BYTES].translate(_DOWN)
    seq = _SEQ_LAST - int.from_bytes(name[1 - _SUFFIX_BYTES :])
    ts_ms, id_bytes = _head.unpack_from(data)
    start = _head.size + id_bytes
    return pack_row(key, seq, ts_ms, data[_head.size : start], data[start:])

"""Garbage collection: removes versions that no snapshot at or after the horizon can show.

Each commit remembers the keys that it gave a newer version or deleted, in chunks that become due
when the horizon has passed the newest change of the commit. So collecting costs in proportion to
what is collected, never to what is stored, and a chunk is the unit of work.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import msgspec

from streamydb.read_model.encoding import (
    SUFFIX_BYTES,
    pack_seq,
    unpack_seq,
    unpack_version,
    version_key,
)

if TYPE_CHECKING:
    import lmdb

    from streamydb.read_model.environment import Tables

__all__ = ["collect", "remember"]

KEYS_PER_CHUNK: Final = 512

CHUNKS_MAX: Final = 256
"""Chunks that one commit collects; more than the largest batch adds, so collecting keeps up."""

TIMES_MAX: Final = 65_536
"""Timestamps that one commit removes."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def remember(
    txn: lmdb.Transaction[bytes], tables: Tables, keys: Collection[bytes], newest: int, commit: int
) -> None:
    """Note stored keys that can be collected once the horizon has reached ``newest``.

    Args:
        txn: the write transaction.
        tables: of the store.
        keys: the stored keys.
        newest: the largest seq of a change among them.
        commit: the commit's number, which no other one has.
    """
    ordered = sorted(keys)
    for start in range(0, len(ordered), KEYS_PER_CHUNK):
        name = pack_seq(newest, commit, start)
        txn.put(name, _encode(ordered[start : start + KEYS_PER_CHUNK]), db=tables.superseded)


def collect(txn: lmdb.Transaction[bytes], tables: Tables, horizon: int) -> bool:
    """Remove what only snapshots before ``horizon`` could show; whether more is due."""
    _forget_times(txn, tables, horizon)
    due = txn.cursor(tables.superseded)
    versions = txn.cursor(tables.versions)
    for _ in range(CHUNKS_MAX):
        if not due.first() or unpack_seq(due.key()) > horizon:
            return False
        for key in _decode(due.value()):
            _collect_key(versions, key, horizon)
        due.delete()
    return due.first() and unpack_seq(due.key()) <= horizon


def _collect_key(versions: lmdb.Cursor[bytes], key: bytes, horizon: int) -> None:
    """Keep the newest version up to the horizon, unless it is a deletion; remove older ones."""
    if not versions.set_range(version_key(key, horizon)) or not _is_of(versions, key):
        return
    deleted = not unpack_version(versions.value())[2]
    left = versions.delete() if deleted else versions.next()
    while left and _is_of(versions, key):
        left = versions.delete()


def _is_of(versions: lmdb.Cursor[bytes], key: bytes) -> bool:
    return versions.key()[:-SUFFIX_BYTES] == key


def _forget_times(txn: lmdb.Transaction[bytes], tables: Tables, horizon: int) -> None:
    """Remove timestamps before the one that holds at the horizon."""
    times = txn.cursor(tables.times)
    past = times.set_range(pack_seq(horizon + 1))
    if not (times.prev() if past else times.last()):
        return
    kept = times.key()
    times.first()
    for _ in range(TIMES_MAX):
        if times.key() >= kept:
            break
        times.delete()

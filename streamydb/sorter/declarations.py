"""The key that all constraints lie under, as a read of whatever writes after a declaration.

Before the first declaration of a log nothing reads it, so a database without constraints pays
nothing for them. The first record that writes the key is found in the total order, so every shard
finds the same one.
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
from msgspec.structs import replace

from streamydb.frames import program as p
from streamydb.frames.hashing import KEY_SEED, hash_ragged
from streamydb.frames.record_rows import RecordKeys, TimedRecords
from streamydb.frames.table import Array, ChildRows, Ragged
from streamydb.records import CONSTRAINTS_KEY

_KEY: Final = CONSTRAINTS_KEY.encode()


def declares(records: TimedRecords) -> bool:
    """Return True if one of the records changes the constraints."""
    return _first(records) is not None


def reading_constraints(records: TimedRecords, *, all_of_them: bool) -> TimedRecords:
    """Return records in their order; those that write and follow a declaration read the key, too.

    ``all_of_them``: a declaration was released before.
    """
    first = 0 if all_of_them else _first(records)
    if first is None:
        return records
    counts, keys = records.keys
    owner = np.repeat(np.arange(len(counts)), counts)
    writing = np.bincount(owner, keys.write, len(counts)) > 0
    writing[:first] = False
    writing[owner[_rows(keys)]] = False
    rows = np.flatnonzero(writing)
    if not len(rows):
        return records
    more = RecordKeys(np.zeros(1, np.uint8), np.array([_hash()], np.uint64), Ragged.of([_KEY]))
    order = np.insert(np.arange(len(keys)), np.cumsum(counts)[rows], len(keys))
    both = RecordKeys.concat([keys, more]).take(order)
    return replace(records, keys=ChildRows(counts + writing, both))


def _first(records: TimedRecords) -> int | None:
    if not (records.kind == p.GENERIC).any():
        return None
    counts, keys = records.keys
    rows = _rows(keys)
    written = rows[keys.write[rows] > 0]
    return int(np.searchsorted(np.cumsum(counts), written[0], "right")) if len(written) else None


def _rows(keys: RecordKeys) -> Array:
    rows = np.flatnonzero(keys.hash == _hash())
    return rows[[keys.key[row] == _KEY for row in rows.tolist()]]


@functools.cache
def _hash() -> np.uint64:
    """Return the hash of the key.

    Not at the import: a kernel computes it, and the compiler that loads kernels takes 30 MB of each
    process that only imports this.
    """
    return np.uint64(hash_ragged(Ragged.of([_KEY]), KEY_SEED)[0])

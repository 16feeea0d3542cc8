"""Kernels that sort out what has arrived: which records are new, which changes were read before."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.columns.addresses import ordered_at
from streamydb.columns.hashing import mix
from streamydb.columns.jit import kernel, leaf
from streamydb.columns.table import Bytes
from streamydb.read_model.rows import Ints, key_bytes_of, key_of, seq_of, ts_of

Words = npt.NDArray[np.uint64]

_SEED: Final = 0x9E3779B97F4A7C15
_ROOM: Final = 2
"""Places of a table for each entry, at least."""

_WORD_BYTES: Final = 8


class Steps(NamedTuple):
    """The resolved records of a batch: number of the record, partition, and the seq that it, or
    one before it, resolves there.
    """

    record: Ints
    partition: Ints
    seq: Ints


class Seen(NamedTuple):
    """A table of versions that are stored and not resolved yet; a zero hash: a free place.

    It may hold what is not stored, and two versions may look alike: it says where to look.
    """

    hashes: Words
    seqs: Ints
    partitions: Ints


@kernel
def fresh(partitions: Ints, offsets: Ints, positions: Ints) -> Bytes:
    """Mark the records that were not read before, and move each partition's position behind them.

    No partition may lie beyond the positions.
    """
    out = np.zeros(len(partitions), np.uint8)
    for i in range(len(partitions)):
        if offsets[i] >= positions[partitions[i]]:
            positions[partitions[i]] = offsets[i] + 1
            out[i] = 1
    return out


@kernel
def parted(rows: Ints, partitions: Ints, resolved: Ints, steps: Steps) -> tuple[Ints, Ints, Ints]:
    """Part changes in those to store, with their partitions, and repeated ones.

    ``rows``: of each record, 0 where it is no change. ``resolved``: of each partition, before.
    """
    new, own = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    again = np.empty(len(rows), np.int64)
    known = resolved.copy()
    n, repeats, step = 0, 0, 0
    for i in range(len(rows)):
        while step < len(steps.record) and steps.record[step] <= i:
            known[steps.partition[step]] = steps.seq[step]
            step += 1
        if rows[i] == 0:
            continue
        if seq_of(rows[i]) <= known[partitions[i]]:
            again[repeats] = rows[i]
            repeats += 1
        else:
            new[n], own[n] = rows[i], partitions[i]
            n += 1
    return new[:n], own[:n], again[:repeats]


@kernel
def times_of(rows: Ints, partitions: Ints, count: int) -> Ints:
    """Timestamps and seqs of rows, shape (m, 2): every timestamp with its smallest seq is among
    them, and not many more. ``count``: of partitions.
    """
    out = np.empty((len(rows), 2), np.int64)
    times = np.full((count, 2), -1, np.int64)
    n = 0
    for i in range(len(rows)):
        ts_ms, seq, last = ts_of(rows[i]), seq_of(rows[i]), times[partitions[i]]
        if ts_ms != last[0] or seq < last[1]:
            last[0], last[1] = ts_ms, seq
            out[n, 0], out[n, 1] = ts_ms, seq
            n += 1
    return out[:n]


@leaf
def _hash(row: int) -> np.uint64:
    """The hash of a row's key and seq; never 0."""
    start, left = key_of(row), key_bytes_of(row)
    h = mix(np.uint64(_SEED) ^ np.uint64(seq_of(row))) ^ np.uint64(left)
    while left > 0:
        word = ordered_at(start)
        if left < _WORD_BYTES:
            word = word >> np.uint64(8 * (_WORD_BYTES - left))
        h = mix(h ^ word) + np.uint64(_SEED)
        start += _WORD_BYTES
        left -= _WORD_BYTES
    return h | np.uint64(1)


@leaf
def _enter(seen: Seen, h: np.uint64, seq: int, partition: int) -> bool:
    """Put an entry in the table, unless it is there; True if one looks alike.

    What looks alike in another partition is another entry: it is resolved at another time.
    """
    alike = False
    mask = np.uint64(len(seen.hashes) - 1)
    at = (h >> np.uint64(8)) & mask
    while seen.hashes[at] != 0:
        if seen.hashes[at] == h and seen.seqs[at] == seq:
            alike = True
            if seen.partitions[at] == partition:
                return True
        at = (at + np.uint64(1)) & mask
    seen.hashes[at], seen.seqs[at], seen.partitions[at] = h, seq, partition
    return alike


@kernel
def enter(seen: Seen, rows: Ints, partitions: Ints) -> Bytes:
    """Note rows in a table that has room for them; mark those that may have been there."""
    out = np.zeros(len(rows), np.uint8)
    for i in range(len(rows)):
        out[i] = _enter(seen, _hash(rows[i]), seq_of(rows[i]), partitions[i])
    return out


@kernel
def unresolved(seen: Seen, resolved: Ints, more: int) -> Seen:
    """A table of the entries that are not resolved in their partition, with room for more."""
    left = more
    for i in range(len(seen.hashes)):
        left += seen.hashes[i] != 0 and seen.seqs[i] > resolved[seen.partitions[i]]
    size = 1
    while size < _ROOM * left:
        size *= 2
    out = Seen(np.zeros(size, np.uint64), np.empty(size, np.int64), np.empty(size, np.int64))
    for i in range(len(seen.hashes)):
        if seen.hashes[i] != 0 and seen.seqs[i] > resolved[seen.partitions[i]]:
            _enter(out, seen.hashes[i], seen.seqs[i], seen.partitions[i])
    return out

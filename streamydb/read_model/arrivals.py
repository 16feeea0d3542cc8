"""Kernels that sort out what has arrived: which records are new, which changes were read before."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames.addresses import ordered_at
from streamydb.frames.hashing import mix
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.table import Bytes
from streamydb.read_model.rows import Ints, key_bytes_of, key_of, seq_of, ts_of

Words = npt.NDArray[np.uint64]

_SEED: Final = 0x9E3779B97F4A7C15
_ROOM: Final = 2  # places of a table for each entry, at least
_WORD_BYTES: Final = 8


class Steps(NamedTuple):
    """The resolved records of a batch: number of the record, partition, and the seq that it, or
    one before it, resolves there.
    """

    record: Ints
    partition: Ints
    seq: Ints


class Arrivals(NamedTuple):
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
    new, own_rows = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    again = np.empty(len(rows), np.int64)
    bounds = resolved.copy()
    n, repeats, turn_number = 0, 0, 0
    for i in range(len(rows)):
        while turn_number < len(steps.record) and steps.record[turn_number] <= i:
            bounds[steps.partition[turn_number]] = steps.seq[turn_number]
            turn_number += 1
        if rows[i] == 0:
            continue
        if seq_of(rows[i]) <= bounds[partitions[i]]:
            again[repeats] = rows[i]
            repeats += 1
        else:
            new[n], own_rows[n] = rows[i], partitions[i]
            n += 1
    return new[:n], own_rows[:n], again[:repeats]


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
    start, length = key_of(row), key_bytes_of(row)
    h = mix(np.uint64(_SEED) ^ np.uint64(seq_of(row))) ^ np.uint64(length)
    while length > 0:
        word = ordered_at(start)
        if length < _WORD_BYTES:
            word = word >> np.uint64(8 * (_WORD_BYTES - length))
        h = mix(h ^ word) + np.uint64(_SEED)
        start += _WORD_BYTES
        length -= _WORD_BYTES
    return h | np.uint64(1)


@leaf
def _enter(table: Arrivals, h: np.uint64, seq: int, partition: int) -> bool:
    """Put an entry in the table, unless it is there; True if one looks alike.

    What looks alike in another partition is another entry: it is resolved at another time.
    """
    alike = False
    mask = np.uint64(len(table.hashes) - 1)
    at = (h >> np.uint64(8)) & mask
    while table.hashes[at] != 0:
        if table.hashes[at] == h and table.seqs[at] == seq:
            alike = True
            if table.partitions[at] == partition:
                return True
        at = (at + np.uint64(1)) & mask
    table.hashes[at], table.seqs[at], table.partitions[at] = h, seq, partition
    return alike


@kernel
def enter(table: Arrivals, rows: Ints, partitions: Ints) -> Bytes:
    """Note rows in a table that has room for them; mark those that may have been there."""
    out = np.zeros(len(rows), np.uint8)
    for i in range(len(rows)):
        out[i] = _enter(table, _hash(rows[i]), seq_of(rows[i]), partitions[i])
    return out


@kernel
def unresolved(table: Arrivals, resolved: Ints, more: int) -> Arrivals:
    """A table of the entries that are not resolved in their partition, with room for more."""
    count = more
    for i in range(len(table.hashes)):
        count += table.hashes[i] != 0 and table.seqs[i] > resolved[table.partitions[i]]
    size = 1
    while size < _ROOM * count:
        size *= 2
    out = Arrivals(np.zeros(size, np.uint64), np.empty(size, np.int64), np.empty(size, np.int64))
    for i in range(len(table.hashes)):
        if table.hashes[i] != 0 and table.seqs[i] > resolved[table.partitions[i]]:
            _enter(out, table.hashes[i], table.seqs[i], table.partitions[i])
    return out

"""Interning: each distinct key gets a number, its slot, by its hash and its bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamydb.columns.jit import kernel, leaf, same_text
from streamydb.columns.table import Bytes, Ragged

__all__ = ["intern"]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int32]


@leaf
def _place(table: Places, hash_: np.uint64, slot: int) -> None:
    """Put a slot into the first free place for its hash."""
    mask = len(table) - 1
    at = np.int64(hash_ & np.uint64(mask))
    while table[at] >= 0:
        at = (at + 1) & mask
    table[at] = slot


@kernel
def _intern(hashes: Hashes, data: Bytes, offsets: Ints) -> tuple[Ints, Ints]:
    """An open-addressing table of slots that grows with them, so that it stays in the cache."""
    n = len(hashes)
    table = np.full(1024, -1, np.int32)
    slot = np.empty(n, np.int64)
    first = np.empty(n, np.int64)
    known = np.empty(n, np.uint64)
    count = 0
    for i in range(n):
        hash_ = hashes[i]
        mask = len(table) - 1
        at = np.int64(hash_ & np.uint64(mask))
        found = table[at]
        while found >= 0:
            if known[found] == hash_ and same_text(data, offsets, first[found], i):
                break
            at = (at + 1) & mask
            found = table[at]
        if found < 0:
            found = np.int32(count)
            table[at] = count
            known[count] = hash_
            first[count] = i
            count += 1
            if 2 * count > len(table):
                table = np.full(4 * len(table), -1, np.int32)
                for s in range(count):
                    _place(table, known[s], s)
        slot[i] = found
    return slot, first[:count].copy()


def intern(hashes: Hashes, keys: Ragged) -> tuple[Ints, Ints]:
    """Number the distinct keys in order of first occurrence.

    Returns:
        The slot of each key (n,), and the position of the first occurrence of each slot.

    """
    return _intern(hashes, keys.data, keys.offsets)

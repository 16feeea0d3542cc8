"""Interning: each distinct key gets a number, its slot, by its hash and its bytes."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.frames.hashing import FACTOR, SEED, hash_ragged, shift_of, word_at
from streamydb.frames.jit import kernel, leaf, same_text
from streamydb.frames.table import Bytes, Ragged, Texts

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int32]
Entries = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]

_FREE: Final = np.uint64(0xFFFFFFFF)
"""No slot has this number."""

_TAG: Final = np.uint64(0xFFFFFFFF00000000)
_RUN: Final = 64
_WORD: Final = 8


@leaf
def _slots(
    hashes: Hashes, factor: np.uint64, table: Entries, slot: Ints, first: Ints, at: Counts
) -> None:
    """Number keys by 32 bits of their hashes and their place, until the table is half full.

    An entry is those bits of the hash and the slot, so a key costs one access to the memory. A
    processor loads the entries of a run of keys at once: first all are looked at, and nothing
    depends on what is found; then they are used.

    ``at``: how many keys are numbered, how many slots there are, and a bit that is of no use but
    makes the compiler keep the looks. ``factor``: see `frames.hashing`.
    """
    i, count = at[0], at[1]
    mask, shift = np.uint64(len(table) - 1), shift_of(len(table))
    while i < len(hashes):
        end = min(i + _RUN, len(hashes))
        bits = np.uint64(0)
        for k in range(i, end):
            bits ^= table[np.int64(hashes[k] * factor >> shift)]
        at[2] = np.int64(bits & np.uint64(1))
        while i < end:
            if 2 * count >= len(table):
                at[0], at[1] = i, count
                return
            hash_ = hashes[i]
            slot_number = hash_ * factor >> shift
            entry = table[np.int64(slot_number)]
            while entry != _FREE and (entry ^ hash_) & _TAG != 0:
                slot_number = (slot_number + np.uint64(1)) & mask
                entry = table[np.int64(slot_number)]
            if entry == _FREE:
                entry = (hash_ & _TAG) | np.uint64(count)
                table[np.int64(slot_number)] = entry
                first[count] = i
                count += 1
            slot[i] = np.int64(entry & ~_TAG)
            i += 1
    at[0], at[1] = i, count


@kernel
def _by_hash(hashes: Hashes, factor: np.uint64) -> tuple[Ints, Ints]:
    """Number keys as if no two keys had hashes that are nearly alike; the table grows with them."""
    n = len(hashes)
    slot, first = np.empty(n, np.int64), np.empty(n, np.int64)
    table = np.full(1024, _FREE, np.uint64)
    at = np.zeros(3, np.int64)
    _slots(hashes, factor, table, slot, first, at)
    while at[0] < n:
        table = np.full(4 * len(table), _FREE, np.uint64)
        mask, shift = np.uint64(len(table) - 1), shift_of(len(table))
        for s in range(at[1]):
            hash_ = hashes[first[s]]
            place = hash_ * factor >> shift
            while table[np.int64(place)] != _FREE:
                place = (place + np.uint64(1)) & mask
            table[np.int64(place)] = (hash_ & _TAG) | np.uint64(s)
        _slots(hashes, factor, table, slot, first, at)
    return slot, first[: at[1]].copy()


@leaf
def _are_alike(slot: Ints, first: Ints, data: Bytes, offsets: Ints) -> bool:
    """Return True if every key is the first one of its slot."""
    for i in range(len(slot)):
        j = first[slot[i]]
        begin, other = offsets[i], offsets[j]
        length = offsets[i + 1] - begin
        if offsets[j + 1] - other != length:
            return False
        unlike = np.uint64(0)
        if length < _WORD:
            for k in range(length):
                unlike |= np.uint64(data[begin + k] ^ data[other + k])
        else:  # word by word, the last one from the end
            last = length - _WORD
            unlike = word_at(data, begin + last) ^ word_at(data, other + last)
            for k in range(0, last, _WORD):
                unlike |= word_at(data, begin + k) ^ word_at(data, other + k)
        if unlike != 0:
            return False
    return True


@leaf
def _texts(hashes: Hashes, keys: Texts, table: Places, slot: Ints, first: Ints, at: Counts) -> None:
    """Number keys by their hashes and texts, until the table is half full; ``at`` as above."""
    i, count = at[0], at[1]
    mask = np.int64(len(table) - 1)
    while i < len(hashes) and 2 * count < len(table):
        place = np.int64(hashes[i] & np.uint64(mask))
        number = np.int64(table[place])
        while number >= 0:
            other = first[number]
            if hashes[other] == hashes[i] and same_text(keys.data, keys.offsets, other, i):
                break
            place = (place + 1) & mask
            number = np.int64(table[place])
        if number < 0:
            number = count
            table[place] = count
            first[count] = i
            count += 1
        slot[i] = number
        i += 1
    at[0], at[1] = i, count


@kernel
def _exactly(hashes: Hashes, keys: Texts) -> tuple[Ints, Ints]:
    """Number keys whose hashes may be alike: an open-addressing table of slots."""
    n = len(hashes)
    slot, first = np.empty(n, np.int64), np.empty(n, np.int64)
    table = np.full(1024, -1, np.int32)
    at = np.zeros(2, np.int64)
    _texts(hashes, keys, table, slot, first, at)
    while at[0] < n:
        table = np.full(4 * len(table), -1, np.int32)
        mask = np.int64(len(table) - 1)
        for s in range(at[1]):
            place = np.int64(hashes[first[s]] & np.uint64(mask))
            while table[place] >= 0:
                place = (place + 1) & mask
            table[place] = s
        _texts(hashes, keys, table, slot, first, at)
    return slot, first[: at[1]].copy()


def intern(hashes: Hashes, keys: Ragged) -> tuple[Ints, Ints]:
    """Number the distinct keys in order of first occurrence.

    First by their hashes alone. Then all texts are compared, one after the other: that is much
    faster than while looking for them. If two texts have hashes that are nearly alike, all is done
    anew, with texts.

    Clients choose the keys, and know their hashes. So the places in the tables depend on numbers
    that only this process knows (`frames.hashing`), and with texts the hashes do, too: then keys
    of one hash cost no more than others. The slots are the same whatever these numbers are.

    Returns:
        The slot of each key (n,), and the position of the first occurrence of each slot.
    """
    slot, first = _by_hash(hashes, FACTOR)
    if _are_alike(slot, first, keys.data, keys.offsets):
        return slot, first
    return _exactly(hash_ragged(keys, int(SEED)), keys.texts())

"""Sorted segments: keys and items packed into pages of one page each, and how they are searched.

A page has 4,096 bytes: how many entries it has and how many bytes its keys begin with alike (two
bytes each), those bytes, for each entry where its key and where its item ends (two bytes each), and
then the rest of each key with its item. So a key costs little more than its own bytes, and a search
reads one page. A *fence* is the first key of each page.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames.jit import copy_bytes, kernel, leaf
from streamydb.frames.table import Bytes, Ragged

PAGE_BYTES: Final = 4_096
ENTRY_BYTES_MAX: Final = 1_800
"""A key and an item that are longer together are in no segment: LMDB gives them pages anyway."""

_HEAD_BYTES: Final = 4
_BOUNDS_BYTES: Final = 4

Ints = npt.NDArray[np.int64]


class Entries(NamedTuple):
    """Keys in order, each once, with their items. An empty item is a removal."""

    keys: Ragged
    items: Ragged


@leaf
def _short(data: Bytes, at: int) -> int:
    return np.int64(data[at]) | (np.int64(data[at + 1]) << 8)  # type: ignore[return-value]


@leaf
def _put_short(data: Bytes, at: int, value: int) -> None:
    data[at] = value & 255
    data[at + 1] = value >> 8


@leaf
def _order(left: Bytes, a: int, a_end: int, right: Bytes, b: int, b_end: int) -> int:
    """Return how two texts compare: below 0, 0 or above 0."""
    common = min(a_end - a, b_end - b)
    for j in range(common):
        if left[a + j] != right[b + j]:
            return np.int64(left[a + j]) - np.int64(right[b + j])  # type: ignore[return-value]
    return (a_end - a) - (b_end - b)


@leaf
def _alike(data: Bytes, a: int, a_end: int, b: int, b_end: int) -> int:
    """Return how many bytes two texts of a column begin with alike."""
    common = min(a_end - a, b_end - b)
    for j in range(common):
        if data[a + j] != data[b + j]:
            return j
    return common


@kernel
def _cut(keys: Bytes, key_offsets: Ints, item_offsets: Ints) -> Ints:
    """Return where pages begin, and the end: as many entries as fit into each."""
    n = len(key_offsets) - 1
    starts = np.empty(n + 1, np.int64)
    pages, first = 0, 0
    alike, texts = 0, 0
    for i in range(n):
        own = key_offsets[i + 1] - key_offsets[i] + item_offsets[i + 1] - item_offsets[i]
        if i > first:
            both = _alike(
                keys, key_offsets[first], key_offsets[first + 1], key_offsets[i], key_offsets[i + 1]
            )
            both = min(both, alike)
            count = i - first + 1
            size = _HEAD_BYTES + both + count * (_BOUNDS_BYTES - both) + texts + own
            if size <= PAGE_BYTES:
                alike, texts = both, texts + own
                continue
        starts[pages] = first = i
        pages += 1
        alike, texts = key_offsets[i + 1] - key_offsets[i], own
    starts[pages] = n
    return starts[: pages + 1].copy()


@kernel
def _pack(starts: Ints, keys: Bytes, key_offsets: Ints, items: Bytes, item_offsets: Ints) -> Bytes:
    pages = len(starts) - 1
    out = np.zeros(pages * PAGE_BYTES, np.uint8)
    for page in range(pages):
        first, end, base = starts[page], starts[page + 1], page * PAGE_BYTES
        alike = _alike(
            keys, key_offsets[first], key_offsets[first + 1], key_offsets[end - 1], key_offsets[end]
        )
        _put_short(out, base, end - first)
        _put_short(out, base + 2, alike)
        copy_bytes(out, base + _HEAD_BYTES, keys, key_offsets[first], alike)
        bounds = base + _HEAD_BYTES + alike
        at = bounds + (end - first) * _BOUNDS_BYTES
        for i in range(first, end):
            length = key_offsets[i + 1] - key_offsets[i] - alike
            copy_bytes(out, at, keys, key_offsets[i] + alike, length)
            at += length
            _put_short(out, bounds, at - base)
            length = item_offsets[i + 1] - item_offsets[i]
            copy_bytes(out, at, items, item_offsets[i], length)
            at += length
            _put_short(out, bounds + 2, at - base)
            bounds += _BOUNDS_BYTES
    return out


def packed(entries: Entries) -> tuple[Bytes, Ints]:
    """Return the pages of entries, none of them a removal, and which entry begins each page.

    Each entry has `ENTRY_BYTES_MAX` at most.
    """
    keys, items = entries
    starts = _cut(keys.data, keys.offsets, items.offsets)
    return _pack(starts, keys.data, keys.offsets, items.data, items.offsets), starts[:-1]


@kernel
def _measure(data: Bytes, first: int, end: int) -> Ints:
    """Return of pages how many entries they have, and the bytes of their keys and items."""
    out = np.zeros(3, np.int64)
    for page in range(first, end):
        base = page * PAGE_BYTES
        count, alike = _short(data, base), _short(data, base + 2)
        bounds = base + _HEAD_BYTES + alike
        at = _HEAD_BYTES + alike + count * _BOUNDS_BYTES
        out[0] += count
        for i in range(count):
            key_end = _short(data, bounds + i * _BOUNDS_BYTES)
            item_end = _short(data, bounds + i * _BOUNDS_BYTES + 2)
            out[1] += alike + key_end - at
            out[2] += item_end - key_end
            at = item_end
    return out


@kernel
def _unpack(data: Bytes, first: int, end: int) -> tuple[Bytes, Ints, Bytes, Ints]:
    sizes = _measure(data, first, end)
    keys, key_offsets = np.empty(sizes[1], np.uint8), np.zeros(sizes[0] + 1, np.int64)
    items, item_offsets = np.empty(sizes[2], np.uint8), np.zeros(sizes[0] + 1, np.int64)
    row = 0
    for page in range(first, end):
        base = page * PAGE_BYTES
        count, alike = _short(data, base), _short(data, base + 2)
        bounds = base + _HEAD_BYTES + alike
        at = bounds + count * _BOUNDS_BYTES
        for i in range(count):
            key_end = base + _short(data, bounds + i * _BOUNDS_BYTES)
            item_end = base + _short(data, bounds + i * _BOUNDS_BYTES + 2)
            to = key_offsets[row]
            copy_bytes(keys, to, data, base + _HEAD_BYTES, alike)
            copy_bytes(keys, to + alike, data, at, key_end - at)
            key_offsets[row + 1] = to + alike + key_end - at
            copy_bytes(items, item_offsets[row], data, key_end, item_end - key_end)
            item_offsets[row + 1] = item_offsets[row] + item_end - key_end
            at = item_end
            row += 1
    return keys, key_offsets, items, item_offsets


def unpacked(data: Bytes, first: int, end: int) -> Entries:
    """Return the entries of the pages from ``first`` up to ``end``."""
    keys, key_offsets, items, item_offsets = _unpack(data, first, end)
    return Entries(Ragged(keys, key_offsets), Ragged(items, item_offsets))


@kernel
def _pages_of(fences: Bytes, fence_offsets: Ints, keys: Bytes, key_offsets: Ints) -> Ints:
    out = np.empty(len(key_offsets) - 1, np.int64)
    for i in range(len(out)):
        low, high = 0, len(fence_offsets) - 1
        while low < high:
            middle = (low + high) // 2
            found = _order(
                fences, fence_offsets[middle], fence_offsets[middle + 1],
                keys, key_offsets[i], key_offsets[i + 1],
            )  # fmt: skip
            if found <= 0:
                low = middle + 1
            else:
                high = middle
        out[i] = low - 1
    return out


def pages_of(fences: Ragged, keys: Ragged) -> Ints:
    """Return in which page each key is, if it is in one; -1: it is before all of them; (n,)."""
    return _pages_of(fences.data, fences.offsets, keys.data, keys.offsets)


@kernel
def _found_in(data: Bytes, pages: Ints, keys: Bytes, key_offsets: Ints) -> tuple[Ints, Ints]:
    n = len(pages)
    starts, ends = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i in range(n):
        if pages[i] < 0:
            continue
        base = pages[i] * PAGE_BYTES
        count, alike = _short(data, base), _short(data, base + 2)
        begin, end = key_offsets[i], key_offsets[i + 1]
        head = base + _HEAD_BYTES
        if end - begin < alike or _order(data, head, head + alike, keys, begin, begin + alike):
            continue
        begin += alike
        bounds = head + alike
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            at = bounds + middle * _BOUNDS_BYTES
            key_end = base + _short(data, at)
            start = bounds + count * _BOUNDS_BYTES
            if middle:
                start = base + _short(data, at - 2)
            order = _order(data, start, key_end, keys, begin, end)
            if order == 0:
                starts[i], ends[i] = key_end, base + _short(data, at + 2)
                break
            if order < 0:
                low = middle + 1
            else:
                high = middle
    return starts, ends


def found_in(data: Bytes, pages: Ints, keys: Ragged) -> tuple[Ints, Ints]:
    """Return where the items of keys begin and end in the pages `pages_of` tells; 0, 0: absent.

    Reads one page a key.
    """
    return _found_in(data, pages, keys.data, keys.offsets)


@kernel
def _merge(
    old: Bytes, old_offsets: Ints, new: Bytes, new_offsets: Ints, removed: npt.NDArray[np.bool_]
) -> Ints:
    """Return which rows of both, the new ones behind the old ones, are in their union, in order."""
    n, m = len(old_offsets) - 1, len(new_offsets) - 1
    out = np.empty(n + m, np.int64)
    i, j, count = 0, 0, 0
    while i < n or j < m:
        order = 0
        if j == m:
            order = -1
        elif i == n:
            order = 1
        else:
            order = _order(
                old, old_offsets[i], old_offsets[i + 1], new, new_offsets[j], new_offsets[j + 1]
            )
        if order < 0:
            out[count] = i
            count += 1
            i += 1
            continue
        if order == 0:
            i += 1
        if not removed[j]:
            out[count] = n + j
            count += 1
        j += 1
    return out[:count].copy()


def merged(old: Entries, new: Entries) -> Entries:
    """Return the entries of both: of a key in both the new one, of one that is removed none."""
    rows = _merge(
        old.keys.data, old.keys.offsets, new.keys.data, new.keys.offsets, new.items.lengths() == 0
    )
    keys = Ragged.concat([old.keys, new.keys]).take(rows)
    return Entries(keys, Ragged.concat([old.items, new.items]).take(rows))


def fences_of(entries: Entries, starts: Ints) -> Ragged:
    """Return the first key of each page; ``starts``: as `packed` tells."""
    return entries.keys.take(starts)

"""Kernels that find and scan versions in the runs of a store; see `rows` and `runs`.

A view is one array of integers: how many runs there are; where the parts of each begin, and the
end; the largest seq of each run; and address, length and rows of every part. A kernel that takes
one array is called faster than one that takes seven.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamydb.frames.addresses import copy_at, start_of
from streamydb.frames.jit import brief, kernel, leaf
from streamydb.frames.table import Bytes
from streamydb.read_model.rows import (
    Ints,
    compare,
    compare_rows,
    deleted,
    expires_of,
    key_bytes_of,
    key_of,
    row_at,
    row_bytes,
    seq_of,
    ts_of,
    value_of,
)

NONE: Final = 0  # in place of a row: there is none
DAMAGED: Final = -1  # in place of a row: what is stored is no row
PART_WORDS: Final = 3  # integers of a part in a view
_EACH_PART: Final = -1

BEHIND_ALL: Final = -1  # a seq that comes after all versions of a key


@leaf
def part_place(view: Ints, part: int) -> int:
    return 2 + 2 * view[0] + PART_WORDS * part  # type: ignore[no-any-return]


@leaf
def row_in(view: Ints, part: int, i: int) -> int:
    at = part_place(view, part)
    row = row_at(view[at], view[at + 1], view[at + 2], i)
    return row if row != 0 else DAMAGED


@leaf
def _precedes(row: int, key: int, key_bytes: int, seq: int) -> bool:
    by_key = compare(key_of(row), key_bytes_of(row), key, key_bytes)
    return by_key < 0 or (by_key == 0 and seq_of(row) > seq)


@leaf
def _search(view: Ints, part: int, span: tuple[int, int], version: tuple[int, int, int]) -> int:
    """The first row of a part in a span that does not precede a version; or the end; `DAMAGED`.

    Instead of a part `_EACH_PART`: the first part whose first row does not.
    """
    low, high = span
    key, key_bytes, seq = version
    while low < high:
        middle = (low + high) // 2
        row = row_in(view, middle, 0) if part == _EACH_PART else row_in(view, part, middle)
        if row == DAMAGED:
            return DAMAGED
        if _precedes(row, key, key_bytes, seq):
            low = middle + 1
        else:
            high = middle
    return low


@leaf
def place_of(view: Ints, run: int, key: int, key_bytes: int, seq: int) -> tuple[int, int]:
    """The place in a run, part and row, of the version ``seq`` of a key or of what follows it.

    The part is the end of the run if nothing does; it is `DAMAGED` if a row is.
    """
    first = view[1 + run]
    part = _search(view, _EACH_PART, (first, view[2 + run]), (key, key_bytes, seq))
    if part == DAMAGED or part == first:
        return part, 0
    part -= 1  # the last that begins before it
    rows = view[part_place(view, part) + 2]
    i = _search(view, part, (1, rows), (key, key_bytes, seq))
    if i == DAMAGED:
        return DAMAGED, 0
    return (part, i) if i < rows else (part + 1, 0)


@leaf
def find_row(view: Ints, key: int, key_bytes: int, seq: int) -> int:
    """The newest version of a key up to ``seq``; `NONE` or `DAMAGED`."""
    best, best_seq = NONE, BEHIND_ALL
    runs = view[0]
    for k in range(runs):
        run = runs - 1 - k
        if view[2 + runs + run] <= best_seq:
            continue
        part, i = place_of(view, run, key, key_bytes, seq)
        if part == DAMAGED:
            return DAMAGED
        if part == view[2 + run]:
            continue
        row = row_in(view, part, i)
        if row == DAMAGED:
            return DAMAGED
        if compare(key_of(row), key_bytes_of(row), key, key_bytes) == 0 and seq_of(row) > best_seq:
            best, best_seq = row, seq_of(row)
    return best


@brief
def find(view: Ints, key: bytes, key_bytes: int, seq: int) -> tuple[int, int, int, int, int, int]:
    """The newest version of a key up to ``seq``.

    It is: the row (`NONE`, `DAMAGED`), its length, where in it the value begins, its seq, its
    timestamp, its end (0: none).
    ``key`` is longer than its ``key_bytes``: by `SPARE_BYTES`.
    """
    row = find_row(view, start_of(key), key_bytes, seq)
    if row <= NONE:
        return row, 0, 0, 0, 0, 0
    return row, row_bytes(row), value_of(row) - row, seq_of(row), ts_of(row), expires_of(row)


@brief
def earliest_ends(view: Ints, parts: Ints, seq: int) -> Ints:
    """For each part the earliest end (ms) of its versions that exist at ``seq``, and its row.

    An end `NONE`: none of them ends; `DAMAGED`.
    """
    out = np.zeros((len(parts), 2), np.int64)
    for k in range(len(parts)):
        first, at = NONE, 0
        for i in range(view[part_place(view, parts[k]) + 2]):
            row = row_in(view, parts[k], i)
            if row == DAMAGED:
                first = DAMAGED
                break
            end = expires_of(row)
            if end == 0 or (first != NONE and end >= first) or seq_of(row) > seq:
                continue
            current = find_row(view, key_of(row), key_bytes_of(row), seq)
            if current == DAMAGED:
                first = DAMAGED
                break
            if seq_of(current) == seq_of(row):
                first, at = end, i
        out[k, 0], out[k, 1] = first, at
    return out


@brief
def is_current(view: Ints, part: int, i: int, seq: int) -> bool:
    """Return True if a row of a part is the newest version of its key at ``seq``."""
    row = row_in(view, part, i)
    if row == DAMAGED:
        return False
    newest = find_row(view, key_of(row), key_bytes_of(row), seq)
    return newest > NONE and seq_of(newest) == seq_of(row)


@kernel
def find_each(view: Ints, rows: Ints) -> Ints:
    """For each row the stored one of its key and seq; `NONE` or `DAMAGED`."""
    out = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        row = rows[i]
        out[i] = find_row(view, key_of(row), key_bytes_of(row), seq_of(row))
        if out[i] > 0 and compare_rows(out[i], row) != 0:
            out[i] = NONE
    return out


@brief
def gathered(
    rows: Ints,
    keys: bool,  # noqa: FBT001 - numba's arguments
) -> tuple[Bytes, Ints, Ints]:
    """Keys, if wanted, and values of rows; of each where both end, its seq and timestamp; and ends.

    The ends (0: none) are of no length if no row has one.
    """
    numbers, ends = np.empty((len(rows), 4), np.int64), np.empty(0, np.int64)
    size = 0
    for row in rows:
        if row > 0:
            size += row_bytes(row)
    data = np.empty(size, np.uint8)
    base = start_of(data)
    at = 0
    for i in range(len(rows)):
        row = rows[i]
        if row > 0:
            if keys:
                copy_at(base + at, key_of(row), key_bytes_of(row))
                at += key_bytes_of(row)
            numbers[i, 0] = at
            value_bytes = row + row_bytes(row) - value_of(row)
            copy_at(base + at, value_of(row), value_bytes)
            at += value_bytes
            numbers[i, 2], numbers[i, 3] = seq_of(row), ts_of(row)
            if expires_of(row) != 0:
                if len(ends) == 0:
                    ends = np.zeros(len(rows), np.int64)
                ends[i] = expires_of(row)
        else:
            numbers[i, 0], numbers[i, 2], numbers[i, 3] = at, row, 0
        numbers[i, 1] = at
    return data[:at], numbers, ends


@brief
def found_many(view: Ints, keys: bytes, ends: Ints, seq: int) -> tuple[Bytes, Ints, Ints]:
    """Values of the keys that exist at ``seq``; see `gathered`. A seq `NONE`: it does not.

    ``keys``: one after the other, and `SPARE_BYTES`; ``ends``: where each ends.
    """
    rows = np.empty(len(ends), np.int64)
    base, start = start_of(keys), 0
    for i in range(len(ends)):
        rows[i] = find_row(view, base + start, ends[i] - start, seq)
        if rows[i] > 0 and deleted(rows[i]):
            rows[i] = NONE
        start = ends[i]
    return gathered(rows, False)

"""Kernels that sort, merge, thin out and write rows; see `rows`.

Between them rows are addresses, in an array. Who calls keeps the buffers that they point to.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames.addresses import copy_at, ordered_at, put_double, put_word, start_of
from streamydb.frames.jit import kernel, leaf
from streamydb.read_model.rows import (
    FOOT_BYTES,
    HEAD_BYTES,
    INDEX_BYTES,
    Ints,
    compare,
    compare_rows,
    deleted,
    key_bytes_of,
    key_of,
    row_bytes,
    same_key,
    seq_of,
)

Words = npt.NDArray[np.uint64]

WRITTEN = np.dtype(
    [("start", "<i8"), ("length", "<i8"), ("rows", "<i8"), ("extra", "<i8"), ("due", "<i8"),
     ("newest", "<i8")]
)  # fmt: skip
"""A part that was written: its place in the buffer, how many rows it has, how many of those become
superfluous some day, the seq at which all of them are, and its largest seq."""

_WORD_BYTES: Final = 8
_NONE: Final = -1


class _Keyed(NamedTuple):
    """Rows to sort, with eight bytes of each key behind what all keys begin with."""

    heads: Words
    rows: Ints


@leaf
def _common(rows: Ints) -> int:
    """Return how many bytes all keys begin with."""
    first, common = rows[0], key_bytes_of(rows[0])
    for row in rows:
        common = min(common, key_bytes_of(row))
        if compare(key_of(first), common, key_of(row), common) != 0:
            shared = 0
            while ordered_at(key_of(first) + shared) == ordered_at(key_of(row) + shared):
                shared += _WORD_BYTES
            differ = ordered_at(key_of(first) + shared) ^ ordered_at(key_of(row) + shared)
            while differ >> np.uint64(56) == np.uint64(0):
                shared += 1
                differ <<= np.uint64(8)
            common = shared
    return common


@leaf
def _head(row: int, common: int) -> np.uint64:
    """Eight bytes of a key behind the first ``common``, zeros where it ends."""
    length = key_bytes_of(row) - common
    if length <= 0:
        return np.uint64(0)
    word = ordered_at(key_of(row) + common)
    if length >= _WORD_BYTES:
        return word
    beyond = np.uint64(8 * (_WORD_BYTES - length))
    return word >> beyond << beyond


@leaf
def _before(one: _Keyed, i: int, j: int) -> bool:
    """Return True if the entry j sorts before the entry i, which came earlier."""
    if one.heads[i] != one.heads[j]:
        return one.heads[j] < one.heads[i]  # type: ignore[no-any-return]
    return compare_rows(one.rows[j], one.rows[i]) < 0


@leaf
def _merge_halves(source: _Keyed, out: _Keyed, start: int, width: int) -> None:
    n = len(source.rows)
    i, middle = start, min(start + width, n)
    j, end = middle, min(start + 2 * width, n)
    for at in range(start, end):
        if j >= end or (i < middle and not _before(source, i, j)):
            out.heads[at], out.rows[at] = source.heads[i], source.rows[i]
            i += 1
        else:
            out.heads[at], out.rows[at] = source.heads[j], source.rows[j]
            j += 1


@kernel
def sorted_rows(rows: Ints) -> Ints:
    """Rows by key, the newest version of a key first; equal ones stay in their order."""
    n = len(rows)
    if n < 2:
        return rows
    common = _common(rows)
    source = _Keyed(np.empty(n, np.uint64), rows.copy())
    for i in range(n):
        source.heads[i] = _head(rows[i], common)
    out = _Keyed(np.empty(n, np.uint64), np.empty(n, np.int64))
    width = 1
    while width < n:
        for start in range(0, n, 2 * width):
            _merge_halves(source, out, start, width)
        source, out = out, source
        width *= 2
    return source.rows


@kernel
def distinct(rows: Ints) -> tuple[Ints, int]:
    """Sorted rows without repetitions, and a row that differs from another of its name, or -1."""
    out = np.empty(len(rows), np.int64)
    n = 0
    for row in rows:
        if n > 0 and compare_rows(out[n - 1], row) == 0:
            size = row_bytes(row)
            if compare(out[n - 1], row_bytes(out[n - 1]), row, size) != 0:
                return out[:0], row
            continue
        out[n] = row
        n += 1
    return out[:n], _NONE


@kernel
def differing(some: Ints, others: Ints) -> int:
    """The first place at which two arrays have rows (or 0: none) that differ, or -1."""
    for i in range(len(some)):
        if some[i] == 0:
            return i
        one, other = row_bytes(some[i]), row_bytes(others[i])
        if compare(some[i], one, others[i], other) != 0:
            return i
    return _NONE


@kernel
def rows_of(parts: Ints, lengths: Ints, counts: Ints) -> Ints:
    """All rows of some parts, in their order; none if one of them is damaged."""
    out = np.empty(counts.sum(), np.int64)
    n = 0
    for k in range(len(parts)):
        row = parts[k]
        end = parts[k] + lengths[k] - FOOT_BYTES - INDEX_BYTES * counts[k]
        for _ in range(counts[k]):
            if row + HEAD_BYTES > end:
                return out[:0]
            out[n] = row
            n += 1
            row += row_bytes(row)
        if row != end:
            return out[:0]
    return out


@kernel
def merged(one: Ints, other: Ints) -> Ints:
    """Two sorted arrays of rows as one."""
    out = np.empty(len(one) + len(other), np.int64)
    i, j, n = 0, 0, 0
    while i < len(one) and j < len(other):
        if compare_rows(one[i], other[j]) <= 0:
            out[n] = one[i]
            i += 1
        else:
            out[n] = other[j]
            j += 1
        n += 1
    for k in range(i, len(one)):
        out[n] = one[k]
        n += 1
    for k in range(j, len(other)):
        out[n] = other[k]
        n += 1
    return out


@kernel
def kept(rows: Ints, horizon: int, bottom: bool) -> Ints:  # noqa: FBT001 - numba's arguments
    """Sorted rows without those that no snapshot at or after the horizon can show.

    Of each key, the versions after the horizon and the newest one before stay; this one goes, too,
    if it is a deletion and ``bottom`` says that no older version lies elsewhere.
    """
    out = np.empty(len(rows), np.int64)
    n, before, settled = 0, 0, False
    for row in rows:
        settled = settled and same_key(before, row)
        before = row
        if settled:
            continue
        settled = seq_of(row) <= horizon
        if settled and bottom and deleted(row):
            continue
        out[n] = row
        n += 1
    return out[:n]


@kernel
def newer(rows: Ints, seq: int) -> Ints:
    """Rows with a larger seq."""
    out = np.empty(len(rows), np.int64)
    n = 0
    for row in rows:
        if seq_of(row) > seq:
            out[n] = row
            n += 1
    return out[:n]


@leaf
def _close(out: int, starts: Ints, part: npt.NDArray[np.void], at: int) -> int:
    """Write a part's index and foot behind its rows, which end at ``at``; the end of it."""
    for i in range(part.rows):  # type: ignore[attr-defined]
        put_double(out + at, starts[i])
        at += INDEX_BYTES
    put_word(out + at, part.rows)  # type: ignore[attr-defined]
    at += FOOT_BYTES
    part.length = at - part.start  # type: ignore[attr-defined]
    return at


@kernel
def written(rows: Ints, part_bytes: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.void]]:
    """Sorted rows as parts of at most about so many bytes, all alike; and those parts."""
    size = 0
    for row in rows:
        size += row_bytes(row) + INDEX_BYTES + FOOT_BYTES
    part_bytes = size // (1 + size // part_bytes)
    buffer = np.empty(size, np.uint8)
    out = start_of(buffer)
    parts = np.zeros(len(rows), WRITTEN)
    starts = np.empty(len(rows), np.int64)
    at, k, before = 0, _NONE, 0
    for row in rows:
        length = row_bytes(row)
        if k == _NONE or at - parts[k].start + (parts[k].rows + 1) * INDEX_BYTES > part_bytes:
            if k != _NONE:
                at = _close(out, starts, parts[k], at)
            k += 1
            parts[k].start = at
        part = parts[k]
        copy_at(out + at, row, length)
        starts[part.rows] = at - part.start
        part.rows += 1
        at += length
        part.newest = max(part.newest, seq_of(row))
        if before != 0 and same_key(before, row):
            part.extra += 1
            part.due = max(part.due, seq_of(before))
        elif deleted(row):
            part.extra += 1
            part.due = max(part.due, seq_of(row))
        before = row
    if k != _NONE:
        at = _close(out, starts, parts[k], at)
    return buffer[:at], parts[: k + 1]

"""Merge blobs of writes in pieces, so that a shard larger than memory can merge.

A blob that is larger than a part is kept as parts in the order of the keys' hashes. Merging reads
the parts of several blobs side by side, as far as all of them are known, and never holds more than
a part or two of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.frames import program as p
from streamydb.frames.hashing import hash_ragged
from streamydb.frames.interning import intern
from streamydb.frames.table import ColumnTable, chunk_bounds
from streamydb.frames.value_rows import WrittenValues

_ROW_BYTES = 24
Hashes = npt.NDArray[np.uint64]

Rows = TypeVar("Rows", bound=ColumnTable)


def sizes_of(table: ColumnTable) -> npt.NDArray[np.int64]:
    """About how many bytes each row takes."""
    return table.text_bytes() + _ROW_BYTES


def slices(table: Rows) -> Iterator[Rows]:
    """The table in runs of rows of at most a part, at least one row each; shares the arrays."""
    sizes = sizes_of(table)
    if int(sizes.sum()) <= limits.BLOCK_BYTES_MAX:
        yield table
        return
    for start, end in chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, len(sizes)):
        yield table.part(start, end)


def sorted_by_hash(table: WrittenValues) -> WrittenValues:
    """The rows in the order of their keys' hashes."""
    return table.take(np.argsort(hash_ragged(table.key), kind="stable"))


def latest(
    tables: Sequence[WrittenValues], *, drop_absent: bool, ordered: bool = False
) -> WrittenValues:
    """The last write of every key, oldest table first; ``ordered``: by the keys' hashes."""
    every = WrittenValues.concat(tables)
    keys = every.key
    hashes = hash_ragged(keys)
    slot, first = intern(hashes, keys)
    last = np.zeros(len(first), np.int64)
    last[slot] = np.arange(len(keys))
    if drop_absent:
        last = last[every.tag[last] != p.ABSENT]
    if ordered:
        last = last[np.argsort(hashes[last], kind="stable")]
    return every.take(last)


class _Run:
    """The parts of one blob, read as far as they are needed."""

    def __init__(self, parts: Iterable[WrittenValues]) -> None:
        self._parts = iter(parts)
        self._rows: WrittenValues | None = None
        self._hashes: Hashes = np.empty(0, np.uint64)
        self.more = True
        self.read_on()

    def read_on(self) -> None:
        """Add the next part, if there is one."""
        part = next(self._parts, None)
        if part is None:
            self.more = False
            return
        self._rows = part if self._rows is None else WrittenValues.concat([self._rows, part])
        self._hashes = hash_ragged(self._rows.key)

    @property
    def known(self) -> int:
        """The last hash that was read."""
        return int(self._hashes[-1])

    def take(self, bound: int | None) -> WrittenValues | None:
        """Give away what lies below ``bound``; everything without one."""
        rows, n = self._rows, len(self._hashes)
        below = n
        if bound is not None:
            below = int(np.searchsorted(self._hashes, np.uint64(bound), "left"))
        if rows is None or not below:
            return None
        # a copy, so that the part itself is not kept for the few rows that stay
        self._rows = rows.take(np.arange(below, n)) if below < n else None
        self._hashes = self._hashes[below:].copy()
        return rows.part(0, below)


def merged(
    blobs: Sequence[Iterable[WrittenValues]], *, drop_absent: bool
) -> Iterator[WrittenValues]:
    """The last write of every key, in pieces in the order of the keys' hashes.

    Args:
        blobs: oldest first; of each its parts, none of them empty, all in that order.
        drop_absent: leave out keys whose last write is a delete.
    """
    runs = [_Run(parts) for parts in blobs]
    while True:
        waiting = [run for run in runs if run.more]
        bound = min((run.known for run in waiting), default=None)
        taken = [rows for run in runs if (rows := run.take(bound)) is not None]
        if taken:
            piece = latest(taken, drop_absent=drop_absent, ordered=True)
            if len(piece):
                yield piece
        if bound is None:
            return
        for run in waiting:
            if run.known == bound:
                run.read_on()


def parts_of(pieces: Iterable[Rows], bytes_max: int | None = None) -> Iterator[Rows]:
    """Pieces put together to parts of about ``bytes_max`` (None: BLOCK_BYTES_MAX) at most."""
    bound = limits.BLOCK_BYTES_MAX if bytes_max is None else bytes_max
    gathered: list[Rows] = []
    size = 0
    for piece in pieces:
        for rows in slices(piece):
            own = int(sizes_of(rows).sum())
            if gathered and size + own > bound:
                yield type(gathered[0]).concat(gathered)
                gathered, size = [], 0
            gathered.append(rows)
            size += own
    if gathered:
        yield type(gathered[0]).concat(gathered)

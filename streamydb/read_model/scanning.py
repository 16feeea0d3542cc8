"""Kernels that scan the versions in the runs of a store; see `lookup`.

A scan may meet any number of keys that do not exist at its seq. So it goes in steps of so many
keys: nobody else runs while a kernel does.
"""

from __future__ import annotations

import numpy as np

from streamydb.frames.addresses import start_of
from streamydb.frames.jit import brief, leaf
from streamydb.read_model.lookup import BEHIND_ALL, DAMAGED, NONE, part_place, place_of, row_in
from streamydb.read_model.rows import Ints, compare, deleted, key_bytes_of, key_of, same_key, seq_of


@leaf
def _set(view: Ints, heads: Ints, run: int, part: int, i: int) -> bool:
    """Put a run's head on a row; False if it is damaged."""
    heads[run, 0], heads[run, 1], heads[run, 2] = part, i, NONE
    if part != DAMAGED and part < view[2 + run]:
        heads[run, 2] = row_in(view, part, i)
    return part != DAMAGED and heads[run, 2] != DAMAGED


@leaf
def _next(view: Ints, heads: Ints, run: int) -> bool:
    """Move a run's head to its next row; False if that is damaged."""
    part, i = heads[run, 0], heads[run, 1] + 1
    if i == view[part_place(view, part) + 2]:
        part, i = part + 1, 0
    return _set(view, heads, run, part, i)


@leaf
def _seek(view: Ints, heads: Ints, run: int, row: int, seq: int) -> bool:
    """Move a run's head to a version of a row's key, or behind it; False if that is damaged."""
    part, i = place_of(view, run, key_of(row), key_bytes_of(row), seq)
    return _set(view, heads, run, part, i)


@leaf
def _pass(view: Ints, heads: Ints, run: int, key: int, seq: int) -> int:
    """Move a run's head behind the key of a row; its newest version up to ``seq``, if any."""
    if seq_of(heads[run, 2]) > seq and not _seek(view, heads, run, key, seq):
        return DAMAGED
    current = heads[run, 2]
    if current == NONE or not same_key(current, key):
        return NONE
    if not _next(view, heads, run):
        return DAMAGED
    row = heads[run, 2]
    older = row != NONE and same_key(row, key)
    if older and not _seek(view, heads, run, key, BEHIND_ALL):
        return DAMAGED
    return current  # type: ignore[no-any-return]


@leaf
def _first(heads: Ints) -> int:
    """The least key among the heads: a row, or `NONE`."""
    first = NONE
    for run in range(len(heads)):
        row = heads[run, 2]
        if row != NONE and (
            first == NONE
            or compare(key_of(row), key_bytes_of(row), key_of(first), key_bytes_of(first)) < 0
        ):
            first = row
    return first


@leaf
def _newest(view: Ints, heads: Ints, key: int, seq: int) -> int:
    """Move all heads behind a row's key; its newest version up to ``seq``, `NONE`, `DAMAGED`."""
    newest = NONE
    for run in range(len(heads)):
        row = heads[run, 2]
        if row != NONE and same_key(row, key):
            current = _pass(view, heads, run, key, seq)
            if current == DAMAGED:
                return DAMAGED
            if current != NONE and (newest == NONE or seq_of(current) > seq_of(newest)):
                newest = current
    return newest


@leaf
def begun(view: Ints, heads: Ints, first: int, first_bytes: int, seq: int) -> bool:
    """Put the head of each run on its first row that does not precede a key; False: damaged."""
    for run in range(len(heads)):
        part, i = place_of(view, run, first, first_bytes, seq)
        if not _set(view, heads, run, part, i):
            return False
    return True


@leaf
def filled(
    view: Ints, heads: Ints, stop: tuple[int, int], seq: int, out: Ints, step: tuple[int, int]
) -> tuple[int, bool]:
    """Fill ``out`` with the rows that exist; how many it has then, or `DAMAGED`; True if the step
    has ended before that was done.

    ``heads``: of the runs; they are moved on. ``stop``: address and length of the key to stop
    before; of no bytes: none. ``out``: rows. ``step``: how many it has already, and how many keys
    to pass at most.
    """
    n, keys = step
    stop_at, stop_bytes = stop
    while n < len(out):
        first = _first(heads)
        if first == NONE:
            break
        if stop_bytes > 0 and compare(key_of(first), key_bytes_of(first), stop_at, stop_bytes) >= 0:
            break
        if keys == 0:
            return n, True
        keys -= 1
        row = _newest(view, heads, first, seq)
        if row == DAMAGED:
            return DAMAGED, False
        if row != NONE and not deleted(row):
            out[n] = row
            n += 1
    return n, False


@brief
def heads_at(view: Ints, bounds: bytes, first_bytes: int, seq: int) -> tuple[Ints, bool]:
    """The heads of the runs at the beginning of a scan; False: damaged. ``bounds``: `advanced`."""
    heads = np.empty((view[0], 3), np.int64)
    return heads, begun(view, heads, start_of(bounds), first_bytes, seq)


@brief
def advanced(
    view: Ints,
    heads: Ints,
    bounds: bytes,
    lengths: tuple[int, int],
    out: Ints,
    step: tuple[int, int, int],
) -> tuple[int, bool]:
    """Go on with a scan; see `filled`.

    ``bounds``: the first key, the key to stop before (of no bytes: none), and `SPARE_BYTES`;
    ``lengths``: of both. ``step``: the seq; rows that there are already; keys to pass at most.
    """
    seq, n, keys = step
    stop = start_of(bounds) + lengths[0], lengths[1]
    return filled(view, heads, stop, seq, out, (n, keys))

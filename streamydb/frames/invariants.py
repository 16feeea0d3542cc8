"""Invariants at the seams between rooms: what a room hands on, and what it is handed, is checked.

Each seam is checked on both sides (the doctrine of TigerBeetle: assertions in pairs), because what
was right when it was made may be wrong when it arrives. A check goes once over arrays that are
there already, and is on in production. What it finds is a fault of streamy-db, and says nothing of
any transaction: the batch stops, is not committed, and no verdict is made of it (`STOPPING` in
`records.rulings`).

The kernels give the position of the first row that is wrong, or -1; those that look for several
things also give the number of the fact that is not true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation
from streamydb.frames.hashing import KEY_SEED, hash_ragged, hash_span
from streamydb.frames.interning import intern
from streamydb.frames.jit import kernel, leaf
from streamydb.frames.table import Ragged, Texts

Ints = npt.NDArray[Any]

HANDED_IN: Final = "is handed"
HANDED_ON: Final = "hands on"


class Seam(NamedTuple):
    """One side of a seam: a room, ``side`` (HANDED_IN or HANDED_ON), and what passes there."""

    room: str
    side: str
    what: str

    def require(self, holds: object, fact: str, **where: object) -> None:
        """Stop the batch unless ``fact`` holds.

        ``where``: numbers that help to find the place. Never a key or a value: they get into logs.
        Raises InvariantViolation: it does not hold.
        """
        if not holds:
            stop(self, fact, where)

    def require_none(self, wrong: tuple[int, int], facts: Sequence[str], **where: object) -> None:
        """Stop the batch if a kernel has ``wrong`` a row of which one of its ``facts`` is not true.
        Raises InvariantViolation: it has; -1 is none.
        """
        fact, row = wrong
        if fact >= 0:
            stop(self, facts[fact], {"row": row, **where})


def stop(seam: Seam, fact: str, where: dict[str, object]) -> None:
    """Say which invariant is broken; the only place where that is raised."""
    place = ", ".join(f"{name} {value}" for name, value in where.items())
    raise InvariantViolation(
        f"{seam.room} {seam.side} {seam.what} of which this is not true: {fact} ({place}). This is "
        "a fault of streamy-db; the batch was stopped before it was applied "
        "(docs/operations.md, 'A broken invariant')"
    )


@leaf
def not_after(times: Ints, partitions: Ints, offsets: Ints, i: int) -> bool:
    """For kernels: return whether record i is not after the one before it, in the total order."""
    if times[i] != times[i - 1]:
        return bool(times[i] < times[i - 1])
    if partitions[i] != partitions[i - 1]:
        return bool(partitions[i] < partitions[i - 1])
    return bool(offsets[i] <= offsets[i - 1])


@kernel
def disorder(times: Ints, partitions: Ints, offsets: Ints) -> int:
    """Return where a record is not after the one before it: by time, partition, offset."""
    for i in range(1, len(times)):
        if not_after(times, partitions, offsets, i):
            return i
    return -1


def repeats(keys: Ragged) -> int:
    """Return where a key came before."""
    slot, first = intern(hash_ragged(keys), keys)
    return -1 if len(first) == len(slot) else int(np.argmin(slot == np.arange(len(slot))))


@leaf
def _stray(keys: Texts, shards: np.uint64, shard: int) -> int:
    for i in range(len(keys.offsets) - 1):
        hash_ = hash_span(keys.data, keys.offsets[i], keys.offsets[i + 1], np.uint64(KEY_SEED))
        if hash_ % shards != np.uint64(shard):
            return i
    return -1


def stray(keys: Ragged, shards: int, shard: int) -> int:
    """Return where a key does not live on ``shard``."""
    return -1 if shards == 1 else _stray(keys.texts(), np.uint64(shards), shard)

"""Tables of the ids of transactions: as they are used, and as they come again."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.program import NOT_A_DUPLICATE, TOO_FAR, TOO_LATE
from streamydb.frames.table import Array, Bytes, ColumnTable, Ragged
from streamydb.limits import DEADLINE_AHEAD_MS_MAX

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


class IdUse(NamedTuple):
    """A use of an id: the hash of the record's payload, its place, and its deadline (0: none)."""

    payload: int
    seq: int
    ts_ms: int
    partition: int
    offset: int
    deadline: int = 0


class UsedIds(ColumnTable, frozen=True):
    """Ids as transactions have used them.

    ``id0``, ``id1``: the halves of the hash of the id. ``payload``: hash of the payload. ``seq``,
    ``ts_ms``, ``partition``, ``offset``: the place of the transaction. ``deadline`` (ms, 0: none);
    None: no id has one.
    """

    id0: Hashes
    id1: Hashes
    payload: Hashes
    seq: Ints
    ts_ms: Ints
    partition: Array
    offset: Ints
    deadline: Ints | None

    @classmethod
    def none(cls) -> Self:
        """A table without rows."""
        hashes, numbers = np.empty(0, np.uint64), np.empty(0, np.int64)
        return cls(hashes, hashes, hashes, numbers, numbers, numbers, numbers, numbers)

    def undated(self) -> UsedIds:
        """The table without deadlines."""
        return UsedIds(
            self.id0,
            self.id1,
            self.payload,
            self.seq,
            self.ts_ms,
            self.partition,
            self.offset,
            None,
        )

    def dated(self) -> DatedIds:
        """The table with deadlines: 0 where there are none."""
        deadline = self.deadline
        return DatedIds(
            self.id0,
            self.id1,
            self.payload,
            self.seq,
            self.ts_ms,
            self.partition,
            self.offset,
            np.zeros(len(self), np.int64) if deadline is None else deadline,
        )

    def use(self, row: int) -> IdUse:
        """Return the use in a row."""
        deadline = 0 if self.deadline is None else int(self.deadline[row])
        return IdUse(
            int(self.payload[row]),
            int(self.seq[row]),
            int(self.ts_ms[row]),
            int(self.partition[row]),
            int(self.offset[row]),
            deadline,
        )


class DatedIds(UsedIds, frozen=True):
    """Ids that all say their deadlines."""

    deadline: Ints


class HomeIds(ColumnTable, frozen=True):
    """The ids of released records in the shard where they live; as `UsedIds`.

    ``kind``: of the record (see `program`).
    """

    seq: Ints
    ts_ms: Ints
    partition: Array
    offset: Ints
    kind: Bytes
    id0: Hashes
    id1: Hashes
    payload: Hashes
    deadline: Ints

    def valid(self) -> npt.NDArray[np.bool_]:
        """Mark the records that are no rejected ones; shape (n,)."""
        return np.asarray(self.kind != p.REJECTED)

    def used(self, rows: Ints) -> DatedIds:
        """Return the ids of some rows as used."""
        return DatedIds(
            self.id0[rows],
            self.id1[rows],
            self.payload[rows],
            self.seq[rows],
            self.ts_ms[rows],
            self.partition[rows],
            self.offset[rows],
            self.deadline[rows],
        )

    def repeats(self, rows: Ints, originals: Ints, ids: Ragged) -> RepeatedIds:
        """Return some rows as repetitions of the ``originals`` of all rows; ``ids``: of all."""
        return RepeatedIds(
            self.seq[rows],
            self.ts_ms[rows],
            self.partition[rows],
            self.offset[rows],
            originals[rows],
            None,
            ids.take(rows),
        )

    def use(self, row: int) -> IdUse:
        """Return the use that a row would be."""
        return IdUse(
            int(self.payload[row]),
            int(self.seq[row]),
            int(self.ts_ms[row]),
            int(self.partition[row]),
            int(self.offset[row]),
            int(self.deadline[row]),
        )


class RepeatedIds(ColumnTable, frozen=True):
    """Transactions that repeat one of an earlier plan.

    ``seq``, ``ts_ms``, ``partition``, ``offset``: the place of each. ``original``: the seq that it
    repeats. ``turn``: in which its result is told; None: all are told at once. ``id``: its id.
    """

    seq: Ints
    ts_ms: Ints
    partition: Array
    offset: Ints
    original: Ints
    turn: Ints | None
    id: Ragged

    @classmethod
    def none(cls) -> Self:
        """A table without rows."""
        numbers = np.empty(0, np.int64)
        return cls(numbers, numbers, numbers, numbers, numbers, None, Ragged.empty())

    def in_turns(self, turn: Ints) -> Self:
        """The same with turns."""
        return type(self)(
            self.seq, self.ts_ms, self.partition, self.offset, self.original, turn, self.id
        )


def untimely(deadlines: Ints, times: Ints) -> npt.NDArray[np.uint8]:
    """Return TOO_LATE, TOO_FAR or NOT_A_DUPLICATE for records that repeat nothing; shape (n,).

    Args:
        deadlines: of the records (ms), 0 for none, shape (n,).
        times: their commit times (ms), shape (n,).
    """
    kinds = np.full(len(deadlines), NOT_A_DUPLICATE, np.uint8)
    if deadlines.any():
        dated = deadlines > 0
        kinds[dated & (times > deadlines)] = TOO_LATE
        kinds[dated & (deadlines > times + DEADLINE_AHEAD_MS_MAX)] = TOO_FAR
    return kinds

"""Tables of the ids of transactions: as they are used, and as they come again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.jit import leaf
from streamydb.frames.program import ENTRY, NOT_A_DUPLICATE, TOO_FAR, TOO_LATE
from streamydb.frames.record_rows import ReleasedRecords
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
        return self.cast(UsedIds, deadline=None)

    def dated(self) -> DatedIds:
        """The table with deadlines: 0 where there are none."""
        deadline = np.zeros(len(self), np.int64) if self.deadline is None else self.deadline
        return self.cast(DatedIds, deadline=deadline)

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

    @classmethod
    def of(cls, released: ReleasedRecords, at_home: Ints) -> Self:
        """Return the ids of the records ``at_home``: those that have their rest here."""
        home = released.home.rows
        names = cls.__struct_fields__[:-2]
        columns: list[Any] = [getattr(released, name)[at_home] for name in names]
        return cls(*[*columns, home.payload, home.deadline])

    def valid(self) -> npt.NDArray[np.bool_]:
        """Mark the records that are no rejected ones; shape (n,)."""
        return np.asarray(self.kind != p.REJECTED)

    def used(self, rows: Ints) -> DatedIds:
        """Return the ids of some rows as used."""
        return self.cast(DatedIds).take(rows)

    def repeats(self, rows: Ints, originals: Ints, ids: Ragged) -> RepeatedIds:
        """Return some rows as repetitions of the ``originals`` of all rows; ``ids``: of all."""
        return self.cast(RepeatedIds, original=originals, turn=None, id=ids).take(rows)

    def use(self, row: int) -> IdUse:
        """Return the use that a row would be."""
        return self.cast(DatedIds).use(row)


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
        return msgspec.structs.replace(self, turn=turn)


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


FIRST_CAPACITY: Final = 1024
"""Places of the smallest table."""


Fill = Callable[[npt.NDArray[Any]], None]


class IdTables(Protocol):
    """The store of the tables, by name.

    Row 0 is the header: complete from id1 to seq, id0 = count.
    """

    @property
    def shared(self) -> bool:
        """True if others may read these tables; False: they are of this step alone."""

    def get(self, name: str) -> npt.NDArray[Any] | None:
        """A table, writable in place; None when there is none."""

    def create(self, name: str, capacity: int, fill: Fill) -> npt.NDArray[Any]:
        """A new table of ``capacity`` + 1 rows, zeroed and then filled, in place of an old one.

        Whoever looks finds the old one or the new one, whole; whenever the process ends.
        """

    def names(self) -> list[str]:
        """The tables that there are."""

    def drop(self, name: str) -> None:
        """Remove a table, if it is there."""


@leaf
def _insert(table: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
    """Insert rows; each use of an id has an entry, so that none hides an earlier one."""
    capacity = len(table) - 1
    for i in range(len(rows)):
        at: Any = np.int64(rows[i].id0 & np.uint64(capacity - 1)) + 1
        while table[at].seq != 0 and not (
            table[at].seq == rows[i].seq
            and table[at].id0 == rows[i].id0
            and table[at].id1 == rows[i].id1
        ):
            at = at + 1 if at < capacity else 1
        if table[at].seq == 0:
            table[0].id0 += np.uint64(1)
        table[at].id0, table[at].id1, table[at].seq = rows[i].id0, rows[i].id1, rows[i].seq


@leaf
def probe(
    table: npt.NDArray[Any], id0: Array, id1: Array, out: npt.NDArray[np.int64], upto: int
) -> None:
    """Raise ``out`` to the last seq, at most ``upto``, at which a table knows each id."""
    capacity = len(table) - 1
    for i in range(len(id0)):
        if id0[i] == 0 and id1[i] == 0:
            continue
        at: Any = np.int64(id0[i] & np.uint64(capacity - 1)) + 1
        while table[at].seq != 0:
            same = table[at].id0 == id0[i] and table[at].id1 == id1[i]
            if same and out[i] < table[at].seq <= upto:
                out[i] = table[at].seq
            at = at + 1 if at < capacity else 1


def insert(
    tables: IdTables, name: str, table: npt.NDArray[Any], rows: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Insert rows, in a larger table when it would be more than half full; the table."""
    needed = int(table[0]["id0"]) + len(rows)
    if 2 * needed > len(table) - 1:
        old = table

        def fill(larger: npt.NDArray[Any]) -> None:
            _insert(larger, old[1:][old[1:]["seq"] != 0])
            larger[0]["seq"], larger[0]["id1"] = old[0]["seq"], old[0]["id1"]

        table = tables.create(name, max(capacity_of(needed), 2 * FIRST_CAPACITY), fill)
    _insert(table, rows)
    if len(rows):
        table[0]["seq"] = max(int(table[0]["seq"]), int(rows["seq"][-1]))
    return table


def make(tables: IdTables, name: str, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make a table of some rows, to which none will be added; the table."""

    def fill(table: npt.NDArray[Any]) -> None:
        _insert(table, rows)
        table[0]["seq"] = max(rows["seq"].tolist(), default=0)

    return tables.create(name, capacity_of(len(rows)), fill)


def capacity_of(ids: int) -> int:
    """Places of a table in which so many ids take at most half."""
    return max(FIRST_CAPACITY, 1 << (2 * ids - 1).bit_length()) if ids else FIRST_CAPACITY


def entries_of(rows: UsedIds) -> npt.NDArray[Any]:
    """Rows as a table keeps them."""
    entries = np.empty(len(rows), ENTRY)
    entries["id0"], entries["id1"], entries["seq"] = rows.id0, rows.id1, rows.seq
    return entries

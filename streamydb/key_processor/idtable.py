"""Open-addressing tables of transaction ids: where each was used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from streamydb.frames.jit import leaf
from streamydb.frames.program import ENTRY
from streamydb.frames.table import Array
from streamydb.key_processor.id_rows import UsedIds

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

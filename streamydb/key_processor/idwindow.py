"""At-most-once: which transaction ids were used in the last ``window`` transactions, and how they
ended.

The home shard of an id remembers it for a window counted in seq. The truth are blobs of (id hash,
payload hash, seq, source) appended per plan; ids are looked up in open-addressing tables, one per
generation of ``window`` seqs, which are a cache beside the values: entries beyond the state's seq
are ignored, missing ones are inserted again.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.columns import Array, Table, pack, unpack
from streamydb.errors import InvariantViolation
from streamydb.jit import kernel
from streamydb.key_processor.blobs import BlobStore

__all__ = ["ENTRY", "IdTables", "IdWindow", "IdWindowState", "Run"]

ENTRY = np.dtype([("id0", "<u8"), ("id1", "<u8"), ("seq", "<i8")])
_FIRST_CAPACITY = 1024
_RUN_ROWS_MAX = 65_536
_EMPTY: dict[str, Array] = {}


class IdTables(Protocol):
    """Where the tables of the generations live. Row 0 is the header: seq = complete up to, id0 =
    count.
    """

    def get(self, generation: int) -> npt.NDArray[Any] | None:
        """The table of a generation, writable in place; None when there is none."""

    def create(self, generation: int, capacity: int) -> npt.NDArray[Any]:
        """A new zeroed table of ``capacity`` + 1 rows, in place of an old one."""

    def drop_before(self, generation: int) -> None:
        """Remove the tables of older generations."""


class Run(msgspec.Struct, gc=False):
    """A blob of rows with seqs from ``first`` to ``last``."""

    name: str
    rows: int
    first: int
    last: int


class IdWindowState(msgspec.Struct):
    """The blobs: ids as they were used, and verdicts that are not plain commits."""

    window: int
    ids: list[Run] = []
    verdicts: list[Run] = []
    next_blob: int = 0


@kernel
def _insert(table: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
    capacity = len(table) - 1
    for i in range(len(rows)):
        at: Any = np.int64(rows[i].id0 & np.uint64(capacity - 1)) + 1
        while table[at].seq != 0 and not (
            table[at].id0 == rows[i].id0 and table[at].id1 == rows[i].id1
        ):
            at = at + 1 if at < capacity else 1
        if table[at].seq == 0:
            table[0].id0 += np.uint64(1)
        table[at].id0, table[at].id1, table[at].seq = rows[i].id0, rows[i].id1, rows[i].seq


@kernel
def _probe(
    table: npt.NDArray[Any], id0: Array, id1: Array, out: npt.NDArray[np.int64], upto: int
) -> None:
    capacity = len(table) - 1
    for i in range(len(id0)):
        if id0[i] == 0 and id1[i] == 0:
            continue
        at: Any = np.int64(id0[i] & np.uint64(capacity - 1)) + 1
        while table[at].seq != 0:
            if table[at].id0 == id0[i] and table[at].id1 == id1[i]:
                if table[at].seq <= upto and table[at].seq > out[i]:
                    out[i] = table[at].seq
                break
            at = at + 1 if at < capacity else 1


class IdWindow:
    """The window of one shard within one step."""

    def __init__(self, state: IdWindowState, blobs: BlobStore, tables: IdTables) -> None:
        """Continue from ``state``."""
        self.state = state
        self._blobs = blobs
        self._tables = tables
        self._loaded: dict[str, Table] = {}

    def last_use(self, id0: Array, id1: Array, upto: int) -> npt.NDArray[np.int64]:
        """The seq at which each id was last used, at most ``upto``, 0 when not in the window; (n,).
        """
        out = np.zeros(len(id0), np.int64)
        generation = upto // self.state.window
        for g in (generation - 1, generation):
            if g >= 0 and upto > 0:
                _probe(self._table(g, upto), id0, id1, out, upto)
        return out

    def remember(self, used: Table, first: int, last: int) -> None:
        """Add the ids that transactions from ``first`` on use, in seq order.

        Columns: id0, id1, payload, seq, ts, part, off. What has left the window of ``last`` is
        dropped only afterwards, and tables only two generations later: a table must never look
        complete while it lacks what the state of a repeated batch still remembers.
        """
        if len(used):
            generations = used.cols["seq"] // self.state.window
            for g in np.unique(generations).tolist():
                table = self._table(g, first - 1)
                self._add(g, table, _entries(used.take(np.flatnonzero(generations == g))))
            self._append(self.state.ids, "ids", used)
        self._expire(last)
        self._tables.drop_before((first - 1) // self.state.window - 2)

    def conclude(self, verdicts: Table) -> None:
        """Add finished results (column seq, text result) of transactions that are not plain
        commits.
        """
        if len(verdicts):
            order = np.argsort(verdicts.cols["seq"], kind="stable")
            self._append(self.state.verdicts, "verdicts", verdicts.take(order))

    def use(self, seq: int) -> dict[str, int]:
        """What was noted when the id was used at ``seq``: payload, ts, part, off."""
        found = self._find(self.state.ids, seq)
        if found is None:
            raise InvariantViolation(f"transaction {seq} is in an id table but not in the state")
        table, row = found
        return {name: int(col[row]) for name, col in table.cols.items()}

    def verdict(self, seq: int) -> bytes | None:
        """The finished result at ``seq``; None for a plain commit."""
        found = self._find(self.state.verdicts, seq)
        return None if found is None else found[0].texts["result"][found[1]]

    def _find(self, runs: list[Run], seq: int) -> tuple[Table, int] | None:
        for run in runs:
            if run.first <= seq <= run.last:
                table = self._load(run.name)
                row = int(np.searchsorted(table.cols["seq"], seq))
                if row < len(table) and table.cols["seq"][row] == seq:
                    return table, row
        return None

    def _load(self, name: str) -> Table:
        if name not in self._loaded:
            data = self._blobs.get(name)
            if data is None:
                raise InvariantViolation(f"the blob {name} is missing from the state")
            self._loaded[name] = Table.unflatten(unpack(data)[1])
        return self._loaded[name]

    def _table(self, generation: int, upto: int) -> npt.NDArray[Any]:
        """The table of a generation, complete for all ids used up to ``upto``."""
        table = self._tables.get(generation)
        if table is None:
            table = self._tables.create(generation, _FIRST_CAPACITY)
        low = generation * self.state.window
        high = min(low + self.state.window - 1, upto)
        complete = int(table[0]["seq"])
        if complete >= high:
            return table
        for run in self.state.ids:
            if run.last > max(complete, low - 1) and run.first <= high:
                rows = self._load(run.name)
                seqs = rows.cols["seq"]
                wanted = np.flatnonzero((seqs > complete) & (seqs >= low) & (seqs <= high))
                table = self._add(generation, table, _entries(rows.take(wanted)))
        table[0]["seq"] = max(complete, high)
        return table

    def _add(
        self, generation: int, table: npt.NDArray[Any], rows: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """Insert rows, in a larger table when it would be more than half full."""
        needed = 2 * (int(table[0]["id0"]) + len(rows))
        if needed > len(table) - 1:
            capacity = 1 << max(needed - 1, _FIRST_CAPACITY).bit_length()
            old = table.copy()
            table = self._tables.create(generation, capacity)
            _insert(table, old[1:][old[1:]["seq"] != 0])
            table[0]["seq"] = old[0]["seq"]
        _insert(table, rows)
        if len(rows):
            table[0]["seq"] = max(int(table[0]["seq"]), int(rows["seq"][-1]))
        return table

    def _append(self, runs: list[Run], kind: str, rows: Table) -> None:
        """Append a blob, merged with its predecessors while they are small; rows in seq order.

        Verdicts of single transactions come in any order, so their runs may overlap.
        """
        merged = [rows]
        while runs and runs[-1].rows < 2 * sum(map(len, merged)):
            if runs[-1].rows + sum(map(len, merged)) > _RUN_ROWS_MAX:
                break
            last = runs.pop()
            merged.insert(0, self._load(last.name))
            self._blobs.delete(last.name)
        table = Table.concat(merged)
        if np.any(np.diff(table.cols["seq"]) < 0):
            table = table.take(np.argsort(table.cols["seq"], kind="stable"))
        name = f"{kind}/{self.state.next_blob}"
        self.state.next_blob += 1
        self._blobs.put(name, pack(table.flatten()))
        self._loaded[name] = table
        seqs = table.cols["seq"]
        runs.append(Run(name, len(table), int(seqs[0]), int(seqs[-1])))

    def _expire(self, seq: int) -> None:
        oldest = seq - self.state.window
        for runs in (self.state.ids, self.state.verdicts):
            while runs and runs[0].last <= oldest:
                self._blobs.delete(runs.pop(0).name)


def _entries(rows: Table) -> npt.NDArray[Any]:
    entries = np.empty(len(rows), ENTRY)
    for name in ("id0", "id1", "seq"):
        entries[name] = rows.cols[name]
    return entries

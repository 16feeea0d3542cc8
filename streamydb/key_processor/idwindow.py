"""At-most-once: remember the ids of recent transactions, and how the transactions ended.

The home shard of an id remembers it for a window counted in seq and, if its transaction had a
deadline, until commit time has passed that. The truth are blobs of (id hash, payload hash, seq,
source) appended per plan; ids are looked up in open-addressing tables, which are a cache beside the
values: entries beyond the state's seq are ignored, missing ones are inserted again.

Ids without a deadline lie in one table per generation of ``window`` seqs. Ids with one lie in
*spans*: all whose deadlines are in the same ``span_ms`` of commit time have a table and blobs of
their own, which go as a whole. So a few distant deadlines keep no others alive. Once the deadlines
of a span have passed, only the window counts, which may be days if few transactions come. So small
spans are *joined* then: an id is looked up in as many tables as there are spans ahead, and some 40
more, however many transactions a second there are.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import BlobStore
from streamydb.frames.table import Array, chunk_bounds
from streamydb.frames.value_rows import Verdicts
from streamydb.key_processor.id_rows import (
    IdTables,
    IdUse,
    UsedIds,
    capacity_of,
    entries_of,
    insert,
    make,
    probe,
)
from streamydb.key_processor.memory import put_table, table_of

_Rows = TypeVar("_Rows", UsedIds, Verdicts)

SPAN_MS = 20_000
"""Commit time whose deadlines share a table: longer means fewer tables, and ids kept longer."""

_RUN_ROWS_MAX = 65_536
_PARTS_OF_WINDOW = 16
"""Spans that have passed are joined up to this part of the window, if that is more than a run."""

_HELD_BYTES_MAX = 67_108_864
"""Bytes of blobs that a step holds at a time, about."""


class IdRun(msgspec.Struct, gc=False):
    """A blob of rows with seqs from ``first`` to ``last``; ``bytes``: 0 in earlier states."""

    name: str
    rows: int
    first: int
    last: int
    bytes: int = 0


class DeadlineSpan(msgspec.Struct):
    """The blobs of the ids whose deadlines are in one span."""

    ids: list[IdRun] = []
    verdicts: list[IdRun] = []


class IdWindowState(msgspec.Struct):
    """The blobs: ids as they were used, and verdicts that are not plain commits.

    ``spans``: those of ids with deadlines, by deadline divided by ``span_ms``; joined ones have
    negative numbers, each one once.
    """

    window: int
    ids: list[IdRun] = []
    verdicts: list[IdRun] = []
    next_blob: int = 0
    spans: dict[int, DeadlineSpan] = {}
    span_ms: int = msgspec.field(default_factory=lambda: SPAN_MS)


class IdWindow:
    """The window of one shard within one step."""

    def __init__(self, state: IdWindowState, blobs: BlobStore, tables: IdTables) -> None:
        self.state = state
        self._blobs = blobs
        self._tables = tables
        self._loaded: dict[str, UsedIds | Verdicts] = {}
        self._held = 0

    def last_use(self, id0: Array, id1: Array, upto: int) -> npt.NDArray[np.int64]:
        """The seq at which each id was last used, at most ``upto``, 0 when it is not known; (n,).

        It may be one that is remembered no more: `repeated` decides.
        """
        out = np.zeros(len(id0), np.int64)
        if upto <= 0:
            return out
        generation = upto // self.state.window
        for g in (generation - 1, generation):
            if g >= 0:
                probe(self._generation(g, upto), id0, id1, out, upto)
        for number in self.state.spans:
            probe(self._span(number, upto), id0, id1, out, upto)
        return out

    def shared_tables(self, upto: int) -> list[str] | None:
        """Return the names of tables that have all ids remembered up to ``upto``, for who reads
        them beside this shard; None if the tables here are not for others.
        """
        if not self._tables.shared:
            return None
        nobody = np.empty(0, np.uint64)
        self.last_use(nobody, nobody, upto)  # makes and completes them
        generation = upto // self.state.window
        generations = [f"g{g}" for g in (generation - 1, generation) if g >= 0]
        return [*generations, *(f"d{number}" for number in self.state.spans)]

    def suspects(self, last: npt.NDArray[np.int64], seqs: npt.NDArray[np.int64]) -> Array:
        """Mark the records at ``seqs`` that may repeat the uses found by `last_use`; shape (n,)."""
        if self.state.spans:
            return last > 0
        return last > np.maximum(seqs - self.state.window, 0)

    def remembers(self, used: tuple[int, int], seq: int, ts: int) -> bool:
        """Return True if a use at (seq, deadline; 0: none) is remembered by a record at seq and
        ts.
        """
        return used[0] > max(seq - self.state.window, 0) or 0 < used[1] >= ts

    def repeated(self, original: int, seq: int, ts: int) -> IdUse | None:
        """Return the use at ``original`` if a record at ``seq`` and ``ts`` repeats it.
        Raises InvariantViolation: it is to be remembered, and is not.
        """
        if original <= 0:
            return None
        if not self.remembers((original, 0), seq, ts):
            spans = [span.ids for span in self.state.spans.values()]
            match = self._find(spans, original, UsedIds)
            if match is None or match[0].use(match[1]).deadline < ts:
                return None
        return self.use(original)

    def remember(self, used: UsedIds, first: int, last: int, ts: int = 0) -> None:
        """Add the ids used by the transactions from ``first`` on, in seq order.

        What nobody after (``last``, ``ts``) asks for is dropped only afterwards, and tables only
        when this step has begun without their blobs: a table must never look complete while it
        lacks what the state of a repeated batch still remembers.
        """
        spans = set(self.state.spans)
        if len(used):
            self._remember(used, first)
        self._expire(last, ts)
        self._join(ts)
        self._drop_tables((first - 1) // self.state.window - 2, spans)

    def _remember(self, used: UsedIds, first: int) -> None:
        deadlines = used.deadline
        if deadlines is not None and not deadlines.any():
            used = used.undated()
        elif deadlines is not None:
            numbers = np.where(deadlines > 0, deadlines // self.state.span_ms, -1)
            plain = used.undated()
            for number in np.unique(numbers[numbers >= 0]).tolist():
                rows = used.take(np.flatnonzero(numbers == number))
                table = self._span(number, first - 1)
                insert(self._tables, f"d{number}", table, entries_of(rows))
                span = self.state.spans.setdefault(number, DeadlineSpan())
                self._append(span.ids, "ids", rows)
            used = plain.take(np.flatnonzero(numbers < 0)) if len(numbers) else plain
        if not len(used):
            return
        generations = used.seq // self.state.window
        in_one = generations[0] == generations[-1]
        for g in generations[:1].tolist() if in_one else np.unique(generations).tolist():
            table = self._generation(g, first - 1)
            rows = used if in_one else used.take(np.flatnonzero(generations == g))
            insert(self._tables, f"g{g}", table, entries_of(rows))
        self._append(self.state.ids, "ids", used)

    def conclude(self, verdicts: Verdicts) -> None:
        """Add the results of transactions that have finished, and are no plain commits."""
        if not len(verdicts):
            return
        rest = verdicts.take(np.argsort(verdicts.seq, kind="stable"))
        for span in self.state.spans.values():
            own = self._of_span(span, rest.seq)
            if own.any():
                self._append_verdicts(span.verdicts, rest.take(np.flatnonzero(own)))
                rest = rest.take(np.flatnonzero(~own))
        self._append_verdicts(self.state.verdicts, rest)

    def _append_verdicts(self, runs: list[IdRun], rows: Verdicts) -> None:
        sizes = rows.result.lengths()
        for start, end in chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, _RUN_ROWS_MAX):
            self._append(runs, "verdicts", rows.part(start, end))

    def _of_span(self, span: DeadlineSpan, seqs: Array) -> npt.NDArray[np.bool_]:
        """Mark which of some seqs, in order, belong to ids in a span; shape (n,)."""
        own = np.zeros(len(seqs), np.bool_)
        for run in span.ids:
            if len(seqs) and run.last >= seqs[0] and run.first <= seqs[-1]:
                own |= np.isin(seqs, self._load(run.name, UsedIds).seq)
        return own

    def use(self, seq: int) -> IdUse:
        """Return the use of the id at ``seq``."""
        runs = [self.state.ids, *(span.ids for span in self.state.spans.values())]
        match = self._find(runs, seq, UsedIds)
        if match is None:
            raise InvariantViolation(f"transaction {seq} is in an id table but not in the state")
        table, row = match
        return table.use(row)

    def verdict(self, seq: int) -> bytes | None:
        """The finished result at ``seq``; None for a plain commit."""
        runs = [self.state.verdicts, *(span.verdicts for span in self.state.spans.values())]
        match = self._find(runs, seq, Verdicts)
        return None if match is None else match[0].result[match[1]]

    def _find(
        self, lists: list[list[IdRun]], seq: int, kind: type[_Rows]
    ) -> tuple[_Rows, int] | None:
        for run in (run for runs in lists for run in runs):
            if run.first <= seq <= run.last:
                table = self._load(run.name, kind)
                row = int(np.searchsorted(table.seq, seq))
                if row < len(table) and table.seq[row] == seq:
                    return table, row
        return None

    def _load(self, name: str, kind: type[_Rows]) -> _Rows:
        known = self._loaded.get(name)
        if isinstance(known, kind):
            return known
        table, size = table_of(self._blobs, name, kind)
        self._keep(name, table, size)
        return table

    def _keep(self, name: str, table: UsedIds | Verdicts, size: int) -> None:
        """Keep a table in memory, and others only while all are not too much."""
        self._held += size
        if self._held > _HELD_BYTES_MAX:
            self._loaded.clear()
            self._held = size
        self._loaded[name] = table

    def _generation(self, generation: int, upto: int) -> npt.NDArray[Any]:
        """The table of a generation, complete for all ids without deadlines up to ``upto``."""
        low = generation * self.state.window
        begin = max(low, upto - self.state.window + 1)
        high = min(low + self.state.window - 1, upto)
        return self._table(f"g{generation}", self.state.ids, (low, begin), high)

    def _span(self, number: int, upto: int) -> npt.NDArray[Any]:
        """The table of a span, complete for all its ids up to ``upto``."""
        spans, name = self.state.spans, f"d{number}"
        runs = spans[number].ids if number in spans else []
        table = self._tables.get(name)
        if number < 0:
            if table is None:
                rows = [entries_of(self._load(run.name, UsedIds)) for run in runs]
                table = make(self._tables, name, np.concatenate(rows))
            return table
        if table is None:  # about as large as the others, or it grows
            most = max((_rows(spans[n].ids) for n in spans if n >= 0), default=0)
            self._tables.create(name, capacity_of(most), lambda _: None)
        return self._table(name, runs, (0, 0), min(runs[-1].last if runs else 0, upto))

    def _table(
        self, name: str, runs: list[IdRun], lows: tuple[int, int], high: int
    ) -> npt.NDArray[Any]:
        """Return a table of the uses in ``runs`` with seqs in [low, high], complete from ``begin``
        on.

        One that was made when less was remembered is made anew: an older checkpoint was put back.
        ``lows``: low and begin.
        """
        table = self._tables.get(name)
        low, begin = lows
        if table is None or int(table[0]["id1"]) > begin:
            table = self._tables.create(name, capacity_of(0), lambda new: _begin(new, begin))
        complete = int(table[0]["seq"])
        if complete >= high:
            return table
        for run in runs:
            if run.last > max(complete, low - 1) and run.first <= high:
                rows = self._load(run.name, UsedIds)
                seqs = rows.seq
                wanted = np.flatnonzero((seqs > complete) & (seqs >= low) & (seqs <= high))
                table = insert(self._tables, name, table, entries_of(rows.take(wanted)))
        table[0]["seq"] = max(complete, high)
        return table

    def _append(self, runs: list[IdRun], kind: str, rows: _Rows) -> None:
        """Append a blob, merged with its predecessors while they are small; rows in seq order.

        Verdicts of single transactions come in any order, so their runs may overlap.
        """
        merged, size = [rows], _bytes_of(rows)
        while runs and runs[-1].rows < 2 * sum(map(len, merged)):
            if runs[-1].rows + sum(map(len, merged)) > _RUN_ROWS_MAX:
                break
            size += runs[-1].bytes
            if size > limits.BLOCK_BYTES_MAX:
                break
            last = runs.pop()
            merged.insert(0, self._load(last.name, type(rows)))
            self._blobs.delete(last.name)
        table = type(rows).concat(merged)
        if (table.seq[1:] < table.seq[:-1]).any():
            table = table.take(np.argsort(table.seq, kind="stable"))
        name = f"{kind}/{self.state.next_blob}"
        self.state.next_blob += 1
        size = put_table(self._blobs, name, table)
        self._keep(name, table, size)
        seqs = table.seq
        runs.append(IdRun(name, len(table), int(seqs[0]), int(seqs[-1]), size))

    def _expire(self, seq: int, ts: int) -> None:
        """Drop the blobs that no record after (seq, ts) asks for."""
        oldest = seq - self.state.window
        for runs in (self.state.ids, self.state.verdicts):
            self._cut(runs, oldest)
        for number in self._passed(ts):
            span = self.state.spans[number]
            if max(run.last for run in span.ids) <= oldest:
                for run in (*span.ids, *span.verdicts):
                    self._blobs.delete(run.name)
                del self.state.spans[number]

    def _join(self, ts: int) -> None:
        """Put small spans that have passed together; each size is about twice the next.

        A joined span is never changed, and its number never used again, so its table is made once.
        """
        most = max(_RUN_ROWS_MAX, self.state.window // _PARTS_OF_WINDOW)
        spans = self.state.spans
        for number in sorted(n for n in self._passed(ts) if n >= 0):
            rows = _rows(spans[number].ids)
            if rows > most:
                continue
            parts = [spans.pop(number)]
            for other in sorted(n for n in spans if n < 0):  # the newest first
                size = _rows(spans[other].ids)
                if size > 2 * rows or size + rows > most:
                    break
                rows += size
                parts.insert(0, spans.pop(other))
            self.state.next_blob += 1
            spans[-self.state.next_blob] = self._joined(parts)

    def _joined(self, parts: list[DeadlineSpan]) -> DeadlineSpan:
        """One span of the blobs of several, small blobs merged."""
        span = parts[0]
        for part in parts[1:]:
            self._adopt(span.ids, "ids", part.ids, UsedIds)
            self._adopt(span.verdicts, "verdicts", part.verdicts, Verdicts)
        return span

    def _adopt(self, runs: list[IdRun], kind: str, others: list[IdRun], table: type[_Rows]) -> None:
        """Add blobs to others; what is small is merged."""
        for other in others:
            if 2 * other.rows > _RUN_ROWS_MAX or 2 * other.bytes > limits.BLOCK_BYTES_MAX:
                runs.append(other)
            else:
                rows = self._load(other.name, table)
                self._blobs.delete(other.name)
                self._append(runs, kind, rows)

    def _passed(self, ts: int) -> list[int]:
        return [number for number in self.state.spans if (number + 1) * self.state.span_ms <= ts]

    def _cut(self, runs: list[IdRun], oldest: int) -> None:
        while runs and runs[0].last <= oldest:
            self._blobs.delete(runs.pop(0).name)

    def _drop_tables(self, generation: int, spans: set[int]) -> None:
        """Remove tables of generations before one, and of spans that are there no more."""
        kept = {f"d{number}" for number in (*spans, *self.state.spans)}
        for name in self._tables.names():
            if name not in kept and not (name[0] == "g" and int(name[1:]) >= generation):
                self._tables.drop(name)


def _rows(runs: list[IdRun]) -> int:
    return sum(run.rows for run in runs)


def _begin(table: npt.NDArray[Any], first: int) -> None:
    """Have a new table be complete from a seq on."""
    table[0]["id1"] = first


def _bytes_of(rows: UsedIds | Verdicts) -> int:
    """Return how many bytes the texts of some rows have."""
    return len(rows.result.data) if isinstance(rows, Verdicts) else 0

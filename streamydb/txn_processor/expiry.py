"""Expiry while a partition of a plan is executed: what has ended is absent, and that is told.

Keys that the plan may write are this partition's alone, so it knows whether the end of one was
moved before it came. A removal is a write of its own, at a *place* that is no transaction of this
partition: places are the transactions and the removals, in order. If the transaction at whose place
a key is to be removed writes it itself, that write tells both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamydb.frames import program as p
from streamydb.frames.plans import Timeline
from streamydb.frames.table import Ragged, starts_of
from streamydb.frames.value_rows import PlaceRows
from streamydb.records.expiry import EXPIRY_ID
from streamydb.txn_processor.kernel import BY_KERNEL, BY_PYTHON, WRITES
from streamydb.txn_processor.outcome import Places
from streamydb.txn_processor.ranges import is_of_range
from streamydb.txn_processor.run import Run

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Ending:
    """The keys of a run that end, and those that have.

    The kernel knows nothing of ends: transactions that touch such a key are executed in Python, and
    so are those that name a range where one may lie. ``own``: the slots that this partition may
    write; ``ends``: that have, or had, an end. ``sent``: the transactions that are Python's for
    these reasons. ``rows``: of the timeline, of each removal.
    """

    run: Run
    timeline: Timeline
    own: npt.NDArray[np.bool_]
    ends: npt.NDArray[np.bool_]
    sent: npt.NDArray[np.bool_]
    rows: list[int] = field(default_factory=list)
    _by_slot: tuple[Ints, list[int]] | None = None

    @classmethod
    def of(cls, run: Run, *, in_ranges: bool) -> Ending | None:
        """The keys of a run that begins; None if none can end.

        ``in_ranges``: a range that a compiled check names has keys that end in the plan.
        """
        if run.timeline is None:
            return None
        own, ends = np.zeros((2, len(run.keys)), np.bool_)
        own[run.written] = True
        ending = cls(run, run.timeline, own, ends, np.zeros(len(run.txns), np.bool_))
        for slot in np.flatnonzero(run.values.slots["tag"] == p.EXPIRING).tolist():
            ending.send(slot)
        if in_ranges:
            ending.send_ranges()
        return ending

    def send(self, slot: int) -> None:
        """Send the transactions that touch a key to Python, which has an end from now on, and
        those that name ranges, where it may lie.
        """
        if self.ends[slot]:
            return
        if not self.ends.any():
            self.send_ranges()
        self.ends[slot] = True
        program = self.run.program
        if self._by_slot is None:
            owner = np.repeat(np.arange(len(program.seq)), np.diff(program.key_starts))
            order = np.argsort(program.key_slot, kind="stable")
            counts = np.bincount(program.key_slot, minlength=len(self.ends))
            self._by_slot = owner[order], starts_of(counts).tolist()
        touching, starts = self._by_slot
        for i in touching[starts[slot] : starts[slot + 1]].tolist():
            self.sent[i] = True
            if program.route[i] == BY_KERNEL:
                program.route[i] = BY_PYTHON

    def send_ranges(self) -> None:
        """Send the transactions that name ranges to Python: the kernel counts what has ended."""
        program = self.run.program
        named = np.flatnonzero(is_of_range(program.steps["op"]))
        rows = np.searchsorted(program.step_starts, named, "right") - 1
        self.sent[rows] = True
        program.route[rows[program.route[rows] == BY_KERNEL]] = BY_PYTHON

    def concerns(self, i: int) -> bool:
        """Return True if a transaction touches a key that has, or had, an end, or names a range
        where one may lie: it stays with Python, whatever else sent it there.
        """
        return bool(self.sent[i])

    def before(self, i: int) -> None:
        """Remove what ended before transaction ``i``, at an earlier place, of its keys."""
        seq = int(self.run.program.seq[i])
        for slot, row in self._over(self.run.slots_of(i), int(self.run.txns.ts_ms[i])):
            if self.timeline.seq[row] < seq:
                self._remove(slot, row)

    def after(self, i: int) -> None:
        """Remove what ended at the place of transaction ``i`` and was not written by it; see to
        what it has written.
        """
        own = self.run.slots_of(i)
        for slot, row in self._over(own, int(self.run.txns.ts_ms[i])):
            self._remove(slot, row)
        slots = self.run.values.slots
        for slot in own.tolist():
            if not self.ends[slot] and slots[slot]["tag"] == p.EXPIRING:
                self.send(slot)

    def places(self) -> Places:
        """Remove all that has ended by the end of the plan; return the places of the writes, whose
        numbers are changed to them.
        """
        for slot, row in self._over(np.flatnonzero(self.own), int(self.timeline.ts[-1])):
            self._remove(slot, row)
        run, n = self.run, len(self.run.txns)
        txns = run.txns.places()
        if not self.rows:
            return Places(txns)
        rows, times = np.array(self.rows, np.int64), self.timeline
        ids = Ragged.of([EXPIRY_ID.encode()] * len(rows))
        removed = PlaceRows(
            times.seq[rows], times.ts[rows], times.part[rows].astype(np.int32), times.off[rows], ids
        )
        both = PlaceRows.concat([txns, removed])
        removals = np.arange(len(both)) >= n
        order = np.lexsort((~removals, both.seq))
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        writes = run.notes.writes[: run.notes.counts[WRITES]]
        writes["txn"] = place[writes["txn"]]
        writes[:] = writes[np.argsort(writes["txn"], kind="stable")]
        return Places(both.take(order), removals[order])

    def _over(self, among: Ints, ts_ms: int) -> list[tuple[int, int]]:
        """Return which of some slots have ended by a time, and at which row of the timeline."""
        slots = self.run.values.slots[among]
        over = (slots["tag"] == p.EXPIRING) & (slots["number"] <= ts_ms) & self.own[among]
        if not over.any():
            return []
        chosen = among[over]
        rows = self.timeline.at(slots["number"][over])
        return list(zip(chosen.tolist(), rows.tolist(), strict=True))

    def _remove(self, slot: int, row: int) -> None:
        """Note the removal of a key at a row of the timeline."""
        slots, notes = self.run.values.slots, self.run.notes
        _, number, ref, tag, *_ = slots[slot].item()
        place = len(self.run.txns) + len(self.rows)
        self.rows.append(row)
        notes.writes[notes.counts[WRITES]] = (place, slot, number, ref, 0, 0, tag, p.ABSENT, 0, 0)
        notes.counts[WRITES] += 1
        slots[slot] = (0, 0, 0, p.ABSENT, 1, 0, 0)

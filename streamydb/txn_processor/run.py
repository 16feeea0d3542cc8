"""The working state of one execution: what the shards granted, as the kernel takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation
from streamydb.frames import program as p
from streamydb.frames.grant_rows import GrantedTransactions, PlanTransactions, SlotRows
from streamydb.frames.json_tokens import parse_ints
from streamydb.frames.plans import Timeline
from streamydb.frames.program import NOT_A_DUPLICATE
from streamydb.frames.table import Array, Ragged, starts_of
from streamydb.limits import INTEGER_MAX, INTEGER_MIN
from streamydb.procedures.follow_ups import Outputs
from streamydb.records.expiry import Expiring
from streamydb.records.rulings import Fault, Rulings
from streamydb.txn_processor.kernel import (
    BY_KERNEL,
    BY_NOBODY,
    BY_PYTHON,
    WRITES,
    NewValues,
    Notes,
    Program,
    RangeTable,
    SlotValues,
    execute_steps,
)

_FEW: Final = 16
"""So many slots are written one by one, before columns are worth their making."""

DIGITS_MAX: Final = 19
"""Of an integer of 64 bits, without its sign."""


_NO_SLOTS: Final = np.empty(0, np.uint8)


@dataclass(slots=True)
class Run:
    """An execution under way: transactions, values, and what has come of them so far.

    ``txns``: as they were granted; ``program``: the same for the kernel. ``keys``, ``homes``: key
    and shard of each slot. ``covered``: the slots whose keys somebody may write, and that are in a
    range that somebody names. ``pool``: texts of values and operands; ``extra``: those that Python
    has made since. ``timeline``: of the plan, where keys may end, and ``written``: the slots that
    it may write; ``now``: the commit time of the transaction in hand. By position: ``special``:
    finished results that are not those of plain commits; ``ruled``: what was ruled on;
    ``internal``: faults of ours.
    """

    txns: PlanTransactions
    program: Program
    values: SlotValues
    notes: Notes
    keys: Ragged
    homes: npt.NDArray[np.int64]
    covered: npt.NDArray[np.int64]
    pool: Ragged
    ruled: dict[int, Fault]
    extra: list[bytes] = field(default_factory=list)
    special: dict[int, bytes] = field(default_factory=dict)
    internal: dict[int, Fault] = field(default_factory=dict)
    unruled: list[Fault] = field(default_factory=list)
    workflow: list[Outputs] = field(default_factory=list)
    timeline: Timeline | None = None
    written: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    now: int = 0

    def slots_of(self, i: int) -> npt.NDArray[np.int64]:
        """The slots of a transaction's keys."""
        starts = self.program.key_starts
        return self.program.key_slot[starts[i] : starts[i + 1]]

    def text(self, ref: int) -> bytes:
        """A text of the pool, or one that Python made in this run."""
        return self.pool[ref] if ref < len(self.pool) else self.extra[ref - len(self.pool)]

    def value(self, tag: int, number: int, ref: int) -> bytes | None:
        """The canonical bytes of a tagged value."""
        if tag == p.ABSENT:
            return None
        if tag == p.EXPIRING:
            return Expiring(self.text(ref), number)
        return b"%d" % number if tag == p.INT else self.text(ref)

    def store(self, value: bytes | None) -> tuple[int, int, int]:
        """The tagged form of canonical bytes; keeps a text that is not an integer."""
        if value is None:
            return p.ABSENT, 0, 0
        if isinstance(value, Expiring):
            self.extra.append(bytes(value))
            return p.EXPIRING, value.expires_ms, len(self.pool) + len(self.extra) - 1
        digits = value[1:] if value[:1] == b"-" else value
        if len(digits) <= DIGITS_MAX and digits.isdigit():
            number = int(value)
            if INTEGER_MIN <= number <= INTEGER_MAX:
                return p.INT, number, 0
        self.extra.append(value)
        return p.OPAQUE, 0, len(self.pool) + len(self.extra) - 1

    def write(self, i: int, slot_id: int, after: bytes | None) -> None:
        """Let transaction ``i`` write a slot."""
        slots, notes = self.values.slots, self.notes
        _, old_number, old_ref, old_tag, *_ = slots[slot_id].item()
        tag, number, ref = self.store(after)
        version = 0 if after is None else int(self.program.seq[i])
        written = (i, slot_id, old_number, old_ref, number, ref, old_tag, tag, 0, 0)
        notes.writes[notes.counts[WRITES]] = written  # in the order of the fields of program.WRITE
        slots[slot_id] = (version, number, ref, tag, 1, 0, 0)  # and of program.SLOT
        notes.counts[WRITES] += 1

    def write_all(self, rows: list[int], slot_ids: list[int], afters: list[bytes | None]) -> None:
        """As `write`, one after the other: the transaction, the slot and the value of each."""
        if len(rows) <= _FEW:
            for each in zip(rows, slot_ids, afters, strict=True):
                self.write(*each)
            return
        txn, slot, slots = np.array(rows), np.array(slot_ids), self.values.slots
        tags, numbers, refs = self._stored(afters)
        order = np.argsort(slot, kind="stable")
        again = np.flatnonzero(np.diff(slot[order]) == 0)
        first = int(self.notes.counts[WRITES])
        noted = self.notes.writes[first : first + len(rows)]
        self.notes.counts[WRITES] += len(rows)
        noted["txn"], noted["slot"] = txn, slot
        for name, after in (("tag", tags), ("number", numbers), ("ref", refs)):
            before = slots[name][slot].astype(after.dtype)
            before[order[again + 1]] = after[order[again]]  # what an earlier one of these wrote
            noted[f"before_{name}"], noted[f"after_{name}"] = before, after
        last = np.delete(order, again)
        slots["version"][slot[last]] = np.where(
            tags[last] == p.ABSENT, 0, self.program.seq[txn[last]]
        )
        for name, after in (("tag", tags), ("number", numbers), ("ref", refs)):
            slots[name][slot[last]] = after[last]
        slots["dirty"][slot[last]] = 1

    def _stored(
        self, values: list[bytes | None]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """As `store`: tags, numbers and refs; shapes (n,)."""
        texts = Ragged.of([value or b"" for value in values])
        tags, numbers = parse_ints(texts.data, texts.offsets)
        for i, value in enumerate(values):
            if type(value) is Expiring:
                tags[i], numbers[i] = p.EXPIRING, value.expires_ms
        kept = np.flatnonzero(tags >= p.OPAQUE)
        refs = np.zeros(len(values), np.int64)
        refs[kept] = len(self.pool) + len(self.extra) + np.arange(len(kept))
        self.extra += [bytes(values[i] or b"") for i in kept.tolist()]
        return tags, numbers, refs


@dataclass(slots=True, frozen=True)
class Kernel:
    """The kernel of a run, with the room that it needs; see `kernel.execute_steps`."""

    run: Run
    ranges: RangeTable
    new: NewValues

    @classmethod
    def of(cls, run: Run, ranges: RangeTable) -> Kernel:
        """Make room for the most keys of a transaction; ``ranges``: those of compiled checks."""
        size = int(np.diff(run.program.key_starts).max(initial=0)) + 1
        return cls(run, ranges, NewValues(np.zeros(size, p.SLOT), np.full(size, -1, np.int64)))

    def execute(self, at: int) -> int:
        """Execute from transaction ``at`` on; return the first that is Python's."""
        run = self.run
        return execute_steps(at, run.program, run.values, self.new, run.notes, self.ranges)


def prepared(
    parts: Sequence[tuple[int, GrantedTransactions, SlotRows]],
    rulings: Rulings,
    timeline: Timeline | None = None,
) -> Run:
    """Join what the shards granted into one table of transactions in seq order and one of slots.

    ``timeline``: of the plan, where keys may end.
    """
    txns = PlanTransactions.of([(shard, txns) for shard, txns, _ in parts])
    granted = SlotRows.concat([slots for _, _, slots in parts])
    homes = np.concatenate([np.full(len(slots), shard, np.int64) for shard, _, slots in parts])
    key_counts, key_table = txns.keys
    step_counts, step_table = txns.steps
    steps = step_table.packed()
    texts, keys = granted.text, granted.key
    pool = Ragged.concat([texts, step_table.operand])
    in_python = int(key_counts[txns.kind == p.GENERIC].sum())
    if timeline is not None:  # a key that ends once more than it is written
        in_python = 2 * (in_python + len(steps)) + len(granted)
    program = Program(
        _routes(txns),
        txns.seq,
        txns.id.lengths(),
        np.zeros(len(txns), np.uint8),
        starts_of(key_counts),
        _local_slots(granted.slot, key_table.slot),
        starts_of(step_counts),
        steps,
    )
    values = SlotValues(_slots(granted), pool.data, pool.offsets, len(texts), keys.offsets)
    return Run(
        txns,
        program,
        values,
        _notes(steps, len(txns), in_python),
        keys,
        homes,
        (_NO_SLOTS if granted.covered is None else granted.covered).nonzero()[0],
        pool,
        rulings.rows(txns.partition, txns.offset),
        timeline=timeline,
        written=(_NO_SLOTS if granted.written is None else granted.written).nonzero()[0],
    )


def _routes(txns: PlanTransactions) -> npt.NDArray[np.uint8]:
    kind, duplicate = txns.kind, txns.duplicate
    route = np.full(len(txns), BY_KERNEL, np.uint8)
    route[kind == p.GENERIC] = BY_PYTHON
    route[(kind == p.REJECTED) | (duplicate != NOT_A_DUPLICATE)] = BY_NOBODY
    return route


def _slots(granted: SlotRows) -> npt.NDArray[Any]:
    slots = np.zeros(len(granted), p.SLOT)
    slots["tag"], slots["number"] = granted.tag, granted.number
    slots["version"], slots["ref"] = granted.version, np.arange(len(granted))
    return slots


def _notes(steps: npt.NDArray[Any], txns: int, in_python: int) -> Notes:
    """Room for all that may be noted; ``in_python``: how many writes Python makes at most."""
    checks = int(np.count_nonzero(steps["op"] <= p.LAST_CHECK))
    reads = int(np.count_nonzero(steps["op"] == p.READ))
    writes = len(steps) - checks - reads + in_python
    return Notes(
        np.zeros(writes, p.WRITE),
        np.zeros(reads, p.SEEN),
        np.zeros(checks + txns, p.SEEN),
        np.zeros(3, np.int64),
    )


def _local_slots(granted: Array, wanted: Array) -> npt.NDArray[np.int64]:
    top = int(max(granted.max(initial=-1), wanted.max(initial=-1))) + 1
    where = np.full(top, -1, np.int64)
    where[granted] = np.arange(len(granted))
    local = where[wanted]
    if local.min(initial=0) < 0:
        raise InvariantViolation("a key of a granted transaction has no slot; its shard sent none")
    return local

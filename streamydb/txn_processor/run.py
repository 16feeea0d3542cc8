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
    NewWrites,
    Notes,
    Program,
    RangeTable,
    SlotValues,
    execute_steps,
    write_slots,
)

_FEW: Final = 16
"""So many slots are written one by one, before columns are worth their making."""

DIGITS_MAX: Final = 19
"""Of an integer of 64 bits, without its sign."""


_NO_SLOTS: Final = np.empty(0, np.uint8)


class ValueTexts:
    """The texts of values: those that were granted, then those that Python makes; it only grows.

    The number of a text is the ``ref`` of a value.

    Attributes:
        granted: how many there were at first. The kernel knows no others.
    """

    __slots__ = ("_data", "_new", "_offsets", "_texts", "granted")

    def __init__(self, granted: Ragged) -> None:
        """Begin with the texts that the shards have sent, which stay what they are."""
        self.granted = len(granted)
        self._texts = granted
        self._new: list[bytes] = []
        self._data, self._offsets = np.empty(0, np.uint8), np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self._texts) + len(self._new)

    def __getitem__(self, ref: int) -> bytes:
        at = ref - len(self._texts)
        return self._texts[ref] if at < 0 else self._new[at]

    def append(self, text: bytes) -> int:
        """Add a text; return its number."""
        self._new.append(text)
        return len(self) - 1

    def extend(self, texts: Ragged) -> None:
        """Add texts, which get the next numbers."""
        new, self._new = self._new, []
        if new:
            self._add(Ragged.of(new))
        if len(texts):
            self._add(texts)

    def whole(self) -> Ragged:
        """Return all texts that are there now; whatever is added later leaves them as they are."""
        self.extend(Ragged.empty())
        return self._texts

    def _add(self, texts: Ragged) -> None:
        count, size = len(self._texts), self._texts.size
        end, last = size + texts.size, count + len(texts)
        if end > len(self._data) or last >= len(self._offsets):
            self._grow(end, last)
        start = texts.offsets[0]
        self._data[size:end] = texts.data[start : texts.offsets[-1]]
        self._offsets[count + 1 : last + 1] = texts.offsets[1:] + (size - start)
        self._texts = Ragged(self._data[:end], self._offsets[: last + 1])

    def _grow(self, size: int, count: int) -> None:
        """Make room for twice as many bytes and texts; memory that nobody writes costs nothing."""
        before, start = self._texts, self._texts.offsets[0]
        self._data, self._offsets = np.empty(2 * size, np.uint8), np.empty(2 * count + 1, np.int64)
        self._data[: before.size] = before.data[start : before.offsets[-1]]
        self._offsets[: len(before) + 1] = before.offsets - start


@dataclass(slots=True)
class Run:
    """An execution under way: transactions, values, and what has come of them so far.

    ``txns``: as they were granted; ``program``: the same for the kernel. ``keys``, ``homes``: key
    and shard of each slot. ``covered``: the slots whose keys somebody may write, and that are in a
    range that somebody names. ``pool``: texts of values and operands, and those that Python has
    made. ``timeline``: of the plan, where keys may end, and ``written``: the slots that it may
    write; ``now``: the commit time of the transaction in hand. By position: ``special``: finished
    results that are not those of plain commits; ``ruled``: what was ruled on; ``internal``: faults
    of ours.
    """

    txns: PlanTransactions
    program: Program
    values: SlotValues
    notes: Notes
    keys: Ragged
    homes: npt.NDArray[np.int64]
    covered: npt.NDArray[np.int64]
    pool: ValueTexts
    ruled: dict[int, Fault]
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

    def value(self, tag: int, number: int, ref: int) -> bytes | None:
        """The canonical bytes of a tagged value."""
        if tag == p.ABSENT:
            return None
        if tag == p.EXPIRING:
            return Expiring(self.pool[ref], number)
        return b"%d" % number if tag == p.INT else self.pool[ref]

    def store(self, value: bytes | None) -> tuple[int, int, int]:
        """The tagged form of canonical bytes; keeps a text that is not an integer."""
        if value is None:
            return p.ABSENT, 0, 0
        if isinstance(value, Expiring):
            return p.EXPIRING, value.expires_ms, self.pool.append(bytes(value))
        digits = value[1:] if value[:1] == b"-" else value
        if len(digits) <= DIGITS_MAX and digits.isdigit():
            number = int(value)
            if INTEGER_MIN <= number <= INTEGER_MAX:
                return p.INT, number, 0
        return p.OPAQUE, 0, self.pool.append(value)

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

    def write_all(
        self, rows: list[int], counts: list[int], slot_ids: list[int], afters: list[bytes | None]
    ) -> None:
        """As `write`, one after the other.

        Args:
            rows: the transactions.
            counts: how many writes each has.
            slot_ids: the slot of each write.
            afters: the value of each write.
        """
        txns = np.repeat(np.array(rows), counts)
        if len(slot_ids) <= _FEW:
            for each in zip(txns.tolist(), slot_ids, afters, strict=True):
                self.write(*each)
            return
        tags, numbers, refs = self._stored(afters)
        new = NewWrites(txns, np.array(slot_ids), tags, numbers, refs)
        write_slots(new, self.program.seq, self.values.slots, self.notes)

    def _stored(
        self, values: list[bytes | None]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """As `store`: tags, numbers and refs; shapes (n,)."""
        texts = Ragged.of([value or b"" for value in values])
        tags, numbers = parse_ints(texts.data, texts.offsets)
        if Expiring in set(map(type, values)):
            for i, value in enumerate(values):
                if type(value) is Expiring:
                    tags[i], numbers[i] = p.EXPIRING, value.expires_ms
        kept = np.flatnonzero(tags >= p.OPAQUE)
        refs = np.zeros(len(values), np.int64)
        refs[kept] = len(self.pool) + np.arange(len(kept))
        self.pool.extend(texts.take(kept))
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
        ValueTexts(pool),
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

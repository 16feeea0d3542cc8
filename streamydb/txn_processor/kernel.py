"""The serial executor of a plan: compiled transactions against slots, in seq order, as machine
code.

It executes until it meets a transaction that it cannot (a payload that did not compile, or a value
that is neither absent nor an integer where arithmetic is asked) and returns its position; the
caller runs that one in Python against the same slots and calls again. A transaction has no effect
before all its checks and updates have passed, so stopping at it is always clean.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import errors
from streamydb.frames import program as p
from streamydb.frames.jit import leaf, same_text
from streamydb.frames.table import Bytes
from streamydb.limits import FAILED_ENTRIES_MAX, INTEGER_MAX, INTEGER_MIN, RESULT_BYTES_MAX

Ints = npt.NDArray[np.int64]
Records = npt.NDArray[Any]

# Who executes a transaction; and where the counts of what was noted are.
BY_KERNEL, BY_PYTHON, BY_NOBODY = 0, 1, 2
WRITES, READS, FAILS = 0, 1, 2

# What a comparison or an update comes to: fine, the code of a failure, or left to Python.
_FINE: Final = p.COMMITTED
_CHECK_FAILED: Final = p.ABORT_CODES.index(errors.CHECK_FAILED)
_BOUND_VIOLATED: Final = p.ABORT_CODES.index(errors.BOUND_VIOLATED)
_OVERFLOW: Final = p.ABORT_CODES.index(errors.OVERFLOW)
_LEFT: Final = -1

# Bytes of a result at most: of every one, of an escaped character, and of a read beside its texts.
_RESULT_FIXED_BYTES: Final = 600
_ESCAPED_BYTES: Final = 6
_READ_FIXED_BYTES: Final = 24


class Program(NamedTuple):
    """The transactions of a plan as the kernel takes them, in seq order.

    ``route``: who executes each. ``id_bytes``: how long their ids are. ``status``: what became of
    each. Transaction i has the keys ``key_slot[key_starts[i] : key_starts[i + 1]]``, each a slot,
    and the steps ``steps[step_starts[i] : step_starts[i + 1]]``.
    """

    route: Bytes
    seq: Ints
    id_bytes: Ints
    status: Bytes
    key_starts: Ints
    key_slot: Ints
    step_starts: Ints
    steps: Records


class SlotValues(NamedTuple):
    """The values that are executed on.

    ``slots``: dtype SLOT, one for each key of the plan. ``data``, ``offsets``: the texts that they
    refer to; the operand of step s is the text ``first_operand + s``. A ref beyond the texts is one
    that Python has made. ``key_offsets``: where the keys of the slots begin.
    """

    slots: Records
    data: Bytes
    offsets: Ints
    first_operand: int
    key_offsets: Ints


class RangeTable(NamedTuple):
    """Ranges as compiled checks see them; a step's ``a`` is the row of its range.

    ``counts``, ``versions``: how many keys each has that nobody in the plan writes, and the highest
    version of those; (r,). ``slots[starts[i] : starts[i + 1]]``: its other keys. ``keys_max``: how
    many keys the ranges of one transaction may have.
    """

    counts: Ints
    versions: Ints
    starts: Ints
    slots: Ints
    keys_max: int


class NewValues(NamedTuple):
    """The new values of the transaction at hand, dtype SLOT.

    ``place``: where the new value of each of its keys is, or -1.
    """

    slots: Records
    place: Ints


class Notes(NamedTuple):
    """Notes of an execution: writes (dtype WRITE), reads and fails (dtype SEEN), counts of each."""

    writes: Records
    reads: Records
    fails: Records
    counts: Ints


@leaf
def _equals(step: Any, operand: int, slot: Any, values: SlotValues) -> int:
    """Tell whether a slot holds a step's operand (1, 0); -1: this kernel cannot tell."""
    if slot.tag != step.tag:
        return 0
    if slot.tag == p.ABSENT:
        return 1
    if slot.tag == p.INT:
        return 1 if slot.number == step.a else 0
    if slot.ref >= len(values.offsets) - 1:
        return _LEFT
    return 1 if same_text(values.data, values.offsets, slot.ref, operand) else 0


@leaf
def _holds(step: Any, operand: int, slot: Any, values: SlotValues) -> int:
    """Tell whether a comparison holds (1, 0); -1: it is not for this kernel."""
    op = step.op
    if op == p.C_VERSION:
        return 1 if slot.version == step.a else 0
    if op == p.C_EXISTS:
        return 1 if (slot.tag != p.ABSENT) == (step.a != 0) else 0
    if op == p.A_EQ or op == p.C_EQ:
        return _equals(step, operand, slot, values)
    if op == p.C_NE:
        same = _equals(step, operand, slot, values)
        return same if same < 0 else 1 - same
    if slot.tag != p.INT:
        return _LEFT if slot.tag == p.OPAQUE else 0
    if op == p.C_LT:
        return 1 if slot.number < step.a else 0
    if op == p.C_LE:
        return 1 if slot.number <= step.a else 0
    if op == p.C_GT:
        return 1 if slot.number > step.a else 0
    return 1 if slot.number >= step.a else 0


@leaf
def _update(step: Any, operand: int, slot: Any, out: Any) -> int:
    """Put the new value into ``out``; 0, the code of a failure, or -1."""
    op = step.op
    if op == p.PUT:
        out.tag, out.number, out.ref = step.tag, step.a, operand
        return _FINE
    if op == p.DELETE:
        out.tag, out.number, out.ref = p.ABSENT, 0, 0
        return _FINE
    if slot.tag == p.OPAQUE:
        return _LEFT
    old = slot.number if slot.tag == p.INT else 0
    out.tag, out.ref = p.INT, 0
    if op == p.MAX or op == p.MIN:
        keep = slot.tag == p.INT and ((old >= step.a) == (op == p.MAX) or old == step.a)
        out.number = old if keep else step.a
        return _FINE
    if (step.a > 0 and old > INTEGER_MAX - step.a) or (step.a < 0 and old < INTEGER_MIN - step.a):
        return _OVERFLOW
    out.number = old + step.a
    if (step.flags & p.HAS_LOW) != 0 and out.number < step.low:
        return _BOUND_VIOLATED
    if (step.flags & p.HAS_HIGH) != 0 and out.number > step.high:
        return _BOUND_VIOLATED
    return _FINE


@leaf
def _note(entry: Any, txn: int, slot_id: int, slot: Any, kind: int, index: int) -> None:
    """Note a value that was seen; ``entry`` has dtype SEEN."""
    entry.txn, entry.slot, entry.kind, entry.index = txn, slot_id, kind, index
    entry.version, entry.tag = slot.version, slot.tag
    entry.number, entry.ref = slot.number, slot.ref


@leaf
def _check(txn: int, program: Program, values: SlotValues, notes: Notes) -> int:
    """Run the comparisons of one transaction; how many failed, or -1 to leave it to Python."""
    begun = notes.counts[FAILS]
    kind_before, index_before = -1, -1
    for s in range(program.step_starts[txn], program.step_starts[txn + 1]):
        step = program.steps[s]
        if step.op > p.LAST_CHECK:
            break
        slot_id = program.key_slot[program.key_starts[txn] + step.key]
        slot = values.slots[slot_id]
        holds = _holds(step, values.first_operand + s, slot, values)
        if holds < 0:
            notes.counts[FAILS] = begun
            return _LEFT
        kind = p.SEEN_BY_ASSERT if step.op == p.A_EQ else p.SEEN_BY_CHECK
        if holds == 0 and not (kind == kind_before and step.index == index_before):
            kind_before, index_before = kind, step.index
            if notes.counts[FAILS] - begun < FAILED_ENTRIES_MAX:
                entry = notes.fails[notes.counts[FAILS]]
                _note(entry, txn, slot_id, slot, kind, step.index)
                notes.counts[FAILS] += 1
    return notes.counts[FAILS] - begun  # type: ignore[no-any-return]


@leaf
def _ranges_hold(txn: int, program: Program, values: SlotValues, ranges: RangeTable) -> bool:
    """Return True if the checks of ranges hold, and these have surely no more keys than they may.

    All others are for Python, which says why.
    """
    total, row, count, version = 0, -1, 0, 0
    for s in range(program.step_starts[txn], program.step_starts[txn + 1]):
        step = program.steps[s]
        if step.op < p.FIRST_OF_RANGE:
            continue
        if step.op > p.LAST_OF_RANGE:
            break
        if step.a != row:
            row = step.a
            count, version = ranges.counts[row], ranges.versions[row]
            for k in range(ranges.starts[row], ranges.starts[row + 1]):
                slot = values.slots[ranges.slots[k]]
                count += 1 if slot.tag != p.ABSENT else 0
                version = max(version, slot.version)
            total += count
        op, wanted = step.op, step.low
        if op == p.R_EXISTS:
            holds = (count > 0) == (wanted != 0)
        elif op == p.R_COUNT:
            holds = count == wanted
        elif op == p.R_COUNT_LE:
            holds = count <= wanted
        elif op == p.R_COUNT_GE:
            holds = count >= wanted
        else:
            holds = version <= wanted
        if not holds:
            return False
    return total <= ranges.keys_max


@leaf
def _updates(txn: int, program: Program, values: SlotValues, new: NewValues, notes: Notes) -> int:
    """Compute the new values; 0, the code of the first failure, or -1."""
    used = 0
    for s in range(program.step_starts[txn], program.step_starts[txn + 1]):
        step = program.steps[s]
        if step.op < p.FIRST_UPDATE:
            continue
        slot_id = program.key_slot[program.key_starts[txn] + step.key]
        slot = values.slots[slot_id]
        code = _update(step, values.first_operand + s, slot, new.slots[used])
        if code != _FINE:
            if code > 0:
                entry = notes.fails[notes.counts[FAILS]]
                _note(entry, txn, slot_id, slot, p.SEEN_BY_UPDATE, step.index)
                notes.counts[FAILS] += 1
            return code
        new.place[step.key] = used
        used += 1
    return _FINE


@leaf
def _reads(txn: int, program: Program, values: SlotValues, new: NewValues, notes: Notes) -> int:
    """Note what the transaction reads, after its own updates; -1 when Python must measure the
    result.
    """
    begun = notes.counts[READS]
    bound = _RESULT_FIXED_BYTES + _ESCAPED_BYTES * program.id_bytes[txn]
    for s in range(program.step_starts[txn], program.step_starts[txn + 1]):
        step = program.steps[s]
        if step.op != p.READ:
            continue
        slot_id = program.key_slot[program.key_starts[txn] + step.key]
        place = new.place[step.key]
        value = values.slots[slot_id] if place < 0 else new.slots[place]
        key_bytes = values.key_offsets[slot_id + 1] - values.key_offsets[slot_id]
        bound += _ESCAPED_BYTES * key_bytes + _READ_FIXED_BYTES
        if value.tag == p.OPAQUE:
            if value.ref >= len(values.offsets) - 1:
                notes.counts[READS] = begun
                return _LEFT
            bound += values.offsets[value.ref + 1] - values.offsets[value.ref]
        _note(notes.reads[notes.counts[READS]], txn, slot_id, value, 0, 0)
        notes.counts[READS] += 1
    if bound > RESULT_BYTES_MAX:
        notes.counts[READS] = begun
        return _LEFT
    return _FINE


@leaf
def _commit(txn: int, program: Program, values: SlotValues, new: NewValues, notes: Notes) -> None:
    """Put the new values into the slots and note the writes."""
    for s in range(program.step_starts[txn], program.step_starts[txn + 1]):
        step = program.steps[s]
        if step.op < p.FIRST_UPDATE:
            continue
        slot_id = program.key_slot[program.key_starts[txn] + step.key]
        slot, after = values.slots[slot_id], new.slots[new.place[step.key]]
        if slot.tag == p.ABSENT and after.tag == p.ABSENT:
            continue
        write = notes.writes[notes.counts[WRITES]]
        notes.counts[WRITES] += 1
        write.txn, write.slot = txn, slot_id
        write.before_tag, write.before_number, write.before_ref = slot.tag, slot.number, slot.ref
        write.after_tag, write.after_number, write.after_ref = after.tag, after.number, after.ref
        slot.tag, slot.number, slot.ref = after.tag, after.number, after.ref
        slot.version = program.seq[txn] if after.tag != p.ABSENT else 0
        slot.dirty = 1


class NewWrites(NamedTuple):
    """Writes that Python has made, in order: transaction, slot, and the new value's tag, number and
    ref; shapes (n,).
    """

    txn: Ints
    slot: Ints
    tag: Bytes
    number: Ints
    ref: Ints


@leaf
def write_slots(new: NewWrites, seqs: Ints, slots: Records, notes: Notes) -> None:
    """Put new values into the slots and note the writes, one after the other.

    ``seqs``: of the transactions.
    """
    for i in range(len(new.txn)):
        slot, write = slots[new.slot[i]], notes.writes[notes.counts[WRITES]]
        notes.counts[WRITES] += 1
        write.txn, write.slot = new.txn[i], new.slot[i]
        write.before_tag, write.before_number, write.before_ref = slot.tag, slot.number, slot.ref
        write.after_tag, write.after_number, write.after_ref = new.tag[i], new.number[i], new.ref[i]
        slot.tag, slot.number, slot.ref = new.tag[i], new.number[i], new.ref[i]
        slot.version = seqs[new.txn[i]] if new.tag[i] != p.ABSENT else 0
        slot.dirty = 1


@leaf
def execute_steps(
    start: int,
    program: Program,
    values: SlotValues,
    new: NewValues,
    notes: Notes,
    ranges: RangeTable,
) -> int:
    """Execute from transaction ``start`` on; the position of the first one left to Python, or n."""
    for txn in range(start, len(program.seq)):
        if program.route[txn] == BY_PYTHON:
            return txn
        if program.route[txn] == BY_NOBODY:
            continue
        if len(ranges.counts) and not _ranges_hold(txn, program, values, ranges):
            return txn
        failed = _check(txn, program, values, notes)
        if failed < 0:
            return txn
        if failed > 0:
            program.status[txn] = _CHECK_FAILED
            continue
        code = _updates(txn, program, values, new, notes)
        if code == _FINE:
            code = _reads(txn, program, values, new, notes)
            if code == _FINE:
                _commit(txn, program, values, new, notes)
        for key in range(program.key_starts[txn + 1] - program.key_starts[txn]):
            new.place[key] = -1
        if code < 0:
            return txn
        program.status[txn] = code
    return len(program.seq)

"""The serial executor of a plan: compiled transactions against slots, in seq order, as machine
code.

It executes until it meets a transaction that it cannot (a payload that did not compile, or a value
that is neither absent nor an integer where arithmetic is asked) and returns its position; the
caller runs that one in Python against the same slots and calls again. A transaction has no effect
before all its checks and updates have passed, so stopping at it is always clean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamydb.columns.jit import kernel, same_text
from streamydb.columns.table import Bytes
from streamydb.limits import FAILED_ENTRIES_MAX, RESULT_BYTES_MAX

__all__ = ["BOUND_VIOLATED", "CHECK_FAILED", "OVERFLOW", "execute_steps"]

Ints = npt.NDArray[np.int64]
Records = npt.NDArray[Any]

CHECK_FAILED = 1
BOUND_VIOLATED = 2
OVERFLOW = 3
_BAIL = -1
_INT64_MAX = 9223372036854775807
_INT64_MIN = -9223372036854775807 - 1
# More than a result has beside its id and reads; in these a character takes up to 6 bytes, escaped.
_RESULT_FIXED_BYTES = 600


@kernel
def _compare(step: Any, operand: int, slot: Any, data: Bytes, offsets: Ints) -> int:
    """1 when the comparison holds, 0 when not, -1 when it is not for this kernel."""
    op = step.op
    if op == 4:
        return 1 if slot.version == step.a else 0
    if op == 5:
        return 1 if (slot.tag != 0) == (step.a != 0) else 0
    if op <= 3:
        if slot.tag != step.tag:
            same = False
        elif slot.tag == 0:
            same = True
        elif slot.tag == 1:
            same = slot.number == step.a
        elif slot.ref >= len(offsets) - 1:
            return -1
        else:
            same = same_text(data, offsets, slot.ref, operand)
        return 1 if same != (op == 3) else 0
    if slot.tag != 1:
        return -1 if slot.tag == 2 else 0
    if op == 6:
        return 1 if slot.number < step.a else 0
    if op == 7:
        return 1 if slot.number <= step.a else 0
    if op == 8:
        return 1 if slot.number > step.a else 0
    return 1 if slot.number >= step.a else 0


@kernel
def _update(step: Any, operand: int, slot: Any, out: Any) -> int:
    """Put the new value into ``out``; 0, the code of a failure, or -1."""
    op = step.op
    if op == 32:
        out.tag, out.number, out.ref = step.tag, step.a, operand
        return 0
    if op == 33:
        out.tag, out.number, out.ref = 0, 0, 0
        return 0
    if slot.tag == 2:
        return -1
    old = slot.number if slot.tag == 1 else 0
    out.tag, out.ref = 1, 0
    if op == 35 or op == 36:
        keep = slot.tag == 1 and ((old >= step.a) == (op == 35) or old == step.a)
        out.number = old if keep else step.a
        return 0
    if (step.a > 0 and old > _INT64_MAX - step.a) or (step.a < 0 and old < _INT64_MIN - step.a):
        return OVERFLOW
    out.number = old + step.a
    if (step.flags & 2) != 0 and out.number < step.low:
        return BOUND_VIOLATED
    if (step.flags & 4) != 0 and out.number > step.high:
        return BOUND_VIOLATED
    return 0


@kernel
def _note(seen: Records, at: int, txn: int, slot_id: int, slot: Any, kind: int, index: int) -> None:
    entry = seen[at]
    entry.txn, entry.slot, entry.kind, entry.index = txn, slot_id, kind, index
    entry.version, entry.tag = slot.version, slot.tag
    entry.number, entry.ref = slot.number, slot.ref


@kernel
def _check(
    txn: int, first: int, last: int, base: int, steps: Records, key_slot: Ints, slots: Records,
    fails: Records, counts: Ints, data: Bytes, offsets: Ints, operand_base: int,
) -> int:
    """Run the comparisons of one transaction; how many failed, or -1 to leave it to Python."""
    begun = counts[2]
    kind_before, index_before = -1, -1
    for s in range(first, last):
        step = steps[s]
        if step.op > 9:
            break
        slot_id = key_slot[base + step.key]
        holds = _compare(step, operand_base + s, slots[slot_id], data, offsets)
        if holds < 0:
            counts[2] = begun
            return _BAIL
        kind = 0 if step.op == 1 else 1
        if holds == 0 and not (kind == kind_before and step.index == index_before):
            kind_before, index_before = kind, step.index
            if counts[2] - begun < FAILED_ENTRIES_MAX:
                _note(fails, counts[2], txn, slot_id, slots[slot_id], kind, step.index)
                counts[2] += 1
    return counts[2] - begun  # type: ignore[no-any-return]


@kernel
def _updates(
    txn: int, first: int, last: int, base: int, steps: Records, key_slot: Ints, slots: Records,
    scratch: Records, scratch_at: Ints, fails: Records, counts: Ints, operand_base: int,
) -> int:
    """Compute the new values into ``scratch``; 0, the code of the first failure, or -1."""
    used = 0
    for s in range(first, last):
        step = steps[s]
        if step.op < 32:
            continue
        slot_id = key_slot[base + step.key]
        code = _update(step, operand_base + s, slots[slot_id], scratch[used])
        if code != 0:
            if code > 0:
                _note(fails, counts[2], txn, slot_id, slots[slot_id], 2, step.index)
                counts[2] += 1
            return code
        scratch_at[step.key] = used
        used += 1
    return 0


@kernel
def _reads(
    txn: int, first: int, last: int, base: int, steps: Records, key_slot: Ints, slots: Records,
    scratch: Records, scratch_at: Ints, reads: Records, counts: Ints, key_offsets: Ints,
    offsets: Ints, id_bytes: int,
) -> int:
    """Note what the transaction reads, after its own updates; -1 when Python must measure the
    result.
    """
    begun = counts[1]
    bound = _RESULT_FIXED_BYTES + 6 * id_bytes
    for s in range(first, last):
        step = steps[s]
        if step.op != 16:
            continue
        slot_id = key_slot[base + step.key]
        at = scratch_at[step.key]
        value = slots[slot_id] if at < 0 else scratch[at]
        bound += 6 * (key_offsets[slot_id + 1] - key_offsets[slot_id]) + 24
        if value.tag == 2:
            if value.ref >= len(offsets) - 1:
                counts[1] = begun
                return _BAIL
            bound += offsets[value.ref + 1] - offsets[value.ref]
        _note(reads, counts[1], txn, slot_id, value, 0, 0)
        counts[1] += 1
    if bound > RESULT_BYTES_MAX:
        counts[1] = begun
        return _BAIL
    return 0


@kernel
def _commit(
    txn: int, seq: int, first: int, last: int, base: int, steps: Records, key_slot: Ints,
    slots: Records, scratch: Records, scratch_at: Ints, writes: Records, counts: Ints,
) -> None:
    """Apply the scratch values to the slots and note the writes."""
    for s in range(first, last):
        step = steps[s]
        if step.op < 32:
            continue
        slot_id = key_slot[base + step.key]
        slot, new = slots[slot_id], scratch[scratch_at[step.key]]
        if slot.tag == 0 and new.tag == 0:
            continue
        write = writes[counts[0]]
        counts[0] += 1
        write.txn, write.slot = txn, slot_id
        write.before_tag, write.before_number, write.before_ref = slot.tag, slot.number, slot.ref
        write.after_tag, write.after_number, write.after_ref = new.tag, new.number, new.ref
        slot.tag, slot.number, slot.ref = new.tag, new.number, new.ref
        slot.version = seq if new.tag != 0 else 0
        slot.dirty = 1


@kernel
def execute_steps(
    start: int, route: Bytes, seqs: Ints, id_lengths: Ints, step_starts: Ints, key_starts: Ints,
    steps: Records, key_slot: Ints, slots: Records, data: Bytes, offsets: Ints, operand_base: int,
    key_offsets: Ints, status: Bytes, writes: Records, reads: Records, fails: Records, counts: Ints,
    scratch: Records, scratch_at: Ints,
) -> int:
    """Execute from transaction ``start`` on; the position of the first one left to Python, or n.

    ``route`` is 0 for the kernel, 1 for Python, 2 for nothing to do. ``counts`` holds how many
    ``writes``, ``reads`` and ``fails`` have been noted.
    """
    for txn in range(start, len(seqs)):
        if route[txn] == 1:
            return txn
        if route[txn] == 2:
            continue
        first, last, base = step_starts[txn], step_starts[txn + 1], key_starts[txn]
        failed = _check(
            txn, first, last, base, steps, key_slot, slots, fails, counts, data, offsets,
            operand_base,
        )
        if failed < 0:
            return txn
        if failed > 0:
            status[txn] = CHECK_FAILED
            continue
        code = _updates(
            txn, first, last, base, steps, key_slot, slots, scratch, scratch_at, fails, counts,
            operand_base,
        )
        if code == 0:
            code = _reads(
                txn, first, last, base, steps, key_slot, slots, scratch, scratch_at, reads, counts,
                key_offsets, offsets, id_lengths[txn],
            )
            if code == 0:
                _commit(
                    txn, seqs[txn], first, last, base, steps, key_slot, slots, scratch, scratch_at,
                    writes, counts,
                )
        for key in range(key_starts[txn + 1] - base):
            scratch_at[key] = -1
        if code < 0:
            return txn
        status[txn] = code
    return len(seqs)

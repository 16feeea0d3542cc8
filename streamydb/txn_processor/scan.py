"""Compile plain records straight from their bytes: the fast half of `compile`.

A kernel reads records that keep to a narrow form: ASCII text without escapes, integers of at most
18 digits, `id`, `deadline_ms`, `reads` and `updates` (put of an integer or a text, delete, add,
max, min, next_id), at most 16 reads and 16 updates, every name once. It takes nothing that
`records.decode` would not take, and gives what `compile` would make of it; everything else, good
or bad, it leaves to `compile`. A test holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.columns import program as p
from streamydb.columns.jit import kernel
from streamydb.columns.table import Bytes, Columns, Ragged, starts_of
from streamydb.limits import ID_BYTES_MAX, KEY_BYTES_MAX, TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX
from streamydb.records.names import RESERVED
from streamydb.txn_processor.tokens import (
    after,
    blank,
    cut,
    integer,
    same,
    short_name,
    text_end,
)

__all__ = ["Scanned", "scan"]

Ints = npt.NDArray[np.int64]
Records = npt.NDArray[Any]

# Bounds the scratch space; records with more reads or updates are rare, and `compile` takes them.
_MOST: Final = 16
_RESERVED: Final = ord(RESERVED)


def _word(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(name.encode(), "little"))


_ID, _READS, _UPDATES = _word("id"), _word("reads"), _word("updates")
_OP, _KEY, _BY, _LOW, _HIGH = _word("op"), _word("key"), _word("by"), _word("min"), _word("max")
_VALUE, _PUT, _DELETE, _ADD = _word("value"), _word("put"), _word("delete"), _word("add")
_NEXT_ID = _word("next_id")
_DEADLINE_HEAD, _DEADLINE_TAIL = _word("deadline"), _word("_ms")
_DEADLINE_BYTES: Final = len("deadline_ms")

# What is noted of a record beside its keys and steps: spans of the id and of the deadline's digits,
# and the deadline.
_ID_SPAN, _DEADLINE_SPAN, _DEADLINE, _NOTED = 0, 2, 4, 5

# What an update gave, by bit.
_HAS_OP, _HAS_KEY, _HAS_BY, _HAS_MIN, _HAS_MAX, _HAS_VALUE, _HAS_TEXT = 1, 2, 4, 8, 16, 32, 64
_HAS_OP_AND_KEY = _HAS_OP | _HAS_KEY
_PUT_OP, _DELETE_OP, _ADD_OP, _MAX_OP = p.PUT, p.DELETE, p.ADD, p.MAX
_MIN_OP, _NEXT_OP, _READ_OP = p.MIN, p.NEXT_ID, p.READ
_OPERAND, _FLAG_LOW, _FLAG_HIGH = p.HAS_OPERAND, p.HAS_LOW, p.HAS_HIGH
_TAG_INT, _TAG_OPAQUE = p.INT, p.OPAQUE


@kernel
def _operation(word: np.uint64) -> int:
    if word == _PUT:
        return _PUT_OP
    if word == _ADD:
        return _ADD_OP
    if word == _DELETE:
        return _DELETE_OP
    if word == _NEXT_ID:
        return _NEXT_OP
    if word == _HIGH:
        return _MAX_OP
    if word == _LOW:
        return _MIN_OP
    return 0


@kernel
def _fits(op: int, got: int) -> bool:
    """Return True if an update has what its operation needs, and nothing else."""
    rest = got & ~_HAS_OP_AND_KEY
    if got & _HAS_OP_AND_KEY != _HAS_OP_AND_KEY:
        return False
    if op == _ADD_OP:
        return rest & _HAS_BY != 0 and rest & ~(_HAS_BY | _HAS_MIN | _HAS_MAX) == 0
    if op == _PUT_OP:
        return rest & ~_HAS_TEXT == _HAS_VALUE
    if op == _MAX_OP or op == _MIN_OP:
        return rest == _HAS_VALUE
    return rest == 0 and op != 0


@kernel
def _number_of(name: np.uint64, value: int, step: Any) -> int:
    """Put a named number into an update's step; which bit it is, or 0."""
    if name == _BY:
        step.a = value
        return _HAS_BY
    if name == _VALUE:
        step.a = value
        return _HAS_VALUE
    if name == _LOW:
        step.low = value
        return _HAS_MIN
    if name == _HIGH:
        step.high = value
        return _HAS_MAX
    return 0


@kernel
def _finish(step: Any, spans: Ints, op: int, got: int) -> None:
    """Fill in what follows from everything that an update has."""
    step.op = op
    step.flags = 0
    if op == _PUT_OP:
        step.flags = _OPERAND
        step.tag = _TAG_OPAQUE if got & _HAS_TEXT else _TAG_INT
    else:
        spans[2] = spans[3] = 0
    if op == _NEXT_OP:
        step.a = 1
    if got & _HAS_MIN:
        step.flags |= _FLAG_LOW
    if got & _HAS_MAX:
        step.flags |= _FLAG_HIGH


@kernel
def _update(data: Bytes, at: int, end: int, step: Any, spans: Ints) -> int:
    """Read one update into ``step`` and ``spans`` (key, operand); the position behind, or -1."""
    got = 0
    op = 0
    at = after(data, at, end, 123)
    while at >= 0:
        stop = text_end(data, at, end)
        if stop < 0:
            return -1
        name = short_name(data, at + 1, stop)
        at = after(data, stop + 1, end, 58)
        if at < 0:
            return -1
        bit = 0
        if name == _OP or name == _KEY:
            stop = text_end(data, at, end)
            if stop < 0:
                return -1
            if name == _OP:
                bit = _HAS_OP
                op = _operation(short_name(data, at + 1, stop))
            else:
                bit = _HAS_KEY
                spans[0], spans[1] = at + 1, stop
            at = stop + 1
        elif name == _VALUE and at < end and data[at] == 34:
            bit = _HAS_VALUE | _HAS_TEXT
            stop = text_end(data, at, end)
            if stop < 0 or stop + 1 - at > VALUE_BYTES_MAX:
                return -1
            spans[2], spans[3] = at, stop + 1
            at = stop + 1
        else:
            start = at
            at, value = integer(data, at, end)
            bit = _number_of(name, value, step)
            if at < 0 or bit == 0:
                return -1
            if bit == _HAS_VALUE:
                spans[2], spans[3] = start, at
        if got & bit != 0:
            return -1
        got |= bit
        at = blank(data, at, end)
        if at < end and data[at] == 44:
            at = blank(data, at + 1, end)
            continue
        at = after(data, at, end, 125)
        length = spans[1] - spans[0]
        if at < 0 or not _fits(op, got) or length < 1 or length > KEY_BYTES_MAX:
            return -1
        if data[spans[0]] == _RESERVED:
            return -1
        _finish(step, spans, op, got)
        return at
    return -1


@kernel
def _updates(data: Bytes, at: int, end: int, steps: Records, spans: Ints) -> tuple[int, int]:
    """Read the list of updates: (position behind, how many), or (-1, 0)."""
    count = 0
    at = after(data, at, end, 91)
    if at >= 0 and at < end and data[at] == 93:
        return blank(data, at + 1, end), 0
    while at >= 0 and count < _MOST:
        spans[count, 2] = spans[count, 3] = 0
        steps[count].a = steps[count].low = steps[count].high = 0
        steps[count].tag = steps[count].pad = steps[count].spare = 0
        steps[count].index = count
        at = _update(data, at, end, steps[count], spans[count])
        count += 1
        if at >= 0 and at < end and data[at] == 44:
            at = blank(data, at + 1, end)
            continue
        at = -1 if at < 0 else after(data, at, end, 93)
        return at, count
    return -1, 0


@kernel
def _reads(data: Bytes, at: int, end: int, spans: Ints) -> tuple[int, int]:
    """Read the list of keys to read: (position behind, how many), or (-1, 0)."""
    count = 0
    at = after(data, at, end, 91)
    if at >= 0 and at < end and data[at] == 93:
        return blank(data, at + 1, end), 0
    while at >= 0 and count < _MOST:
        stop = text_end(data, at, end)
        length = stop - at - 1
        if stop < 0 or length < 1 or length > KEY_BYTES_MAX:
            return -1, 0
        spans[count, 0], spans[count, 1] = at + 1, stop
        count += 1
        at = blank(data, stop + 1, end)
        if at < end and data[at] == 44:
            at = blank(data, at + 1, end)
            continue
        return after(data, at, end, 93), count
    return -1, 0


@kernel
def _is_deadline(data: Bytes, start: int, end: int) -> bool:
    """Return True if a name is `deadline_ms`, which is too long for `short_name`."""
    return (
        end - start == _DEADLINE_BYTES
        and short_name(data, start, start + 8) == _DEADLINE_HEAD
        and short_name(data, start + 8, end) == _DEADLINE_TAIL
    )


@kernel
def _record(
    data: Bytes, at: int, end: int, noted: Ints, steps: Records, spans: Ints, reads: Ints
) -> tuple[int, int]:
    """Read one record: (updates, reads), or (-1, -1) when it is not plain."""
    seen = 0
    updates, read = 0, 0
    at = after(data, at, end, 123)
    while at >= 0:
        stop = text_end(data, at, end)
        if stop < 0:
            return -1, -1
        start, name_end = at + 1, stop
        name = short_name(data, start, name_end)
        at = after(data, stop + 1, end, 58)
        if at < 0:
            return -1, -1
        if name == _ID and seen & 1 == 0:
            seen |= 1
            stop = text_end(data, at, end)
            length = stop - at - 1
            if stop < 0 or length < 1 or length > ID_BYTES_MAX or data[at + 1] == _RESERVED:
                return -1, -1
            noted[_ID_SPAN], noted[_ID_SPAN + 1] = at + 1, stop
            at = blank(data, stop + 1, end)
        elif name == _UPDATES and seen & 2 == 0:
            seen |= 2
            at, updates = _updates(data, at, end, steps, spans)
        elif name == _READS and seen & 4 == 0:
            seen |= 4
            at, read = _reads(data, at, end, reads)
        elif seen & 8 == 0 and _is_deadline(data, start, name_end):
            seen |= 8
            noted[_DEADLINE_SPAN] = at
            at, noted[_DEADLINE] = integer(data, at, end)
            noted[_DEADLINE_SPAN + 1] = at
            if at < 0 or noted[_DEADLINE] < 1:
                return -1, -1
            at = blank(data, at, end)
        else:
            return -1, -1
        if at >= 0 and at < end and data[at] == 44:
            at = blank(data, at + 1, end)
            continue
        at = -1 if at < 0 else after(data, at, end, 125)
        if at != end or seen & 1 == 0:
            return -1, -1
        return updates, read
    return -1, -1


@kernel
def _find(data: Bytes, spans: Ints, first: int, count: int, wanted: Ints) -> int:
    for k in range(count):
        if same(data, spans[first + k], wanted):
            return k
    return -1


@kernel
def _emit(
    data: Bytes, updates: int, read: int, steps: Records, spans: Ints, reads: Ints, at_key: int,
    at_step: int, keys: Ints, writes: Bytes, out: Records, operands: Ints,
) -> tuple[int, int]:
    """Write a record's keys and steps behind ``at_key`` and ``at_step``; the new ends, or -1."""
    count, made = 0, at_step
    for k in range(read):
        if _find(data, keys, at_key, count, reads[k]) < 0:
            keys[at_key + count, 0], keys[at_key + count, 1] = reads[k, 0], reads[k, 1]
            writes[at_key + count] = 0
            out[made] = steps[_MOST]
            out[made].key = count
            operands[made, 0] = operands[made, 1] = 0
            made += 1
            count += 1
    named = count
    for k in range(updates):
        found = _find(data, keys, at_key, count, spans[k, :2])
        if found < 0:
            found = count
            keys[at_key + count, 0], keys[at_key + count, 1] = spans[k, 0], spans[k, 1]
            count += 1
        elif writes[at_key + found] != 0:
            return -1, -1
        writes[at_key + found] = 1
        steps[k].key = found
        if steps[k].op == _NEXT_OP and found >= named:
            out[made] = steps[_MOST]
            out[made].key = found
            operands[made, 0] = operands[made, 1] = 0
            made += 1
    for k in range(updates):
        out[made] = steps[k]
        operands[made, 0], operands[made, 1] = spans[k, 2], spans[k, 3]
        made += 1
    return at_key + count, made


@kernel
def _scan(
    data: Bytes, offsets: Ints, steps: Records, keys: Ints, writes: Bytes, out: Records,
    operands: Ints,
) -> tuple[Bytes, Ints, Ints, Ints]:
    n = len(offsets) - 1
    plain = np.zeros(n, np.uint8)
    noted = np.zeros((n, _NOTED), np.int64)
    key_ends = np.zeros(n, np.int64)
    step_ends = np.zeros(n, np.int64)
    spans = np.empty((_MOST, 4), np.int64)
    reads = np.empty((_MOST, 2), np.int64)
    at_key, at_step = 0, 0
    for i in range(n):
        if offsets[i + 1] - offsets[i] <= TRANSACTION_BYTES_MAX:
            updates, read = _record(
                data, offsets[i], offsets[i + 1], noted[i], steps, spans, reads
            )
            if updates >= 0:
                end_key, end_step = _emit(
                    data, updates, read, steps, spans, reads, at_key, at_step, keys, writes, out,
                    operands,
                )
                if end_key >= 0:
                    plain[i] = 1
                    at_key, at_step = end_key, end_step
        key_ends[i], step_ends[i] = at_key, at_step
    return plain, noted, key_ends, step_ends


@dataclass(slots=True)
class Scanned:
    """The plain records among n: ``plain`` (n,) says which, the rest is of those, in order.

    ``deadlines``: 0 for none. ``deadline_spans``: where their digits are in the buffer, (…, 2).
    """

    plain: npt.NDArray[np.bool_]
    ids: Ragged
    key_counts: Ints
    keys: Ragged
    writes: Bytes
    step_counts: Ints
    steps: Columns
    deadlines: Ints
    deadline_spans: Ints


def scan(values: Ragged) -> Scanned:
    """Read the plain ones among records of the log."""
    n = len(values)
    size = int(values.offsets[-1] - values.offsets[0])
    most = min(2 * _MOST * n, size // 4 + 1)
    scratch = np.zeros(_MOST + 1, p.STEP)
    scratch["op"][_MOST] = p.READ
    keys, writes = np.empty((most, 2), np.int64), np.zeros(most, np.uint8)
    steps, operands = np.empty(2 * most, p.STEP), np.empty((2 * most, 2), np.int64)
    plain, noted, key_ends, step_ends = _scan(
        values.data, values.offsets, scratch, keys, writes, steps, operands
    )
    chosen = plain.astype(np.bool_)
    every = bool(chosen.all())
    key_counts, step_counts = np.diff(key_ends, prepend=0), np.diff(step_ends, prepend=0)
    if not every:
        noted, key_counts, step_counts = noted[chosen], key_counts[chosen], step_counts[chosen]
    k, s = int(key_counts.sum()), int(step_counts.sum())
    table = Columns(p.step_columns(steps[:s]), {"operand": _operands(values, operands[:s])})
    return Scanned(
        chosen, Ragged(*cut(values.data, noted)), key_counts,
        Ragged(*cut(values.data, keys[:k])), writes[:k].copy(), step_counts, table,
        noted[:, _DEADLINE].copy(), noted[:, _DEADLINE_SPAN : _DEADLINE_SPAN + 2],
    )


def _operands(values: Ragged, spans: Ints) -> Ragged:
    if not spans.any():
        return Ragged(np.empty(0, np.uint8), starts_of(np.zeros(len(spans), np.int64)))
    return Ragged(*cut(values.data, spans))

"""Compile plain records straight from their bytes: the fast half of `compile`.

A kernel reads records that keep to a narrow form: ASCII text without escapes, integers of at most
18 digits, `id`, `deadline_ms`, `checks` (see `check_reader`), `reads`, and `updates` (put of an
integer or a text, delete, add, max, min, next_id) or a `call` (see `call_reader`), at most 16
checks, reads and updates each, every name once. It takes nothing that `records.decode` would not
take, and gives what `compile` would make of it; everything else, good or bad, it leaves to
`compile`. A test holds the two against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames import characters as c
from streamydb.frames import program as p
from streamydb.frames.jit import copy_bytes, kernel, leaf
from streamydb.frames.json_tokens import (
    after,
    blank,
    cut,
    integer,
    next_item,
    same,
    short_name,
    text_end,
    word_of,
)
from streamydb.frames.program import ProgramSteps
from streamydb.frames.table import Bytes, Ragged, Texts, starts_of
from streamydb.limits import ID_BYTES_MAX, TRANSACTION_BYTES_MAX
from streamydb.parser.call_reader import (
    CALL_KEYS,
    CALL_KEYS_MAX,
    CALL_READS,
    CALL_SPAN,
    CALL_TAKES,
    read_call,
    read_keys,
)
from streamydb.parser.check_reader import CHECKS_MAX, read_checks
from streamydb.parser.update_reader import (
    KEY_START,
    OPERAND_END,
    OPERAND_START,
    RESERVED_BYTE,
    UPDATES_MAX,
    read_updates,
)
from streamydb.records.names import MODULES_PREFIX

Ints = npt.NDArray[np.int64]
Records = npt.NDArray[Any]

_MOST: Final = UPDATES_MAX
"""Reads of a plain record, and updates."""

_ID, _READS, _UPDATES = word_of("id"), word_of("reads"), word_of("updates")
_CALL, _CHECKS = word_of("call"), word_of("checks")
_DEADLINE_HEAD, _DEADLINE_TAIL = word_of("deadline"), word_of("_ms")
_DEADLINE_BYTES: Final = len("deadline_ms")

# What is noted of a record beside its keys and steps: spans of the id and of the deadline's digits,
# the deadline, and its call.
_ID_SPAN, _DEADLINE_SPAN, _DEADLINE, _CALLED = 0, 2, 4, 5
_NOTED: Final = _CALLED + CALL_TAKES

# What a record gave, by bit.
_ID_SEEN, _UPDATES_SEEN, _READS_SEEN, _DEADLINE_SEEN, _CALL_SEEN = 1, 2, 4, 8, 16
_CHECKS_SEEN: Final = 32

# In the place of how many updates a record has: it has a call; it is not plain.
_IS_CALL: Final = -2
_NOT_PLAIN: Final = (-1, -1, -1)

# The kinds of records that are told: those that compile to steps, and calls.
_STEPS, _CALLS = 1, 2

# In the place of whether a key is written: the key is that of a module, whose name is the span.
_OF_MODULE: Final = 4
_MODULES: Final = np.frombuffer(MODULES_PREFIX.encode(), np.uint8)


@leaf
def _is_deadline(data: Bytes, start: int, end: int) -> bool:
    """Return True if a name is `deadline_ms`, which is too long for `short_name`."""
    return (
        end - start == _DEADLINE_BYTES
        and short_name(data, start, start + 8) == _DEADLINE_HEAD
        and short_name(data, start + 8, end) == _DEADLINE_TAIL
    )


class _Draft(NamedTuple):
    """The fields read of one record.

    ``steps``: its updates (dtype STEP), and behind room for all of them a read. ``spans``: the key
    and the operand of each update. ``checks``, ``check_spans``: the same of its checks.
    ``reads``: the keys to read. ``call_reads``, ``call_keys``: the keys that its call may read, and
    write.
    """

    steps: Records
    spans: Ints
    checks: Records
    check_spans: Ints
    reads: Ints
    call_reads: Ints
    call_keys: Ints


class _Compiled(NamedTuple):
    """The arrays made of all records: spans of keys, whether they are written, and steps with the
    spans of their operands.
    """

    keys: Ints
    writes: Bytes
    steps: Records
    operands: Ints


@leaf
def _record(data: Bytes, at: int, end: int, noted: Ints, draft: _Draft) -> tuple[int, int, int]:
    """Read one record: (updates, reads, checks), or `_NOT_PLAIN`.

    Instead of updates it may have a call: then (`_IS_CALL`, reads, 0).
    """
    seen = 0
    updates, read, checks = 0, 0, 0
    at = after(data, at, end, c.OPEN_BRACE)
    while at >= 0:
        stop = text_end(data, at, end)
        if stop < 0:
            return _NOT_PLAIN
        start, name_end = at + 1, stop
        name = short_name(data, start, name_end)
        at = after(data, stop + 1, end, c.COLON)
        if at < 0:
            return _NOT_PLAIN
        if name == _ID and seen & _ID_SEEN == 0:
            seen |= _ID_SEEN
            stop = text_end(data, at, end)
            length = stop - at - 1
            if stop < 0 or length < 1 or length > ID_BYTES_MAX or data[at + 1] == RESERVED_BYTE:
                return _NOT_PLAIN
            noted[_ID_SPAN], noted[_ID_SPAN + 1] = at + 1, stop
            at = blank(data, stop + 1, end)
        elif name == _UPDATES and seen & _UPDATES_SEEN == 0:
            seen |= _UPDATES_SEEN
            at, updates = read_updates(data, at, end, draft.steps, draft.spans)
        elif name == _CALL and seen & _CALL_SEEN == 0:
            seen |= _CALL_SEEN
            at = read_call(data, at, end, noted[_CALLED:], draft.call_reads, draft.call_keys)
        elif name == _READS and seen & _READS_SEEN == 0:
            seen |= _READS_SEEN
            at, read = read_keys(data, at, end, draft.reads, True)
        elif name == _CHECKS and seen & _CHECKS_SEEN == 0:
            seen |= _CHECKS_SEEN
            at, checks = read_checks(data, at, end, draft.checks, draft.check_spans)
        elif seen & _DEADLINE_SEEN == 0 and _is_deadline(data, start, name_end):
            seen |= _DEADLINE_SEEN
            noted[_DEADLINE_SPAN] = at
            at, noted[_DEADLINE] = integer(data, at, end)
            noted[_DEADLINE_SPAN + 1] = at
            if at < 0 or noted[_DEADLINE] < 1:
                return _NOT_PLAIN
            at = blank(data, at, end)
        else:
            return _NOT_PLAIN
        at, goes_on = next_item(data, at, end, c.CLOSE_BRACE)
        if goes_on:
            continue
        if at != end or seen & _ID_SEEN == 0:
            return _NOT_PLAIN
        if seen & _CALL_SEEN != 0:
            is_plain = seen & _UPDATES_SEEN == 0 and checks == 0
            return (_IS_CALL, read, 0) if is_plain else _NOT_PLAIN
        return updates, read, checks
    return _NOT_PLAIN


@leaf
def _find(data: Bytes, spans: Ints, first: int, count: int, wanted: Ints) -> int:
    for k in range(count):
        if same(data, spans[first + k], wanted):
            return k
    return -1


@leaf
def _name_key(data: Bytes, out: _Compiled, first: int, count: int, key: Ints, write: int) -> int:
    """Note a key that a call touches; how many there are then, each once."""
    for k in range(first, first + count):
        if out.writes[k] != _OF_MODULE and same(data, out.keys[k], key):
            out.writes[k] |= write
            return count
    out.keys[first + count, 0], out.keys[first + count, 1] = key[0], key[1]
    out.writes[first + count] = write
    return count + 1


@leaf
def _emit_call(
    data: Bytes, noted: Ints, read: int, draft: _Draft, out: _Compiled, first: int
) -> int:
    """Write the keys of a record with a call behind the end of all before; the new end, or -1."""
    count = 0
    for k in range(read):
        if data[draft.reads[k, 0]] == RESERVED_BYTE:  # perhaps it is the key of the module
            return -1
        count = _name_key(data, out, first, count, draft.reads[k], 0)
    out.keys[first + count, 0], out.keys[first + count, 1] = noted[CALL_SPAN], noted[CALL_SPAN + 1]
    out.writes[first + count] = _OF_MODULE
    count += 1
    for k in range(noted[CALL_READS]):
        count = _name_key(data, out, first, count, draft.call_reads[k], 0)
    for k in range(noted[CALL_KEYS]):
        count = _name_key(data, out, first, count, draft.call_keys[k], 1)
    return first + count


@leaf
def _key_at(data: Bytes, out: _Compiled, first: int, count: int, key: Ints) -> tuple[int, int]:
    """Find a key among those of a record, or add it; its number, and how many there are then."""
    position = _find(data, out.keys, first, count, key)
    if position >= 0:
        return position, count
    out.keys[first + count, 0], out.keys[first + count, 1] = key[0], key[1]
    out.writes[first + count] = 0
    return count, count + 1


@leaf
def _emit_step(out: _Compiled, made: int, step: Any, spans: Ints) -> None:
    """Write the step ``made``; ``spans``: of its key and its operand."""
    out.steps[made] = step
    out.operands[made, 0], out.operands[made, 1] = spans[OPERAND_START], spans[OPERAND_END]


@leaf
def _emit_read(out: _Compiled, made: int, read: Any, key: int) -> None:
    """Write the step ``made``: to read the key numbered ``key``."""
    out.steps[made] = read
    out.steps[made].key = key
    out.operands[made, 0] = out.operands[made, 1] = 0


@leaf
def _emit(
    data: Bytes, counts: tuple[int, int, int], draft: _Draft, out: _Compiled, ends: tuple[int, int]
) -> tuple[int, int]:
    """Write a record's keys and steps behind the ends of all before; the new ends, or (-1, -1).

    ``counts``: how many updates, reads and checks there are.
    """
    updates, read, checks = counts
    at_key, made = ends
    steps, spans, reads, count = draft.steps, draft.spans, draft.reads, 0
    for k in range(checks):
        key = draft.check_spans[k, KEY_START:OPERAND_START]
        draft.checks[k].key, count = _key_at(data, out, at_key, count, key)
        _emit_step(out, made, draft.checks[k], draft.check_spans[k])
        made += 1
    for k in range(read):
        if _find(data, reads, 0, k, reads[k]) < 0:
            position, count = _key_at(data, out, at_key, count, reads[k])
            _emit_read(out, made, steps[_MOST], position)
            made += 1
    for k in range(updates):
        key = spans[k, KEY_START:OPERAND_START]
        position, count = _key_at(data, out, at_key, count, key)
        if out.writes[at_key + position] != 0:
            return -1, -1
        out.writes[at_key + position] = 1
        steps[k].key = position
        if steps[k].op == p.NEXT_ID and _find(data, reads, 0, read, key) < 0:
            _emit_read(out, made, steps[_MOST], position)
            made += 1
    for k in range(updates):
        _emit_step(out, made, steps[k], spans[k])
        made += 1
    return at_key + count, made


@kernel
def _scan(texts: Texts, draft: _Draft, out: _Compiled) -> tuple[Bytes, Ints, Ints, Ints]:
    data, offsets = texts.data, texts.offsets
    n = len(offsets) - 1
    kinds = np.zeros(n, np.uint8)
    noted = np.zeros((n, _NOTED), np.int64)
    key_ends = np.zeros(n, np.int64)
    step_ends = np.zeros(n, np.int64)
    ends = (0, 0)
    for i in range(n):
        if offsets[i + 1] - offsets[i] <= TRANSACTION_BYTES_MAX:
            counts = _record(data, offsets[i], offsets[i + 1], noted[i], draft)
            if counts[0] >= 0:
                after_it = _emit(data, counts, draft, out, ends)
                if after_it[0] >= 0:
                    kinds[i] = _STEPS
                    ends = after_it
            elif counts[0] == _IS_CALL:
                end = _emit_call(data, noted[i, _CALLED:], counts[1], draft, out, ends[0])
                if end >= 0:
                    kinds[i] = _CALLS
                    ends = (end, ends[1])
        key_ends[i], step_ends[i] = ends
    return kinds, noted, key_ends, step_ends


@kernel
def _cut_keys(data: Bytes, spans: Ints, writes: Bytes) -> tuple[Bytes, Ints]:
    """The keys of spans, one after the other, and their bounds; behind the prefix of modules where
    ``writes`` says so, which is then 0, as nobody writes these.
    """
    bounds = np.zeros(len(spans) + 1, np.int64)
    for i in range(len(spans)):
        size = len(_MODULES) if writes[i] == _OF_MODULE else 0
        bounds[i + 1] = bounds[i] + size + spans[i, 1] - spans[i, 0]
    out = np.empty(bounds[-1], np.uint8)
    for i in range(len(spans)):
        at = bounds[i]
        if writes[i] == _OF_MODULE:
            writes[i] = 0
            for j in range(len(_MODULES)):
                out[at + j] = _MODULES[j]
            at += len(_MODULES)
        copy_bytes(out, at, data, spans[i, 0], spans[i, 1] - spans[i, 0])
    return out, bounds


@dataclass(slots=True)
class Scanned:
    """The plain records among n: ``plain`` (n,) says which, the rest is of those, in order.

    ``calls``: which of them are calls; ``payloads``: the records of those. ``deadlines``: 0 for
    none. ``deadline_spans``: where their digits are in the buffer, (…, 2).
    """

    plain: npt.NDArray[np.bool_]
    calls: npt.NDArray[np.bool_]
    payloads: Ragged
    ids: Ragged
    key_counts: Ints
    keys: Ragged
    writes: Bytes
    step_counts: Ints
    steps: ProgramSteps
    deadlines: Ints
    deadline_spans: Ints


def scan(values: Ragged) -> Scanned:
    """Read the plain ones among records of the log."""
    data = values.data.view()
    data.flags.writeable = False
    values = Ragged(data, values.offsets)
    n = len(values)
    size = int(values.offsets[-1] - values.offsets[0])
    most = min((CHECKS_MAX + 2 * _MOST + 2 * CALL_KEYS_MAX + 1) * n, size // 4 + 1)
    draft = _Draft(
        np.zeros(_MOST + 1, p.STEP),
        np.empty((_MOST, 4), np.int64),
        np.zeros(CHECKS_MAX, p.STEP),
        np.empty((CHECKS_MAX, 4), np.int64),
        np.empty((_MOST, 2), np.int64),
        np.empty((CALL_KEYS_MAX, 2), np.int64),
        np.empty((CALL_KEYS_MAX, 2), np.int64),
    )
    draft.steps["op"][_MOST] = p.READ
    out = _Compiled(
        np.empty((most, 2), np.int64),
        np.zeros(most, np.uint8),
        np.empty(2 * most, p.STEP),
        np.empty((2 * most, 2), np.int64),
    )
    kinds, noted, key_ends, step_ends = _scan(values.texts(), draft, out)
    chosen = kinds != 0
    every = bool(chosen.all())
    key_counts, step_counts = _counts(key_ends), _counts(step_ends)
    if not every:
        kinds, noted = kinds[chosen], noted[chosen]
        key_counts, step_counts = key_counts[chosen], step_counts[chosen]
    k, s = int(key_counts.sum()), int(step_counts.sum())
    table = ProgramSteps.of(out.steps[:s], _operands(values, out.operands[:s]))
    calls, payloads = kinds == _CALLS, Ragged.empty()
    if calls.any():
        bounds = np.column_stack([values.offsets[:-1], values.offsets[1:]])
        payloads = Ragged(*cut(values.data, bounds[chosen][calls]))
    keys = Ragged(*_cut_keys(values.data, out.keys[:k], out.writes))
    return Scanned(
        chosen,
        calls,
        payloads,
        Ragged(*cut(values.data, noted)),
        key_counts,
        keys,
        out.writes[:k].copy(),
        step_counts,
        table,
        noted[:, _DEADLINE].copy(),
        noted[:, _DEADLINE_SPAN : _DEADLINE_SPAN + 2],
    )


def _counts(ends: Ints) -> Ints:
    """Return the differences of ends, of which the first is its own."""
    counts = ends.copy()
    counts[1:] -= ends[:-1]
    return counts


def _operands(values: Ragged, spans: Ints) -> Ragged:
    if not spans.any():
        return Ragged(np.empty(0, np.uint8), starts_of(np.zeros(len(spans), np.int64)))
    return Ragged(*cut(values.data, spans))

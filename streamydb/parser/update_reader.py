"""Kernels that read the updates of a plain record; see `scan`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.frames import characters as c
from streamydb.frames import program as p
from streamydb.frames.jit import leaf
from streamydb.frames.json_tokens import (
    after,
    blank,
    integer,
    next_item,
    short_name,
    text_end,
    word_of,
)
from streamydb.frames.table import Bytes
from streamydb.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX
from streamydb.records.names import RESERVED

Ints = npt.NDArray[np.int64]
Records = npt.NDArray[Any]

UPDATES_MAX: Final = 16
"""Most updates of a plain record."""

RESERVED_BYTE: Final = ord(RESERVED)
"""Keys and ids of the system begin with it."""

_OP, _KEY, _BY, _LOW = word_of("op"), word_of("key"), word_of("by"), word_of("min")
_HIGH, _VALUE, _PUT = word_of("max"), word_of("value"), word_of("put")
_DELETE, _ADD, _NEXT_ID = word_of("delete"), word_of("add"), word_of("next_id")

# Where the spans of an update begin and end: of its key, and of its operand.
KEY_START: Final = 0
KEY_END: Final = 1
OPERAND_START: Final = 2
OPERAND_END: Final = 3

# What an update gave, by bit.
_HAS_OP, _HAS_KEY, _HAS_BY, _HAS_MIN, _HAS_MAX, _HAS_VALUE, _HAS_TEXT = 1, 2, 4, 8, 16, 32, 64
_HAS_OP_AND_KEY = _HAS_OP | _HAS_KEY


@leaf
def clear(step: Any, spans: Ints, number: int) -> None:
    """Begin the step ``number`` of its list, without an operand."""
    spans[OPERAND_START] = spans[OPERAND_END] = 0
    step.a = step.low = step.high = 0
    step.op = step.flags = step.tag = step.pad = step.spare = 0
    step.index = number


@leaf
def _operation(word: np.uint64) -> int:
    if word == _PUT:
        return p.PUT
    if word == _ADD:
        return p.ADD
    if word == _DELETE:
        return p.DELETE
    if word == _NEXT_ID:
        return p.NEXT_ID
    if word == _HIGH:
        return p.MAX
    if word == _LOW:
        return p.MIN
    return 0


@leaf
def _fits(op: int, got: int) -> bool:
    """Return True if an update has what its operation needs, and nothing else."""
    rest = got & ~_HAS_OP_AND_KEY
    if got & _HAS_OP_AND_KEY != _HAS_OP_AND_KEY:
        return False
    if op == p.ADD:
        return rest & _HAS_BY != 0 and rest & ~(_HAS_BY | _HAS_MIN | _HAS_MAX) == 0
    if op == p.PUT:
        return rest & ~_HAS_TEXT == _HAS_VALUE
    if op == p.MAX or op == p.MIN:
        return rest == _HAS_VALUE
    return rest == 0 and op != 0


@leaf
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


@leaf
def _finish(step: Any, spans: Ints, op: int, got: int) -> None:
    """Fill in what follows from everything that an update has."""
    step.op = op
    step.flags = 0
    if op == p.PUT:
        step.flags = p.HAS_OPERAND
        step.tag = p.OPAQUE if got & _HAS_TEXT else p.INT
    else:
        spans[OPERAND_START] = spans[OPERAND_END] = 0
    if op == p.NEXT_ID:
        step.a = 1
    if got & _HAS_MIN:
        step.flags |= p.HAS_LOW
    if got & _HAS_MAX:
        step.flags |= p.HAS_HIGH


@leaf
def _update(data: Bytes, at: int, end: int, step: Any, spans: Ints) -> int:
    """Read one update into ``step`` and ``spans`` (key, operand); the position behind, or -1."""
    got = 0
    op = 0
    at = after(data, at, end, c.OPEN_BRACE)
    while at >= 0:
        stop = text_end(data, at, end)
        if stop < 0:
            return -1
        name = short_name(data, at + 1, stop)
        at = after(data, stop + 1, end, c.COLON)
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
                spans[KEY_START], spans[KEY_END] = at + 1, stop
            at = stop + 1
        elif name == _VALUE and at < end and data[at] == c.QUOTE:
            bit = _HAS_VALUE | _HAS_TEXT
            stop = text_end(data, at, end)
            if stop < 0 or stop + 1 - at > VALUE_BYTES_MAX:
                return -1
            spans[OPERAND_START], spans[OPERAND_END] = at, stop + 1
            at = stop + 1
        else:
            start = at
            at, value = integer(data, at, end)
            bit = _number_of(name, value, step)
            if at < 0 or bit == 0:
                return -1
            if bit == _HAS_VALUE:
                spans[OPERAND_START], spans[OPERAND_END] = start, at
        if got & bit != 0:
            return -1
        got |= bit
        at, goes_on = next_item(data, at, end, c.CLOSE_BRACE)
        if goes_on:
            continue
        length = spans[KEY_END] - spans[KEY_START]
        if at < 0 or not _fits(op, got) or length < 1 or length > KEY_BYTES_MAX:
            return -1
        if data[spans[KEY_START]] == RESERVED_BYTE:
            return -1
        _finish(step, spans, op, got)
        return at
    return -1


@leaf
def read_updates(data: Bytes, at: int, end: int, steps: Records, spans: Ints) -> tuple[int, int]:
    """Read the list of updates: (position behind, how many), or (-1, 0)."""
    count = 0
    at = after(data, at, end, c.OPEN_BRACKET)
    if at >= 0 and at < end and data[at] == c.CLOSE_BRACKET:
        return blank(data, at + 1, end), 0
    while at >= 0 and count < UPDATES_MAX:
        step = steps[count]
        clear(step, spans[count], count)
        at = _update(data, at, end, step, spans[count])
        count += 1
        at, goes_on = next_item(data, at, end, c.CLOSE_BRACKET)
        if goes_on:
            continue
        return at, count
    return -1, 0

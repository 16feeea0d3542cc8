"""Kernels that read the checks of a plain record; see `scan`.

A plain check names a key and one comparison: of its version, of whether it exists, or of its value
with an integer or, for equality, with a text.
"""

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
from streamydb.parser.update_reader import KEY_END, KEY_START, OPERAND_END, OPERAND_START, clear

Ints = npt.NDArray[np.int64]
Records = npt.NDArray[Any]

CHECKS_MAX: Final = 16
"""Most checks of a plain record."""

_KEY, _VERSION, _EXISTS = word_of("key"), word_of("version"), word_of("exists")
_EQ, _NE, _LT, _LE, _GT, _GE = (word_of(name) for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_TRUE, _FALSE = word_of("true"), word_of("false")


@leaf
def _comparison(word: np.uint64) -> int:
    if word == _VERSION:
        return p.C_VERSION
    if word == _EXISTS:
        return p.C_EXISTS
    if word == _EQ:
        return p.C_EQ
    if word == _NE:
        return p.C_NE
    if word == _LT:
        return p.C_LT
    if word == _LE:
        return p.C_LE
    if word == _GT:
        return p.C_GT
    if word == _GE:
        return p.C_GE
    return 0


@leaf
def _truth(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """(position behind, 1 or 0) of true or false, or (-1, 0)."""
    if at + 4 <= end and short_name(data, at, at + 4) == _TRUE:
        return at + 4, 1
    if at + 5 <= end and short_name(data, at, at + 5) == _FALSE:
        return at + 5, 0
    return -1, 0


@leaf
def _compare(data: Bytes, at: int, end: int, op: int, step: Any, spans: Ints) -> int:
    """Read with what a comparison compares; the position behind, or -1."""
    start = at
    if op == p.C_EXISTS:
        at, step.a = _truth(data, at, end)
        return at
    if op == p.C_EQ or op == p.C_NE:
        step.flags = p.HAS_OPERAND
        if at < end and data[at] == c.QUOTE:
            stop = text_end(data, at, end)
            if stop < 0 or stop + 1 - at > VALUE_BYTES_MAX:
                return -1
            at = stop + 1
            step.tag = p.OPAQUE
        else:
            at, step.a = integer(data, at, end)
            step.tag = p.INT
        spans[OPERAND_START], spans[OPERAND_END] = start, at
        return at
    at, step.a = integer(data, at, end)
    return -1 if op == 0 or (op == p.C_VERSION and step.a < 0) else at


@leaf
def _check(data: Bytes, at: int, end: int, step: Any, spans: Ints) -> int:
    """Read one check into ``step`` and ``spans`` (key, operand); the position behind, or -1."""
    has_key = False
    at = after(data, at, end, c.OPEN_BRACE)
    while at >= 0:
        stop = text_end(data, at, end)
        if stop < 0:
            return -1
        name = short_name(data, at + 1, stop)
        at = after(data, stop + 1, end, c.COLON)
        if at < 0:
            return -1
        if name == _KEY and not has_key:
            has_key = True
            stop = text_end(data, at, end)
            length = stop - at - 1
            if stop < 0 or length < 1 or length > KEY_BYTES_MAX:
                return -1
            spans[KEY_START], spans[KEY_END] = at + 1, stop
            at = stop + 1
        elif step.op == 0:
            step.op = _comparison(name)
            at = _compare(data, at, end, step.op, step, spans)
        else:
            return -1
        at, goes_on = next_item(data, at, end, c.CLOSE_BRACE)
        if goes_on:
            continue
        return at if has_key and step.op != 0 else -1
    return -1


@leaf
def read_checks(data: Bytes, at: int, end: int, steps: Records, spans: Ints) -> tuple[int, int]:
    """Read the list of checks: (position behind, how many), or (-1, 0)."""
    count = 0
    at = after(data, at, end, c.OPEN_BRACKET)
    if at >= 0 and at < end and data[at] == c.CLOSE_BRACKET:
        return blank(data, at + 1, end), 0
    while at >= 0 and count < CHECKS_MAX:
        step = steps[count]
        clear(step, spans[count], count)
        at = _check(data, at, end, step, spans[count])
        count += 1
        at, goes_on = next_item(data, at, end, c.CLOSE_BRACKET)
        if goes_on:
            continue
        return at, count
    return -1, 0

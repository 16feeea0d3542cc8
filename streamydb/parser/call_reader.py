"""Kernels that read the call of a plain record; see `scan`.

A plain call names a procedure, arguments without fractions, escapes and deep nesting, and at most
`CALL_KEYS_MAX` keys of each kind. It has no ranges, and takes no batch of a workflow.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.frames import characters as c
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
from streamydb.limits import KEY_BYTES_MAX, PROCEDURE_NAME_CHARACTERS_MAX
from streamydb.records.names import RESERVED

Ints = npt.NDArray[np.int64]

CALL_KEYS_MAX: Final = 256
"""Most keys that a plain call may write, and most that it may only read."""

# What is noted of a call: the span of its module's name, and how many keys it reads and writes.
CALL_SPAN: Final = 0
CALL_READS: Final = 2
CALL_KEYS: Final = 3
CALL_TAKES: Final = 4

_NESTED_MAX: Final = 16
_RESERVED: Final = ord(RESERVED)
_ARGS, _KEYS, _READS = word_of("args"), word_of("keys"), word_of("reads")
_PROCEDURE_HEAD, _PROCEDURE_TAIL = word_of("procedur"), word_of("e")
_PROCEDURE_BYTES: Final = len("procedure")
_TRUE, _FALSE, _NULL = word_of("true"), word_of("false"), word_of("null")
_UPPER_A, _UPPER_Z, _LOWER_Z, _UNDERSCORE = ord("A"), ord("Z"), ord("z"), ord("_")

# What a call gave, by bit.
_HAS_PROCEDURE, _HAS_ARGS, _HAS_KEYS, _HAS_READS = 1, 2, 4, 8


@leaf
def read_keys(
    data: Bytes,
    at: int,
    end: int,
    spans: Ints,
    reserved: bool,  # noqa: FBT001 - numba names none
) -> tuple[int, int]:
    """Read a list of keys, at most as many as ``spans`` has room for: (position behind, how many),
    or (-1, 0).

    ``reserved``: whether keys of the system may be among them.
    """
    count = 0
    at = after(data, at, end, c.OPEN_BRACKET)
    if at >= 0 and at < end and data[at] == c.CLOSE_BRACKET:
        return blank(data, at + 1, end), 0
    while at >= 0 and count < len(spans):
        stop = text_end(data, at, end)
        length = stop - at - 1
        if stop < 0 or length < 1 or length > KEY_BYTES_MAX:
            return -1, 0
        if data[at + 1] == _RESERVED and not reserved:
            return -1, 0
        spans[count, 0], spans[count, 1] = at + 1, stop
        count += 1
        at, goes_on = next_item(data, stop + 1, end, c.CLOSE_BRACKET)
        if goes_on:
            continue
        return at, count
    return -1, 0


@leaf
def _name_end(data: Bytes, at: int, end: int) -> int:
    """The position behind a name of a module or a procedure, or -1."""
    start = at
    while at < end:
        byte = data[at]
        letter = (byte >= c.LOWER_A and byte <= _LOWER_Z) or (byte >= _UPPER_A and byte <= _UPPER_Z)
        digit = byte >= c.ZERO and byte <= c.NINE and at > start
        if not (letter or digit or byte == _UNDERSCORE):
            break
        at += 1
    return at if 0 < at - start <= PROCEDURE_NAME_CHARACTERS_MAX else -1


@leaf
def _procedure(data: Bytes, at: int, end: int, noted: Ints) -> int:
    """Read the text ``module.name``; note the span of the module."""
    stop = text_end(data, at, end)
    if stop < 0:
        return -1
    dot = _name_end(data, at + 1, stop)
    if dot < 0 or dot >= stop or data[dot] != c.DOT or _name_end(data, dot + 1, stop) != stop:
        return -1
    noted[CALL_SPAN], noted[CALL_SPAN + 1] = at + 1, dot
    return blank(data, stop + 1, end)


@leaf
def _scalar_end(data: Bytes, at: int, end: int) -> int:
    """The position behind a text, an integer, true, false or null; or -1."""
    if at >= end:
        return -1
    if data[at] == c.QUOTE:
        stop = text_end(data, at, end)
        return -1 if stop < 0 else stop + 1
    if data[at] == c.MINUS or (data[at] >= c.ZERO and data[at] <= c.NINE):
        return integer(data, at, end)[0]
    if at + 5 <= end and short_name(data, at, at + 5) == _FALSE:
        return at + 5
    if at + 4 <= end:
        word = short_name(data, at, at + 4)
        if word == _TRUE or word == _NULL:
            return at + 4
    return -1


@leaf
def _member(data: Bytes, at: int, end: int) -> int:
    """The position of the value behind a name of an object, or -1."""
    stop = text_end(data, at, end)
    return -1 if stop < 0 else after(data, stop + 1, end, c.COLON)


@leaf
def _object_end(data: Bytes, at: int, end: int) -> int:
    """The position behind an object, whatever is in it, and blanks; or -1 if it is not plain."""
    if at >= end or data[at] != c.OPEN_BRACE:
        return -1
    depth, objects = 0, 0  # whether each level is an object, by bit, the innermost lowest
    while at >= 0 and at < end:
        byte = data[at]
        if byte == c.OPEN_BRACE or byte == c.OPEN_BRACKET:
            depth += 1
            if depth > _NESTED_MAX:
                return -1
            objects = 2 * objects + (1 if byte == c.OPEN_BRACE else 0)
            at = blank(data, at + 1, end)
            empty = c.CLOSE_BRACE if objects & 1 else c.CLOSE_BRACKET
            if at < end and data[at] != empty:
                if objects & 1:
                    at = _member(data, at, end)
                continue
        else:
            at = _scalar_end(data, at, end)
            if at < 0:
                return -1
            at = blank(data, at, end)
        while at < end:  # behind a value, or before the end of an empty list or object
            close = c.CLOSE_BRACE if objects & 1 else c.CLOSE_BRACKET
            if data[at] != close:
                break
            at = blank(data, at + 1, end)
            objects //= 2
            depth -= 1
            if depth == 0:
                return at
        if at >= end or data[at] != c.COMMA:
            return -1
        at = blank(data, at + 1, end)
        if objects & 1:
            at = _member(data, at, end)
    return -1


@leaf
def _is_procedure(data: Bytes, start: int, end: int) -> bool:
    """Return True if a name is `procedure`, which is too long for `short_name`."""
    return (
        end - start == _PROCEDURE_BYTES
        and short_name(data, start, start + 8) == _PROCEDURE_HEAD
        and short_name(data, start + 8, end) == _PROCEDURE_TAIL
    )


@leaf
def read_call(data: Bytes, at: int, end: int, noted: Ints, reads: Ints, keys: Ints) -> int:
    """Read a call: the position behind it and blanks, or -1.

    ``noted``: of length `CALL_TAKES`. ``reads``, ``keys``: spans of the keys, shape (n, 2).
    """
    seen = 0
    at = after(data, at, end, c.OPEN_BRACE)
    while at >= 0:
        stop = text_end(data, at, end)
        if stop < 0:
            return -1
        start, name_end = at + 1, stop
        name = short_name(data, start, name_end)
        at = after(data, stop + 1, end, c.COLON)
        if at < 0:
            return -1
        if name == _ARGS and seen & _HAS_ARGS == 0:
            seen |= _HAS_ARGS
            at = _object_end(data, at, end)
        elif name == _KEYS and seen & _HAS_KEYS == 0:
            seen |= _HAS_KEYS
            at, noted[CALL_KEYS] = read_keys(data, at, end, keys, False)
        elif name == _READS and seen & _HAS_READS == 0:
            seen |= _HAS_READS
            at, noted[CALL_READS] = read_keys(data, at, end, reads, False)
        elif seen & _HAS_PROCEDURE == 0 and _is_procedure(data, start, name_end):
            seen |= _HAS_PROCEDURE
            at = _procedure(data, at, end, noted)
        else:
            return -1
        at, goes_on = next_item(data, at, end, c.CLOSE_BRACE)
        if goes_on:
            continue
        return at if seen & _HAS_PROCEDURE else -1
    return -1

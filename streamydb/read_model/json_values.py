"""A kernel that finds where a JSON value ends, whatever it holds, as far as it is plain."""

from __future__ import annotations

from typing import Final

import numpy as np

from streamydb.frames import characters as c
from streamydb.frames.jit import leaf
from streamydb.frames.json_tokens import short_name, word_of
from streamydb.frames.table import Bytes

_DEPTH_MAX: Final = 60
_FAILED: Final = -1
_NULL, _TRUE, _FALSE = word_of("null"), word_of("true"), word_of("false")


@leaf
def _digits(data: Bytes, at: int, end: int) -> int:
    """Behind one or more digits, or -1."""
    start = at
    while at < end and c.ZERO <= data[at] <= c.NINE:
        at += 1
    return at if at > start else _FAILED


@leaf
def _number(data: Bytes, at: int, end: int) -> int:
    """Behind a number, or -1."""
    if data[at] == c.MINUS:
        at += 1
    first = at
    at = _digits(data, at, end)
    if at < 0 or (data[first] == c.ZERO and at > first + 1):
        return _FAILED
    if at < end and data[at] == c.DOT:
        at = _digits(data, at + 1, end)
    if 0 <= at < end and (data[at] == c.LOWER_E or data[at] == c.UPPER_E):
        at += 1
        if at < end and (data[at] == c.MINUS or data[at] == c.PLUS):
            at += 1
        at = _digits(data, at, end)
    return at


@leaf
def _text(data: Bytes, at: int, end: int) -> int:
    """Behind a text of ASCII characters and short escapes, or -1."""
    if at >= end or data[at] != c.QUOTE:
        return _FAILED
    at += 1
    while at < end:
        byte = data[at]
        if byte == c.QUOTE:
            return at + 1
        if byte < c.SPACE or byte > c.TILDE:
            return _FAILED
        if byte == c.BACKSLASH:
            at += 1
            if at >= end or not _is_escape(data[at]):
                return _FAILED
        at += 1
    return _FAILED


@leaf
def _is_escape(byte: int) -> bool:
    return (
        byte == c.QUOTE or byte == c.BACKSLASH or byte == c.LOWER_B or byte == c.LOWER_F
        or byte == c.LOWER_N or byte == c.LOWER_R or byte == c.LOWER_T
    )  # fmt: skip


@leaf
def _name(data: Bytes, at: int, end: int) -> int:
    """Behind the name of a field and its colon, or -1."""
    at = _text(data, at, end)
    return at + 1 if 0 <= at < end and data[at] == c.COLON else _FAILED


@leaf
def _word(data: Bytes, at: int, end: int) -> int:
    """Behind `null`, `true` or `false`, or -1."""
    four = short_name(data, at, min(at + 4, end))
    if four == _NULL or four == _TRUE:
        return at + 4
    return at + 5 if short_name(data, at, min(at + 5, end)) == _FALSE else _FAILED


@leaf
def value_end(data: Bytes, at: int, end: int) -> int:
    r"""The position behind the JSON value at ``at``, or -1 if there is none or it is not plain.

    Plain: no blanks between its parts, ASCII characters, no \u escapes, not nested too deeply.
    """
    depth, objects = 0, np.uint64(0)
    while 0 <= at < end:
        byte = data[at]
        opens = byte == c.OPEN_BRACE or byte == c.OPEN_BRACKET
        if opens:
            depth += 1
            if depth > _DEPTH_MAX or at + 1 >= end:
                return _FAILED
            objects = objects << np.uint64(1) | np.uint64(byte == c.OPEN_BRACE)
            at += 1
            if data[at] != c.CLOSE_BRACE and data[at] != c.CLOSE_BRACKET:
                if byte == c.OPEN_BRACE:
                    at = _name(data, at, end)
                continue
        elif byte == c.QUOTE:
            at = _text(data, at, end)
        elif byte == c.MINUS or c.ZERO <= byte <= c.NINE:
            at = _number(data, at, end)
        else:
            at = _word(data, at, end)
        while depth > 0:
            if at < 0 or at >= end:
                return _FAILED
            inside = objects & np.uint64(1) == np.uint64(1)
            if data[at] == c.COMMA and not opens:
                at = _name(data, at + 1, end) if inside else at + 1
                break
            if data[at] != (c.CLOSE_BRACE if inside else c.CLOSE_BRACKET):
                return _FAILED
            opens = False
            depth -= 1
            objects >>= np.uint64(1)
            at += 1
        else:
            return at
    return _FAILED

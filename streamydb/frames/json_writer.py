"""Kernels that write JSON: texts, integers, strings with their escapes, tagged values.

All of them take the buffer and a position in it, and return the position behind what they wrote.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames import characters as c
from streamydb.frames import program as p
from streamydb.frames.jit import copy_bytes, kernel, leaf
from streamydb.frames.table import Bytes, Ragged, Texts

Ints = npt.NDArray[np.int64]

ESCAPED_BYTES: Final = 6
"""What a character takes at most when it is escaped."""


class JsonValues(NamedTuple):
    """Tagged values: an integer is in ``number``, any other in the texts, canonical."""

    tag: Bytes
    number: Ints
    data: Bytes
    offsets: Ints


@leaf
def put_text(out: Bytes, at: int, texts: Texts, i: int) -> int:
    """Write text ``i``; like all of these, return the position behind it."""
    start, end = texts.offsets[i], texts.offsets[i + 1]
    copy_bytes(out, at, texts.data, start, end - start)
    return at + end - start  # type: ignore[no-any-return]


@leaf
def put_number(out: Bytes, at: int, value: int) -> int:
    """Write an integer."""
    if value < 0:
        out[at] = c.MINUS
        at += 1
        rest = np.uint64(-(value + 1)) + np.uint64(1)
    else:
        rest = np.uint64(value)
    digits = 1
    probe = rest
    while probe >= np.uint64(10):
        probe //= np.uint64(10)
        digits += 1
    for j in range(digits):
        out[at + digits - 1 - j] = np.uint8(c.ZERO) + np.uint8(rest % np.uint64(10))
        rest //= np.uint64(10)
    return at + digits


@leaf
def _hexadecimal(digit: int) -> int:
    return c.ZERO + digit if digit < 10 else c.LOWER_A + digit - 10


@leaf
def _short_escape(byte: int) -> int:
    """The character behind the backslash of a short escape, 0 when there is none."""
    if byte == c.QUOTE or byte == c.BACKSLASH:
        return byte
    if byte == c.BACKSPACE:
        return c.LOWER_B
    if byte == c.TAB:
        return c.LOWER_T
    if byte == c.LINE_FEED:
        return c.LOWER_N
    if byte == c.FORM_FEED:
        return c.LOWER_F
    if byte == c.RETURN:
        return c.LOWER_R
    return 0


@leaf
def put_character(out: Bytes, at: int, byte: int) -> int:
    """Write a byte of a text inside a JSON string, escaped where it must be."""
    if byte >= c.SPACE and byte != c.QUOTE and byte != c.BACKSLASH:
        out[at] = byte
        return at + 1
    out[at] = c.BACKSLASH
    short = _short_escape(byte)
    if short != 0:
        out[at + 1] = short
        return at + 2
    out[at + 1], out[at + 2], out[at + 3] = c.LOWER_U, c.ZERO, c.ZERO
    out[at + 4], out[at + 5] = _hexadecimal(byte >> 4), _hexadecimal(byte & 15)
    return at + 6


@leaf
def _put_string(out: Bytes, at: int, texts: Texts, i: int) -> int:
    """Write text ``i`` as a JSON string with its quotes."""
    out[at] = c.QUOTE
    at += 1
    for j in range(texts.offsets[i], texts.offsets[i + 1]):
        at = put_character(out, at, texts.data[j])
    out[at] = c.QUOTE
    return at + 1


@kernel
def _json_strings(texts: Texts) -> tuple[Bytes, Ints]:
    n = len(texts.offsets) - 1
    size = ESCAPED_BYTES * (texts.offsets[n] - texts.offsets[0]) + 2 * n
    out = np.empty(size, np.uint8)
    bounds = np.zeros(n + 1, np.int64)
    at = 0
    for i in range(n):
        at = _put_string(out, at, texts, i)
        bounds[i + 1] = at
    return out[:at].copy(), bounds


def json_strings(texts: Ragged) -> Ragged:
    """Each UTF-8 text as a JSON string with quotes and escapes."""
    return Ragged(*_json_strings(texts.texts()))


@leaf
def put_value(out: Bytes, at: int, values: JsonValues, i: int) -> int:
    """Write value ``i``."""
    if values.tag[i] == p.INT:
        return put_number(out, at, values.number[i])
    if values.tag[i] != p.ABSENT:
        start, end = values.offsets[i], values.offsets[i + 1]
        copy_bytes(out, at, values.data, start, end - start)
        return at + end - start  # type: ignore[no-any-return]
    out[at], out[at + 1], out[at + 2], out[at + 3] = c.LOWER_N, c.LOWER_U, c.LOWER_L, c.LOWER_L
    return at + 4

"""Kernels that read JSON's tokens in their plainest form; see `scan`.

All of them take the buffer, a position and its end, and return the position behind what they read,
or -1 when that is not there or not plain.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.frames import characters as c
from streamydb.frames import program as p
from streamydb.frames.jit import copy_bytes, kernel, leaf
from streamydb.frames.table import Bytes
from streamydb.limits import INTEGER_MAX, INTEGER_MIN

Ints = npt.NDArray[np.int64]

# So many digits always fit in 64 bits; `compile` reads longer numbers.
_DIGITS_MAX: Final = 18
"""Of an integer that fits whatever its digits are."""

_CANONICAL_DIGITS_MAX: Final = 19


@leaf
def blank(data: Bytes, at: int, end: int) -> int:
    """The first position from ``at`` on that is not whitespace."""
    while at < end and (
        data[at] == c.SPACE or data[at] == c.LINE_FEED or data[at] == c.RETURN or data[at] == c.TAB
    ):
        at += 1
    return at


@leaf
def after(data: Bytes, at: int, end: int, mark: int) -> int:
    """Behind ``mark`` and the blanks around it, or -1."""
    at = blank(data, at, end)
    if at >= end or data[at] != mark:
        return -1
    return blank(data, at + 1, end)


@leaf
def next_item(data: Bytes, at: int, end: int, closing: int) -> tuple[int, bool]:
    """Behind a comma, and that an item follows; or behind ``closing``, and that none does.

    The position is -1 if neither is there, and if ``at`` is -1 already.
    """
    if at < 0:
        return -1, False
    at = blank(data, at, end)
    if at < end and data[at] == c.COMMA:
        return blank(data, at + 1, end), True
    return after(data, at, end, closing), False


@leaf
def text_end(data: Bytes, at: int, end: int) -> int:
    """The closing quote of a plain text whose opening quote is at ``at``, or -1."""
    if at >= end or data[at] != c.QUOTE:
        return -1
    at += 1
    while at < end:
        byte = data[at]
        if byte == c.QUOTE:
            return at
        if byte < c.SPACE or byte > c.TILDE or byte == c.BACKSLASH:
            return -1
        at += 1
    return -1


def word_of(name: str) -> np.uint64:
    """Return what `short_name` makes of a name of at most 8 bytes."""
    return np.uint64(int.from_bytes(name.encode(), "little"))


@leaf
def short_name(data: Bytes, start: int, end: int) -> np.uint64:
    """A text of at most 8 bytes as a number, 0 for others."""
    word = np.uint64(0)
    if end - start <= 8:
        for j in range(start, end):
            word |= np.uint64(data[j]) << np.uint64(8 * (j - start))
    return word


@leaf
def integer(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """(position behind, value) of an integer of at most 18 digits in canonical form, or (-1, 0)."""
    negative = at < end and data[at] == c.MINUS
    if negative:
        at += 1
    first = at
    value = 0
    while at < end and data[at] >= c.ZERO and data[at] <= c.NINE:
        value = value * 10 + (data[at] - c.ZERO)
        at += 1
        if at - first > _DIGITS_MAX:
            return -1, 0
    digits = at - first
    if digits == 0 or (data[first] == c.ZERO and (digits > 1 or negative)):
        return -1, 0
    if at < end and (data[at] == c.DOT or data[at] == c.LOWER_E or data[at] == c.UPPER_E):
        return -1, 0
    return (at, -value) if negative else (at, value)


@leaf
def same(data: Bytes, left: Ints, right: Ints) -> bool:
    """Return True if two spans hold the same text."""
    length = left[1] - left[0]
    if right[1] - right[0] != length:
        return False
    for j in range(length):
        if data[left[0] + j] != data[right[0] + j]:
            return False
    return True


@kernel
def cut(data: Bytes, spans: Ints) -> tuple[Bytes, Ints]:
    """The texts of spans, shape (n, 2), one after the other, and their bounds."""
    bounds = np.zeros(len(spans) + 1, np.int64)
    for i in range(len(spans)):
        bounds[i + 1] = bounds[i] + spans[i, 1] - spans[i, 0]
    out = np.empty(bounds[-1], np.uint8)
    for i in range(len(spans)):
        copy_bytes(out, bounds[i], data, spans[i, 0], spans[i, 1] - spans[i, 0])
    return out, bounds


@leaf
def _parse_int(data: Bytes, start: int, end: int) -> tuple[Any, Any]:
    """Read a canonical integer; False when the text is not one that fits in 64 bits."""
    at = start
    negative = data[at] == c.MINUS
    if negative:
        at += 1
    if at == end or end - at > _CANONICAL_DIGITS_MAX:
        return False, 0
    value = np.uint64(0)
    for j in range(at, end):
        digit = data[j]
        if digit < c.ZERO or digit > c.NINE:
            return False, 0
        value = value * np.uint64(10) + np.uint64(digit - c.ZERO)
    bound = np.uint64(INTEGER_MAX)
    if value > bound:
        return negative and value == bound + np.uint64(1), np.int64(INTEGER_MIN)
    return True, -np.int64(value) if negative else np.int64(value)


@kernel
def parse_ints(
    data: Bytes, offsets: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Tags (ABSENT for empty, INT, OPAQUE) and integers of canonical JSON texts; shapes (n,)."""
    n = len(offsets) - 1
    tags = np.zeros(n, np.uint8)
    ints = np.zeros(n, np.int64)
    for i in range(n):
        if offsets[i] == offsets[i + 1]:
            continue
        ok, value = _parse_int(data, offsets[i], offsets[i + 1])
        tags[i] = p.INT if ok else p.OPAQUE
        ints[i] = value if ok else 0
    return tags, ints

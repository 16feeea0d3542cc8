"""Kernels that read JSON's tokens in their plainest form; see `scan`.

All of them take the buffer, a position and its end, and return the position behind what they read,
or -1 when that is not there or not plain.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.columns.jit import copy_bytes, kernel
from streamydb.columns.table import Bytes

__all__ = ["after", "blank", "cut", "integer", "same", "short_name", "text_end"]

Ints = npt.NDArray[np.int64]

# So many digits always fit in 64 bits; `compile` reads longer numbers.
_DIGITS_MAX: Final = 18


@kernel
def blank(data: Bytes, at: int, end: int) -> int:
    """The first position from ``at`` on that is not whitespace."""
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@kernel
def after(data: Bytes, at: int, end: int, mark: int) -> int:
    """Behind ``mark`` and the blanks around it, or -1."""
    at = blank(data, at, end)
    if at >= end or data[at] != mark:
        return -1
    return blank(data, at + 1, end)


@kernel
def text_end(data: Bytes, at: int, end: int) -> int:
    """The closing quote of a plain text whose opening quote is at ``at``, or -1."""
    if at >= end or data[at] != 34:
        return -1
    at += 1
    while at < end:
        c = data[at]
        if c == 34:
            return at
        if c < 32 or c > 126 or c == 92:
            return -1
        at += 1
    return -1


@kernel
def short_name(data: Bytes, start: int, end: int) -> np.uint64:
    """A text of at most 8 bytes as a number, 0 for others."""
    word = np.uint64(0)
    if end - start <= 8:
        for j in range(start, end):
            word |= np.uint64(data[j]) << np.uint64(8 * (j - start))
    return word


@kernel
def integer(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """(position behind, value) of an integer of at most 18 digits in canonical form, or (-1, 0)."""
    negative = at < end and data[at] == 45
    if negative:
        at += 1
    first = at
    value = 0
    while at < end and data[at] >= 48 and data[at] <= 57:
        value = value * 10 + (data[at] - 48)
        at += 1
        if at - first > _DIGITS_MAX:
            return -1, 0
    digits = at - first
    if digits == 0 or (data[first] == 48 and (digits > 1 or negative)):
        return -1, 0
    if at < end and (data[at] == 46 or data[at] == 101 or data[at] == 69):
        return -1, 0
    return (at, -value) if negative else (at, value)


@kernel
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

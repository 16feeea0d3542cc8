"""Integers in as few bytes as they need, because moving bytes costs more than narrowing them.

A column of a plan is often constant (partition, kind), in steps (offsets), or small (amounts,
lengths). So an array is stored as its least value and unsigned distances from it, or as its first
value and the distances of its differences, whichever is narrower; a width of 0 is a constant.
Everything else, and every short array, is stored as it is.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamydb.errors import RecordError
from streamydb.frames.jit import kernel

Ints = npt.NDArray[np.int64]
Layout = tuple[str, str, int, int, int]
"""dtype, codec (r, n, d), bytes stored per element, base, step."""

_KINDS: Final = {kind: np.dtype(kind) for kind in "|u1 |i1 |b1 <u2 <i2 <u4 <i4 <u8 <i8 <f8".split()}
_PLAINLY: Final = {dtype: (kind, "r", dtype.itemsize, 0, 0) for kind, dtype in _KINDS.items()}
# For fewer elements narrowing costs more than it saves.
_SHORT: Final = 32
_SPAN_MAX: Final = 2**62
_LENGTH_MAX: Final = 2**27
_WIDTHS: Final = ((0, 0), (1, 8), (2, 16), (4, 32))
_STORED: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@kernel
def _measure(array: Any) -> tuple[Any, Any]:
    low, high = array[0], array[0]
    for value in array:
        low = min(low, value)
        high = max(high, value)
    return low, high


@kernel
def _measure_steps(array: Any) -> tuple[Any, Any]:
    low = high = np.int64(array[1]) - np.int64(array[0])
    for i in range(1, len(array)):
        step = np.int64(array[i]) - np.int64(array[i - 1])
        low = min(low, step)
        high = max(high, step)
    return low, high


def _width(span: int) -> int:
    return next((width for width, bits in _WIDTHS if span < 1 << bits), 8)


def narrow(array: npt.NDArray[Any]) -> tuple[Layout, bytes | memoryview]:
    """Return how a one-dimensional array is stored, and the bytes."""
    dtype = array.dtype
    plainly = _PLAINLY.get(dtype) or (dtype.str, "r", dtype.itemsize, 0, 0)
    if len(array) < _SHORT:
        return plainly, array.tobytes()
    kind, _, size, _, _ = plainly
    array = np.ascontiguousarray(array)
    plain = plainly, array.view(np.uint8).data
    if dtype.kind not in "iu" or kind == "<u8":
        return plain
    low, high = map(int, _measure(array))
    span = high - low
    width = _width(span)
    if width and size > 1 and span < _SPAN_MAX:
        smallest, largest = map(int, _measure_steps(array))
        if _width(largest - smallest) < width:
            wide = array.astype(np.int64, copy=False)
            stored = _packed(wide[1:] - wide[:-1], smallest, largest - smallest)
            return (kind, "d", _width(largest - smallest), int(array[0]), smallest), stored
    if width >= size:
        return plain
    return (kind, "n", width, low, 0), _packed(array.astype(np.int64, copy=False), low, span)


def _packed(values: Ints, base: int, span: int) -> memoryview:
    width = _width(span)
    if not width:
        return memoryview(b"")
    return (values - base).astype(_STORED[width]).view(np.uint8).data


def stored_bytes(codec: str, width: int, length: int) -> int:
    """Return how many bytes :func:`narrow` made of an array of ``length`` elements."""
    return width * (max(length - 1, 0) if codec == "d" else length)


def widen(layout: Layout, length: int, data: bytes | memoryview) -> npt.NDArray[Any]:
    """The array again, writable; ``data`` is what was stored.
    Raises RecordError: the layout is not one of :func:`narrow`.
    """
    kind, codec, width, base, step = layout
    dtype = _KINDS.get(kind)
    if dtype is None:
        raise RecordError("a block has an array of a kind that is not known")
    if codec == "r" and width == dtype.itemsize:
        return np.ndarray(length, dtype, bytearray(data))
    if dtype.kind not in "iu" or not 0 <= length <= _LENGTH_MAX or width not in (0, 1, 2, 4):
        raise RecordError("a block has an array of a kind that is not known")
    if codec == "n":
        if not width:
            return np.full(length, base, dtype)
        numbers = np.frombuffer(data, _STORED[width], length).astype(np.int64)
        numbers += base
        return numbers.astype(dtype, copy=False)
    if codec != "d" or length < 1:
        raise RecordError("a block has an array of a kind that is not known")
    numbers = np.full(length, step, np.int64)
    numbers[0] = base
    if width:
        numbers[1:] += np.frombuffer(data, _STORED[width], length - 1)
    np.cumsum(numbers, out=numbers)
    return numbers.astype(dtype, copy=False)

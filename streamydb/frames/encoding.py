"""The binary form of arrays: blocks.

Everything between the stages of the query travels as blocks: a msgpack header that names the
arrays, followed by the arrays, narrowed. Nothing in a block is executable, so a block read from
Kafka is safe to decode.

Moving bytes costs more than narrowing them. A column of a plan is often constant (partition, kind),
in steps (offsets), or small (amounts, lengths). So an array is stored as its least value and
unsigned distances from it, or as its first value and the distances of its differences, whichever is
narrower; a width of 0 is a constant. Everything else, and every short array, is stored as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.errors import RecordError
from streamydb.frames.jit import kernel
from streamydb.frames.table import Array
from streamydb.records.formats import UNREADABLE

Part: TypeAlias = bytes | memoryview
"""Of a block: as many bytes as its length says."""

_MAGIC = b"SDB2"

_Name = tuple[str, int, str, str, int, int, int]
"""Of an array: its name, its length, and its `Layout`."""


def pack(arrays: Mapping[str, Array], /, **header: Any) -> bytes:
    """Encode named one-dimensional arrays and a small header as one block."""
    return b"".join(pack_narrowed([narrowed(arrays)], **header))


@dataclass(slots=True)
class Narrowed:
    """Arrays as a block stores them: what the header says of each, and the bytes."""

    names: list[_Name]
    stored: list[Part]


def narrowed(arrays: Mapping[str, Array]) -> Narrowed:
    names, stored = [], []
    for name, array in arrays.items():
        layout, data = narrow(array)
        names.append((name, len(array), *layout))
        stored.append(data)
    return Narrowed(names, stored)


def pack_narrowed(parts: Sequence[Narrowed], /, **header: Any) -> list[Part]:
    """One block of several parts, in pieces that are still to be joined; see `pack`."""
    names = [name for part in parts for name in part.names]
    head = msgspec.msgpack.encode((header, names))
    stored = [data for part in parts for data in part.stored]
    return [b"".join([_MAGIC, len(head).to_bytes(4, "little"), head]), *stored]


class StoredArrays(NamedTuple):
    """Arrays as they lie in a block, one after the other: of each name, length and layout."""

    names: list[_Name]
    data: bytes | memoryview

    def divided(self, name: str) -> tuple[StoredArrays, StoredArrays]:
        """Divide before the first array whose name begins with ``name``."""
        names, data, first, at = self.names, self.data, 0, 0
        while first < len(names) and not names[first][0].startswith(name):
            _, length, _, codec, width, _, _ = names[first]
            first, at = first + 1, at + stored_bytes(codec, width, length)
        return StoredArrays(names[:first], data[:at]), StoredArrays(names[first:], data[at:])

    def arrays(self) -> dict[str, Array]:
        """Return the arrays (copies, writable).
        Raises RecordError: they are not what :func:`pack` stored.
        """
        view, size, at = memoryview(self.data), len(self.data), 0
        arrays = {}
        try:
            for name, length, kind, codec, width, base, step in self.names:
                end = at + stored_bytes(codec, width, length)
                if end > size:
                    raise RecordError("a block is shorter than it says")
                arrays[name] = widen((kind, codec, width, base, step), length, view[at:end])
                at = end
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            raise RecordError(f"a block cannot be decoded: {error}") from error
        return arrays


def peel(block: bytes | bytearray) -> tuple[dict[str, Any], StoredArrays]:
    """Decode the header of a block.
    Raises RecordError: the bytes are not a block that :func:`pack` wrote.
    """
    view = memoryview(block)
    if view[:4] != _MAGIC:
        raise RecordError(_not_ours(bytes(view[:4])))
    at = 8 + int.from_bytes(view[4:8], "little")
    try:
        header, names = _decode_header(view[8:at])
    except UNREADABLE as error:
        raise RecordError(f"a block cannot be decoded: {error}") from error
    return header, StoredArrays(names, view[at:])


def unpack(block: bytes | bytearray) -> tuple[dict[str, Any], dict[str, Array]]:
    """Decode a block into its header and arrays (copies, writable).
    Raises RecordError: the bytes are not a block that :func:`pack` wrote.
    """
    header, stored = peel(block)
    return header, stored.arrays()


def _not_ours(magic: bytes) -> str:
    if magic[:3] != _MAGIC[:3]:
        return "a block does not start with its magic number"
    later, ours = magic.decode("ascii", "replace"), _MAGIC.decode("ascii")
    return (
        f"a block has layout {later}, this release reads {ours}: run the release that wrote it, "
        "or a newer one (docs/upgrading.md)"
    )


_decode_header = msgspec.msgpack.Decoder(tuple[dict[str, Any], list[_Name]]).decode


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

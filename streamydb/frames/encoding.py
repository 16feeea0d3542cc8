"""The binary form of arrays: blocks.

Everything between the stages of the query travels as blocks: a msgpack header that names the
arrays, followed by the arrays, narrowed (see `integers`). Nothing in a block is executable, so a
block read from Kafka is safe to decode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import msgspec

from streamydb.errors import RecordError
from streamydb.frames.integers import narrow, stored_bytes, widen
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

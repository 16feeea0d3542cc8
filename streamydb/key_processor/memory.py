"""A shard's stores in memory, and how tables and structs lie in a store of blobs.

The real-time gear keeps its state in one process, where nobody else reads it. To encode it after
each group, and to decode it before the next one, cost as much as the execution of some
transactions. So `HeldBlobs` keeps tables and structs as they are. The other stores stand in for
files: in the simulator, in tests, and to warm up the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import (
    BlobStore,
    KeyScan,
    Position,
    end_name,
    ends_at,
    first_name,
    size_of,
)
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.program import ENTRY
from streamydb.frames.table import ColumnTable
from streamydb.key_processor.id_rows import Fill

META = "meta"
"""The name of the blob of a shard's state."""

_Rows = TypeVar("_Rows", bound=ColumnTable)


class MemoryBlobs:
    """A blob store in a dict."""

    def __init__(self, blobs: dict[str, bytes] | None = None) -> None:
        self.blobs = dict(blobs or {})

    def get(self, name: str) -> bytes | None:
        """The blob, or None."""
        return self.blobs.get(name)

    def put(self, name: str, data: bytes) -> None:
        """Store or replace a blob."""
        self.blobs[name] = data

    def delete(self, name: str) -> None:
        """Remove a blob."""
        self.blobs.pop(name, None)


class HeldBlobs(MemoryBlobs):
    """A blob store of one process, with tables and the state of the shard beside the blobs.

    Who takes something out of it must not change it, but for the state, which has one owner at a
    time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, Any] = {}

    def delete(self, name: str) -> None:
        """Remove a blob, or what is held under its name."""
        if self.held.pop(name, None) is None:
            super().delete(name)


def put_state(blobs: BlobStore, state: msgspec.Struct) -> None:
    """Store the state of a shard."""
    if isinstance(blobs, HeldBlobs):
        blobs.held[META] = state
    else:
        blobs.put(META, msgspec.msgpack.encode(state))


def put_table(blobs: BlobStore, name: str, table: ColumnTable) -> int:
    """Store a table; return how many bytes it has."""
    arrays = table.flatten()
    if isinstance(blobs, HeldBlobs):
        blobs.held[name] = table
        return sum(array.nbytes for array in arrays.values())
    data = pack(arrays)
    blobs.put(name, data)
    return len(data)


def table_of(blobs: BlobStore, name: str, kind: type[_Rows]) -> tuple[_Rows, int]:
    """Return a stored table, and its bytes in memory that are to be given back; 0: none.
    Raises InvariantViolation: it is missing from the state.
    """
    if isinstance(blobs, HeldBlobs):
        held = blobs.held.get(name)
        if isinstance(held, kind):
            return held, 0
    data = blobs.get(name)
    if data is None:
        raise InvariantViolation(f"the blob {name} is missing from the state")
    return kind.unflatten(unpack(data)[1]), len(data)


class MemoryValues:
    """A value store in a dict."""

    alone = False

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.at: Position = (0, "")
        self.base: bytes | None = None

    def position(self) -> Position:
        """The position of the data."""
        return self.at

    def load(self, at: Position, keys: Sequence[bytes]) -> list[bytes | None] | None:
        """The encoded values of keys; None when not ``at``."""
        return [self.data.get(key) for key in keys] if self.at == at else None

    def sizes(self, at: Position, keys: Sequence[bytes]) -> list[int] | None:
        """Return how many bytes each encoded value has, -1 where absent; None when not ``at``."""
        items = self.load(at, keys)
        return None if items is None else [-1 if v is None else size_of(v) for v in items]

    def scan(self, at: Position, wanted: KeyScan) -> list[tuple[bytes, bytes]] | None:
        """The keys in a range with their encoded values; None when not ``at``."""
        if self.at != at:
            return None
        return wanted.taken(sorted((k, v) for k, v in self.data.items() if k >= wanted.start))

    def due(self, at: Position, until_ms: int, after: bytes, keys_max: int) -> list[bytes] | None:
        """Return the first names of what ends by ``until_ms``; None when not ``at``."""
        if self.at != at:
            return None
        ends = (end_name(k, v) for k, v in self.data.items() if ends_at(v) is not None)
        return sorted(name for name in ends if after < name < first_name(until_ms + 1))[:keys_max]

    def apply(
        self,
        expected: Position,
        reached: Position,
        puts: list[tuple[bytes, bytes]],
        deletes: list[bytes],
        ends: Sequence[bytes] = (),  # noqa: ARG002 - not kept
    ) -> bool:
        """Apply writes and move to ``reached``, if this is at ``expected``."""
        if self.at != expected:
            return False
        self.data.update(puts)
        for key in deletes:
            self.data.pop(key, None)
        self.at = reached
        return True

    def clear(self, expected: Position, reached: Position) -> bool:
        """Remove everything and move to ``reached``, if this is at ``expected``."""
        if self.at != expected:
            return False
        self.data, self.at = {}, reached
        return True

    def describe(self, at: Position, base: bytes) -> bool:
        """Keep the base that the values are, if this is ``at``."""
        if self.at != at:
            return False
        self.base = base
        return True


class MemoryIdTables:
    """Tables of ids in a dict."""

    def __init__(self, *, shared: bool = True) -> None:
        self.shared = shared
        self.tables: dict[str, npt.NDArray[Any]] = {}

    def get(self, name: str) -> npt.NDArray[Any] | None:
        """A table."""
        return self.tables.get(name)

    def create(self, name: str, capacity: int, fill: Fill) -> npt.NDArray[Any]:
        """A new table, zeroed and then filled."""
        table = np.zeros(capacity + 1, ENTRY)
        fill(table)
        self.tables[name] = table
        return table

    def names(self) -> list[str]:
        """The tables that there are."""
        return list(self.tables)

    def drop(self, name: str) -> None:
        """Remove a table."""
        self.tables.pop(name, None)

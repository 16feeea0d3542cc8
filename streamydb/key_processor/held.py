"""State that stays in one process: tables and structs are kept as they are, not as bytes.

The real-time gear keeps its state in memory, and nobody else reads it. To encode it after each
group, and to decode it before the next one, cost as much as the execution of some transactions.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import BlobStore
from streamydb.frames.encoding import pack, unpack
from streamydb.frames.table import ColumnTable
from streamydb.key_processor.memory import MemoryBlobs

META = "meta"
"""The name of the blob of a shard's state."""

_Rows = TypeVar("_Rows", bound=ColumnTable)


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

    Raises:
        InvariantViolation: it is missing from the state.
    """
    if isinstance(blobs, HeldBlobs):
        held = blobs.held.get(name)
        if isinstance(held, kind):
            return held, 0
    data = blobs.get(name)
    if data is None:
        raise InvariantViolation(f"the blob {name} is missing from the state")
    return kind.unflatten(unpack(data)[1]), len(data)

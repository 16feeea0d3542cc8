"""In-memory stand-ins for a shard's stores: for the simulator, for tests, and to warm up the
kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamydb.key_processor.idwindow import ENTRY

__all__ = ["MemoryBlobs", "MemoryIdTables", "MemoryValues"]


class MemoryBlobs:
    """A blob store in a dict."""

    def __init__(self, blobs: dict[str, bytes] | None = None) -> None:
        """Begin with ``blobs``."""
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


class MemoryValues:
    """A value store in a dict."""

    def __init__(self) -> None:
        """Begin empty."""
        self.data: dict[bytes, bytes] = {}
        self.at = (0, "")

    def position(self) -> tuple[int, str]:
        """(applied plans, digest)."""
        return self.at

    def load(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The encoded values of keys."""
        return [self.data.get(key) for key in keys]

    def apply(
        self, position: tuple[int, str], puts: list[tuple[bytes, bytes]], deletes: list[bytes]
    ) -> None:
        """Apply writes and move to ``position``."""
        self.data.update(puts)
        for key in deletes:
            self.data.pop(key, None)
        self.at = position

    def clear(self) -> None:
        """Remove everything."""
        self.data, self.at = {}, (0, "")


class MemoryIdTables:
    """Tables of ids in a dict."""

    def __init__(self) -> None:
        """Begin without tables."""
        self.tables: dict[int, npt.NDArray[Any]] = {}

    def get(self, generation: int) -> npt.NDArray[Any] | None:
        """The table of a generation."""
        return self.tables.get(generation)

    def create(self, generation: int, capacity: int) -> npt.NDArray[Any]:
        """A new zeroed table."""
        self.tables[generation] = np.zeros(capacity + 1, ENTRY)
        return self.tables[generation]

    def drop_before(self, generation: int) -> None:
        """Remove the tables of older generations."""
        for old in [g for g in self.tables if g < generation]:
            del self.tables[old]

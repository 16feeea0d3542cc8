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
        self.tables: dict[str, npt.NDArray[Any]] = {}

    def get(self, name: str) -> npt.NDArray[Any] | None:
        """A table."""
        return self.tables.get(name)

    def create(self, name: str, capacity: int) -> npt.NDArray[Any]:
        """A new zeroed table."""
        self.tables[name] = np.zeros(capacity + 1, ENTRY)
        return self.tables[name]

    def names(self) -> list[str]:
        """The tables that there are."""
        return list(self.tables)

    def drop(self, name: str) -> None:
        """Remove a table."""
        self.tables.pop(name, None)

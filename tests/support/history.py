"""A database in memory that keeps the history of its keys, for tests of the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from streamydb.records import Change
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_model import MemoryModel, MemoryResolved, MemorySnapshot

__all__ = ["HistoryDatabase", "HistoryModel", "HistorySnapshot", "MemoryVersion"]


class MemoryVersion(NamedTuple):
    """A line of a key's history."""

    version: int
    ts_ms: int
    value: bytes | None
    txn_id: str
    expires_ms: int | None


class HistorySnapshot(MemorySnapshot):
    """A state that knows how its keys came to it."""

    def __init__(self, base: MemorySnapshot, versions: dict[str, list[MemoryVersion]]) -> None:
        """Show the state `base`; `versions` are those of all keys, oldest first."""
        super().__init__(base.seq, base._entries)
        self._versions = versions

    def history(self, key: str, limit: int = 100) -> list[MemoryVersion]:
        """Return versions of a key, newest first."""
        past = [line for line in self._versions.get(key, ()) if line.version <= self.seq]
        return past[::-1][:limit]


class HistoryModel(MemoryModel):
    """A read model whose snapshots have histories."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self._versions: dict[str, list[MemoryVersion]] = {}

    def snapshot(self, at: int | None = None) -> HistorySnapshot:
        """Return the state at a seq."""
        return HistorySnapshot(super().snapshot(at), self._versions)

    def apply(self, changes: Sequence[tuple[str, Change]], resolved: MemoryResolved) -> None:
        """Take in changes, and show them."""
        for key, change in changes:
            after = None if change.op == "d" else bytes(change.after)
            end = None if change.expires_ms is UNSET else change.expires_ms
            txn_id = change.transaction.id
            line = MemoryVersion(change.source.seq, change.ts_ms, after, txn_id, end)
            self._versions.setdefault(key, []).append(line)
        super().apply(changes, resolved)


class HistoryDatabase(MemoryDatabase):
    """A database in memory with such a read model."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.model: HistoryModel = HistoryModel()

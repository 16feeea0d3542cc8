"""Keys that were read together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamydb.client.requests import Entry, Reading

__all__ = ["Snapshot"]


class Snapshot(Mapping[str, Any]):
    """The values of keys at one seq: a mapping, with None for keys that are absent.

    Attributes:
        seq: the transaction after which this was the state.
        entries: the same with versions, by key.
    """

    def __init__(self, reading: Reading) -> None:
        """Show what was read."""
        self.seq = reading.seq
        self.entries = {
            key: Entry(key, None, 0, 0) if stored is None else stored.entry()
            for key, stored in reading.entries.items()
        }

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key that was asked for."""
        return self.entries[key].value

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys that were asked for."""
        return iter(self.entries)

    def __len__(self) -> int:
        """Return how many keys were asked for."""
        return len(self.entries)

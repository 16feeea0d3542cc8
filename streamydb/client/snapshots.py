"""Keys that were read together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamydb.client.requests import Entry, Reading


class Snapshot(Mapping[str, Any]):
    """The values of keys at one seq: a mapping, with None for keys that are absent.

    ``entries``: the same with versions, by key.
    """

    def __init__(self, reading: Reading) -> None:
        self.seq = reading.seq
        self.entries = {
            key: Entry(key, None, 0, 0) if stored is None else stored.entry()
            for key, stored in reading.entries.items()
        }

    def __getitem__(self, key: str) -> Any:
        return self.entries[key].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

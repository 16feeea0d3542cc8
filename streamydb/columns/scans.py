"""Scan the items of a shard's values: which keys are wanted, and how much of their values."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

__all__ = ["HEAD_BYTES", "Scan"]

HEAD_BYTES: Final = 9
"""Of the version and the tag, which begin every item."""


class Scan(NamedTuple):
    """The keys from ``start`` up to ``end``, without those in ``skip``, and ``keys_max`` at most.

    Once keys and values are more than ``bytes_max`` bytes, only the heads of items are given.
    """

    start: bytes
    end: bytes
    skip: Container[bytes]
    keys_max: int
    bytes_max: int

    def taken(
        self, items: Iterable[tuple[bytes | memoryview, bytes | memoryview]]
    ) -> list[tuple[bytes, bytes]]:
        """Return what it wants of the items from its start on, which are in order."""
        found: list[tuple[bytes, bytes]] = []
        end, skip, left = self.end, self.skip, self.keys_max
        size, room = 0, self.bytes_max
        for key, item in items:
            name = bytes(key)
            if name >= end or not left:
                break
            if name in skip:
                continue
            left -= 1
            if size <= room:
                size += len(name) + len(item) - HEAD_BYTES
            found.append((name, bytes(item if size <= room else item[:HEAD_BYTES])))
        return found

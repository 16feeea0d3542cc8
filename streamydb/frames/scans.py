"""Scan the items of a shard's values: which keys are wanted, and how much of their values."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from streamydb.frames import program as p

HEAD_BYTES: Final = 9
"""Of the version and the tag, which begin every item."""

ENDING_HEAD_BYTES: Final = HEAD_BYTES + 8
"""Of the head of an item that ends: the end is behind the tag."""

_TAG_AT: Final = HEAD_BYTES - 1
_END_BYTES: Final = 8


def ends_at(item: bytes | memoryview) -> int | None:
    """Return when an item ends (commit time in ms), if it does."""
    if len(item) < ENDING_HEAD_BYTES or item[_TAG_AT] != p.EXPIRING:
        return None
    return int.from_bytes(item[HEAD_BYTES:ENDING_HEAD_BYTES], "little")


def size_of(item: bytes | memoryview) -> int:
    """Return how many bytes an item has, without its end."""
    return len(item) - (0 if ends_at(item) is None else _END_BYTES)


def end_name(key: bytes, item: bytes | memoryview) -> bytes:
    """Return the name under which an item that ends is found: what ends first comes first."""
    return bytes(item[HEAD_BYTES:ENDING_HEAD_BYTES])[::-1] + key


def first_name(end_ms: int) -> bytes:
    """Return what comes before the names of all that ends at a time or later."""
    return end_ms.to_bytes(_END_BYTES, "big")


def key_named(name: bytes) -> tuple[int, bytes]:
    """Return the end and the key of a name."""
    return int.from_bytes(name[:_END_BYTES], "big"), name[_END_BYTES:]


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
        items_taken: list[tuple[bytes, bytes]] = []
        end, skip, keys_left = self.end, self.skip, self.keys_max
        size, room = 0, self.bytes_max
        for key, item in items:
            name = bytes(key)
            if name >= end or not keys_left:
                break
            if name in skip:
                continue
            keys_left -= 1
            if size <= room:
                size += len(name) + len(item) - HEAD_BYTES
            items_taken.append((name, bytes(item if size <= room else item[:HEAD_BYTES])))
        return items_taken

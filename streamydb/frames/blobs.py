"""Blobs: the form of state in a store where every access is expensive.

State lives in a store of named blobs (Spark's state store in the query, a dict in the simulator).
Each plan appends one blob of writes; blobs are merged as in a log-structured merge tree (O'Neil et
al., 1996), and late, as in a lazy one (Dayan and Idreos, 2018): nobody reads a value in them. The
oldest blob is merged with all others when these have more bytes together, so all of them have at
most twice the bytes of the live data, about. Of the others, some are left as they are; where there
are more, the last ones are merged, each with the one before while that is less than twice as large.
So each write is merged O(log n) times, and there are O(log n) blobs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from streamydb.frames import program as p

BLOBS_LEFT: Final = 6
"""So many blobs are not too many, whatever their sizes."""


class BlobStore(Protocol):
    """Named blobs; a step's puts and deletes become durable together, or not at all."""

    def get(self, name: str) -> bytes | None: ...

    def put(self, name: str, data: bytes) -> None: ...

    def delete(self, name: str) -> None: ...


class Blob(msgspec.Struct, gc=False):
    """One entry of an index of blobs, oldest first: plans ``first`` to ``last``, and what they lead
    to.

    ``parts``: it lies in so many blobs, named by it and a number, sorted (`merge`); 0: in one.
    """

    name: str
    size: int
    first: int
    last: int
    digest: str
    parts: int = 0


def merge_from(sizes: Sequence[int]) -> int:
    """Return the position from which on a run of blobs is merged into one.

    Returns:
        A position below ``len(sizes) - 1`` when something is to be merged, else ``len(sizes)``.
    """
    count = len(sizes)
    if sum(sizes[1:]) > sum(sizes[:1]):
        return 0
    if count <= BLOBS_LEFT:
        return count
    start, total = count - 1, sizes[-1]
    while start > 1 and sizes[start - 1] < 2 * total:
        start -= 1
        total += sizes[start]
    return start if start < count - 1 else count


Position: TypeAlias = tuple[int, str]
"""(applied plans, digest). While a file is brought to a state: (applied plans of that state, what
has been done), which is the position of no state."""


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


class KeyScan(NamedTuple):
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

"""Blobs: the form of state in a store where every access is expensive.

State lives in a store of named blobs (Spark's state store in the query, a dict in the simulator).
Each plan appends one blob of writes; blobs are merged geometrically, as in a log-structured merge
tree (O'Neil et al., 1996): a blob is merged with its predecessor while that is less than twice its
size, so each write is merged O(log n) times and there are O(log n) blobs, whose total size stays
proportional to the live data. (Four at a time would copy a write a third less often, and keep twice
the live data.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec


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
    start, total = len(sizes) - 1, sizes[-1] if sizes else 0
    while start > 0 and sizes[start - 1] < 2 * total:
        start -= 1
        total += sizes[start]
    return start if start < len(sizes) - 1 else len(sizes)


Position: TypeAlias = tuple[int, str]
"""(applied plans, digest). While a file is brought to a state: (applied plans of that state, what
has been done), which is the position of no state."""

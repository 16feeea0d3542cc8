"""The sorter's state between micro-batches."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["NEVER", "HeldChunk", "PartitionState", "SorterState"]

NEVER: Final = -1
"""The effective time before the first record."""


class PartitionState(msgspec.Struct, gc=False):
    """The sorter's knowledge of one partition.

    ``effective``: running maximum so far (ms, -1 before the first record). ``position``: the next
    offset. ``named``: (partitions named, effective time) of the markers that named more partitions
    than any before. ``stamp`` and ``mark``: append time (ms) and hash of the last record read, -1
    and empty if that is not known.
    """

    effective: int = NEVER
    position: int = 0
    named: list[tuple[int, int]] = []
    stamp: int = NEVER
    mark: str = ""


class HeldChunk(msgspec.Struct, gc=False):
    """Up to 4096 held records (some 4 MiB) of one partition, in a blob.

    The first ``start`` have been released. ``time`` and ``offset`` are those of the record at
    ``start``; ``last`` is the time of the last record.
    """

    blob: str
    partition: int
    start: int
    count: int
    time: int
    offset: int
    last: int


class SorterState(msgspec.Struct):
    """Everything that the sorter remembers between micro-batches, beside the held blobs.

    ``declares``: a constraint has been declared, perhaps.
    """

    initial_partitions: int
    partitions: dict[int, PartitionState] = {}
    held: list[HeldChunk] = []
    next_blob: int = 0
    declares: bool = False

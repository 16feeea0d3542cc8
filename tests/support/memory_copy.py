"""A copy of the changes for Kafka Connect in memory, which may fail."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from streamydb.kafka.connect import CopiedRecord
from streamydb.kafka.connect.core import ConnectError
from streamydb.records.connect import CopyProgress

__all__ = ["FailingError", "MemoryCopy"]


class FailingError(ConnectError):
    """What the copy is made to raise."""


class MemoryCopy:
    """A copy in memory.

    Attributes:
        records: per partition, what was appended.
    """

    def __init__(self, partitions: int, rng: random.Random | None = None) -> None:
        """Begin empty; ``rng``: draws failures."""
        self.records: dict[int, list[CopiedRecord]] = {n: [] for n in range(partitions)}
        self._rng = rng

    def begin(self) -> Mapping[int, CopyProgress | None]:
        """The last progress of each partition."""
        return {n: some[-1].progress if some else None for n, some in self.records.items()}

    def append(self, records: Sequence[CopiedRecord]) -> None:
        """Append all, and fail, or not."""
        fault = None if self._rng is None else self._rng.choice([None, None, "before", "after"])
        if fault != "before":
            for record in records:
                self.records[record.partition].append(record)
        if fault is not None:
            raise FailingError(fault)

    def close(self) -> None:
        """Nothing is open."""

"""The simulated log: partitions with append times from clocks that jump, and sequencers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from streamydb.records import Marker, encode_marker
from streamydb.verify.oracle.order import LogRecord

__all__ = ["SimulatedLog"]

_HOUR_MS = 3_600_000


@dataclass
class SimulatedLog:
    """Partitions of records; each partition's broker has a clock of its own.

    ``number``: of the newest round of markers.
    """

    random: random.Random
    initial: int
    partitions: dict[int, list[LogRecord]] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    number: int = 0

    def __post_init__(self) -> None:
        """Begin with empty partitions."""
        for partition in range(self.initial):
            self._open(partition)

    def _open(self, partition: int) -> None:
        self.partitions[partition] = []
        self.clocks[partition] = 1_000_000_000 + self.random.choice([0, 0, 3, 500])

    def append(self, value: bytes | None, partition: int | None = None) -> None:
        """Append a record somewhere; clocks mostly stand or tick, sometimes jump either way."""
        rng = self.random
        if partition is None:
            partition = rng.randrange(len(self.partitions))
        step = rng.choice([0, 0, 0, 1, 1, 2, 7])
        if rng.random() < 0.01:
            step = rng.choice([-_HOUR_MS, _HOUR_MS, -50, 200])
        self.clocks[partition] += step
        records = self.partitions[partition]
        offset = records[-1].offset + 1 if records else 0
        if rng.random() < 0.02:
            offset += rng.randint(1, 3)
        records.append(LogRecord(offset, self.clocks[partition], value))

    def grow(self) -> None:
        """Add a partition."""
        self._open(len(self.partitions))

    def highest(self) -> int:
        """The highest append time or marker number so far."""
        return max((r.append_ms for rs in self.partitions.values() for r in rs), default=0)

    def round(self, *, whole: bool = True) -> None:
        """A sequencer writes a round of markers; not ``whole``: it dies half-way or is wild."""
        rng = self.random
        number = self.number = max(self.number, self.highest()) + 1
        if not whole and rng.random() < 0.3:
            number = rng.choice([0, number - 40, number + 100_000])
            self.number = max(self.number, number)
        marker = encode_marker(Marker(max(0, number), len(self.partitions), "simulated"))
        for partition in range(len(self.partitions)):
            if whole or rng.random() < 0.7:
                self.append(marker, partition)

"""Report which gear leads, and how far the other one is behind it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from streamydb.records.gears import MICRO_BATCH, REAL_TIME, GearStatus

__all__ = ["GearReports", "Reach", "one_gear"]

_SHOWN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Reach:
    """The last seq that a gear has executed, and the next offset of the log that it reads."""

    seq: int
    position: int


def one_gear(obstacle: str) -> GearStatus:
    """Return the status of a pipeline without a real-time gear; ``obstacle``: why."""
    now_ms = time.time_ns() // 1_000_000
    return GearStatus(MICRO_BATCH, now_ms, "there is no real-time gear", obstacle=obstacle)


class GearReports:
    """Tells which gear leads at once, and how far the other one is behind once a second.

    Args:
        show: those who are told.
        count: is told why a real-time gear has ended.
        micro_batch: how far the micro-batch gear is.
        clock: seconds; never goes back.

    Attributes:
        count: as above.
    """

    def __init__(
        self,
        show: Sequence[Callable[[GearStatus], None]],
        count: Callable[[str], None],
        micro_batch: Callable[[], Reach],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self.count = count
        self._micro_batch = micro_batch
        self._clock = clock
        self._status: GearStatus | None = None
        self._shown_s = 0.0

    def show(self, status: GearStatus) -> None:
        """Tell which gear leads; how far the other one is, is not known yet."""
        self._status = status
        for each in self._show:
            each(status)

    def note(self, real_time: Reach) -> None:
        """Take in how far the real-time gear is."""
        status, now_s = self._status, self._clock()
        if status is None or now_s - self._shown_s < _SHOWN_S:
            return
        self._shown_s = now_s
        first, second = real_time, self._micro_batch()
        if status.gear != REAL_TIME:
            first, second = second, first
        behind = max(0, first.seq - second.seq)
        records = max(0, first.position - second.position)
        if (behind, records) != (status.behind, status.behind_records):
            self.show(msgspec.structs.replace(status, behind=behind, behind_records=records))

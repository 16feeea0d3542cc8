"""Groups of appends that go to the log together.

A group of records costs Kafka and the pipeline as much as dozens of records do. So what clients
send while an earlier group is undecided waits for its verdicts, and then for those who have got
them, as most of them send the next transaction at once. Who is alone waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from streamydb.facade.ports import LogPosition

HOLD_S: Final = 0.025
"""How long an append waits at most for the group before it; longer while more appends come."""
EACH_S: Final = 0.0003
"""How much longer a group may grow for each append that is expected: a facade takes about so long
to answer a client and to take its next request.
"""
GATHER_S: Final = 0.002
"""How long a group waits for another append after the last one, while more are expected."""
RETURN_S: Final = 0.008
"""How long a group waits for the first of those who have just got their verdicts."""
GROUP_MAX: Final = 256
"""So many appends do not wait for others."""


class AppendGroups:
    """Appends that wait; used in one event loop.

    ``call_later``, ``now_s``: the timers and the clock of that loop.
    """

    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        now_s: Callable[[], float],
    ) -> None:
        self._call_later = call_later
        self._now_s = now_s
        self._held: list[Callable[[], None]] = []
        self._expected = 1
        self._undecided = 0
        self._unanswered = 0
        self._appended: list[LogPosition] = []
        self._decided: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self._has_grown = False

    def add(self, send: Callable[[], None]) -> None:
        """Call ``send``, now or soon; it leads to one call of `appended` or `failed`."""
        self._held.append(send)
        count = len(self._held)
        if count >= GROUP_MAX or (not self._undecided and count >= self._expected):
            self.flush()
        elif count == 1:
            self._until_s = self._now_s() + HOLD_S + EACH_S * self._expected
            self._wait(HOLD_S if self._undecided else GATHER_S)
        else:
            self._has_grown = True

    def appended(self, position: LogPosition) -> None:
        """Note where an append is in the log."""
        self._appended.append(position)
        self._answered()

    def failed(self) -> None:
        """Note that an append is not in the log, or that nobody knows."""
        self._answered()

    def decided(self, ends: Mapping[int, int]) -> None:
        """Note up to where the log is decided: partition -> end.

        Call it before those who wait for the verdicts hear of them, as they may append again.
        """
        for number, end in ends.items():
            self._decided[number] = max(self._decided.get(number, 0), end)
        self._end_group()

    def flush(self) -> None:
        """Send all that waits."""
        self._stop_waiting()
        group, self._held = self._held, []
        self._expected = len(group)
        self._undecided += len(group)
        self._unanswered += len(group)
        for send in group:
            send()

    def _answered(self) -> None:
        self._unanswered -= 1
        self._end_group()

    def _end_group(self) -> None:
        """Begin the next group if what was sent is decided.

        It is expected to hold what waits, and what those send who get their verdicts now. Who got
        a verdict earlier may be among those who wait.
        """
        if not self._undecided or self._unanswered:
            return
        known, self._appended = self._appended, [at for at in self._appended if self._waits(at)]
        if self._appended:
            return
        self._expected = min(GROUP_MAX, max(1, len(known) + len(self._held)))
        self._undecided = 0
        if self._held:
            self._has_grown = False
            left_s = self._until_s - self._now_s()
            self._wait(max(GATHER_S, min(RETURN_S, left_s)))

    def _waits(self, position: LogPosition) -> bool:
        """Return True if a record is not decided yet."""
        return self._decided.get(position.partition, 0) <= position.offset

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self._call_later(seconds, self._go_on)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go_on(self) -> None:
        """Wait on for a group that has grown meanwhile, or send it."""
        self._timer = None
        if self._has_grown and self._now_s() < self._until_s:
            self._has_grown = False
            self._wait(GATHER_S)
        elif self._held:
            self.flush()

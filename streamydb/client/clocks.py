"""Clocks that differ: this machine's, the brokers', and the commit times that follow the brokers'.

A deadline is compared with a commit time, so whoever makes one must know the brokers' clock. Each
verdict tells it: the broker stamped the record between the moment of sending and that of the
answer. `Correction` keeps this machine's clock within what was told, in both directions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamydb.client.forks import Owned


class Correction:
    """The difference between another clock and this machine's, as far as it is known. Thread-safe.

    ``behind_ms``: how far this machine is behind the other clock; negative: ahead of it.
    """

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self.behind_ms = 0
        self._wall_ms = wall_ms
        self._lock: Owned[threading.Lock] = Owned(threading.Lock)

    def now_ms(self) -> int:
        """Return what the other clock says now."""
        return self._wall_ms() + self.behind_ms

    def learn(self, stamp_ms: int, sent_ms: int | None) -> None:
        """Take a stamp of the other clock, which has just come.

        ``sent_ms``: this machine's time before the stamp was made; None: nobody knows. Then the
        stamp may be old, and only says that the other clock is not behind it.
        """
        with self._lock.get():
            least = stamp_ms - self._wall_ms()
            most = None if sent_ms is None else max(least, stamp_ms - sent_ms)
            known = max(self.behind_ms, least)
            self.behind_ms = known if most is None else min(known, most)

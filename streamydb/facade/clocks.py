"""The time of the log, as a facade knows it: commit times, the brokers' clock, and its own.

Commit times never go back. After a broker's clock was ahead they stand still until it has come
there again. So the time of the log is the newest commit time, or what the brokers' clock says, if
that is later. What a broker stamps on this facade's own records tells its clock; until there is
one, a commit time that is ahead of this machine's clock is taken for one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from streamydb.client.session import Correction
from streamydb.records.times import duration, moment

AHEAD_MS_MAX: Final = 60_000
"""How far commit times may be ahead of a clock before a facade complains."""

_LOG = logging.getLogger("streamydb.facade")


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Clocks(NamedTuple):
    """The readings of all clocks at one moment, in ms since 1970.

    ``local_ms``: this machine's. ``commit_ms``: the newest commit time; 0: none is known.
    ``broker_ms``: the brokers', as this facade's last record told it; None: it has written none.
    """

    local_ms: int
    commit_ms: int
    broker_ms: int | None

    @property
    def ahead_ms(self) -> int:
        """The time that commit times are ahead of this machine's clock; 0: they are not."""
        return max(0, self.commit_ms - self.local_ms)

    @property
    def still_ms(self) -> int:
        """The time until the brokers' clock has come to the newest commit time; 0: it has, or is
        unknown.
        """
        return 0 if self.broker_ms is None else max(0, self.commit_ms - self.broker_ms)


class LogClock:
    """The time of the log, beside this machine's time of day (`local_ms`)."""

    def __init__(self, local_ms: Callable[[], int] = wall_ms) -> None:
        self.local_ms = local_ms
        self._commits = Correction(local_ms)
        self._brokers = Correction(local_ms)
        self._commit_ms = 0
        self._is_told = self._has_complained = False

    def appended(self, stamp_ms: int, sent_ms: int) -> None:
        """Take the stamp of a record that was sent at a time of this machine's clock."""
        if stamp_ms > 0:
            self._brokers.learn(stamp_ms, sent_ms)
            self._is_told = True

    def decided(self, commit_ms: int) -> None:
        self._commit_ms = max(self._commit_ms, commit_ms)
        self._commits.behind_ms = 0
        self._commits.learn(commit_ms, None)
        ahead_ms = self.clocks().ahead_ms
        if ahead_ms > AHEAD_MS_MAX and not self._has_complained:
            _LOG.warning(
                "commit times are %s ahead of this machine's clock, at %s: one of the clocks is "
                "wrong. If it was a broker's, keys, leases and deadlines stand still until then, "
                "and keys that ended too early are gone; see ClockSkew in docs/operations.md",
                duration(ahead_ms), moment(commit_ms),
            )  # fmt: skip
        self._has_complained = ahead_ms > AHEAD_MS_MAX

    def now_ms(self) -> int:
        """Return the time of the log now; a commit that comes later may be before it."""
        known = self._brokers if self._is_told else self._commits
        return max(self._commit_ms, known.now_ms())

    def clocks(self) -> Clocks:
        broker_ms = self._brokers.now_ms() if self._is_told else None
        return Clocks(self.local_ms(), self._commit_ms, broker_ms)

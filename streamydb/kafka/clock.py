"""The log's newest append time against this machine's clock.

Commit times never go back, so after a broker's clock was ahead they stand still until it has come
there again: keys with an end stay, leases last longer, and deadlines by a right clock are past.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from streamydb.kafka.admin import HIGHEST, list_offsets
from streamydb.kafka.clients import KafkaAdministrator
from streamydb.records.times import duration, moment

AHEAD_MS_MAX: Final = 2_000
"""How far the log may be ahead of a clock; Kafka and this machine may differ a little."""


class LogTime(NamedTuple):
    """The newest append time of a log, and this machine's clock then (ms since 1970).

    ``newest_ms`` is 0 if the log is empty.
    """

    newest_ms: int
    clock_ms: int

    @property
    def ahead_ms(self) -> int:
        """The time that the log is ahead of this machine's clock; negative: behind it."""
        return self.newest_ms - self.clock_ms

    def warning(self) -> str | None:
        """Return what it means if the log is too far ahead; None if it is not."""
        if not self.newest_ms or self.ahead_ms <= AHEAD_MS_MAX:
            return None
        return (
            f"commit times are {duration(self.ahead_ms)} ahead of this machine's clock: unless "
            "the brokers' clocks still are, too, keys, leases and deadlines stand still until "
            f"{moment(self.newest_ms)}"
        )


def log_time(admin: KafkaAdministrator, topic: str, partitions: Iterable[int]) -> LogTime:
    """Ask Kafka for the newest append time of a log."""
    newest = list_offsets(admin, topic, partitions, HIGHEST).values()
    newest_ms = max((part.timestamp for part in newest), default=0)
    return LogTime(max(0, newest_ms), time.time_ns() // 1_000_000)

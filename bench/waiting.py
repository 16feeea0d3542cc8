"""Waiting for conditions, and counting records by a topic's end offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

from confluent_kafka import Consumer

from bench.errors import BenchError
from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.local import launcher

__all__ = ["POLL_S", "Ends", "settle", "wait_until"]

POLL_S: Final = 0.02
"""How often a condition is looked at, in seconds."""

_REQUEST_S: Final = 10.0
_CHECK_S: Final = 1.0
_SETTLE_S_MAX: Final = 180.0
_LOOK_S: Final = 0.2


class Ends:
    """Counts the records of a topic by its end offsets, which costs the broker next to nothing."""

    def __init__(self, connection: Mapping[str, str], topic: str) -> None:
        """Ask the broker for the partitions of `topic`."""
        settings = {"group.id": "streamydb-bench", "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer({**connection, **settings})
        found = self._consumer.list_topics(topic, timeout=_REQUEST_S).topics[topic]
        self.topic = topic
        self.partitions: list[int] = sorted(found.partitions)

    def ends(self) -> dict[int, int]:
        """The end offset of each partition, asked of the broker now."""
        return {
            number: watermarks(self._consumer, self.topic, number, _REQUEST_S)[1]
            for number in self.partitions
        }

    def count(self) -> int:
        """Records of the topic."""
        return sum(self.ends().values())

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


def wait_until(
    condition: Callable[[], object],
    what: str,
    timeout_s: float,
    *,
    check: Callable[[], object] = lambda: None,
    poll_s: float = POLL_S,
) -> None:
    """Wait until `condition()` is true; `check()` is called now and then and may raise.

    Raises:
        BenchError: the time is up.
    """
    turns, each = count(1), max(1, round(_CHECK_S / poll_s))

    def holds() -> object:
        found = condition()
        if not found and next(turns) % each == 0:
            check()
        return found

    if not launcher.wait_until(holds, timeout_s, poll_s):
        raise BenchError(f"{timeout_s:.0f} s were not enough until {what}")


def settle(
    connection: Mapping[str, str], names: TopicNames, check: Callable[[], object] = lambda: None
) -> None:
    """Wait until all outputs of what is in the log now are written.

    A result says nothing of the other outputs of its micro-batch: they may still be on their way,
    and come only with the next start if the pipeline is stopped now.

    Raises:
        BenchError: the time is up.
    """
    from streamydb.kafka.positions import look_at  # half a second, and not for who only counts

    log = Ends(connection, names.transactions)
    ends = {number: end for number, end in log.ends().items() if end}
    log.close()

    def written() -> bool:
        covered = look_at(connection, names.database).covered
        return all(covered.get(number, 0) >= end for number, end in ends.items())

    wait_until(written, "all outputs were written", _SETTLE_S_MAX, check=check, poll_s=_LOOK_S)

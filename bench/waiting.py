"""Waiting for conditions, and counting records by a topic's end offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Final

from bench.errors import BenchError
from streamydb.kafka import TopicNames
from streamydb.kafka.admin import LATEST, cluster, count_partitions, list_offsets
from streamydb.kafka.clients import administrator
from streamydb.local import launcher

__all__ = ["POLL_S", "Ends", "settle", "wait_until"]

POLL_S: Final = 0.02
"""How often a condition is looked at, in seconds."""

_CHECK_S: Final = 1.0
_SETTLE_S_MAX: Final = 180.0
_LOOK_S: Final = 0.2


class Ends:
    """Counts the records of a topic by its end offsets.

    A look costs the broker 0.1 ms or so, however many partitions there are: one question for all of
    them. To ask for each took it as much for each, in the processor time that is measured.
    """

    def __init__(self, connection: Mapping[str, str], topic: str) -> None:
        """Ask the broker for the partitions of `topic`."""
        self._admin = administrator(connection)
        self.topic = topic
        self.partitions = [*range(count_partitions(cluster(self._admin).topics[topic]))]

    def ends(self) -> dict[int, int]:
        """The end offset of each partition, asked of the broker now."""
        found = list_offsets(self._admin, self.topic, self.partitions, LATEST)
        return {number: each.offset for number, each in found.items()}

    def count(self) -> int:
        """Records of the topic."""
        return sum(self.ends().values())


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

    log = Ends(connection, names.transactions).ends()
    ends = {number: end for number, end in log.items() if end}

    def written() -> bool:
        covered = look_at(connection, names.database).covered
        return all(covered.get(number, 0) >= end for number, end in ends.items())

    wait_until(written, "all outputs were written", _SETTLE_S_MAX, check=check, poll_s=_LOOK_S)

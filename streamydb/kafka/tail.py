"""The end of the log, where a sequencer begins to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from streamydb.kafka.admin import EARLIEST, HIGHEST, LATEST, cluster, list_offsets
from streamydb.kafka.clients import administrator


class TailStart(NamedTuple):
    """The offset at which the tail of a partition begins.

    Attributes:
        offset: the first record to read.
        end: the offset after the last record there is.
        cut: whether there are records before `offset`.
        unread_highest_ms: the highest append time among the partition's records, if it is that of
            a record before `offset`; else -1.
    """

    offset: int
    end: int
    cut: bool
    unread_highest_ms: int


def find_starts(
    client_config: Mapping[str, str], topic: str, partitions: int, length: int
) -> list[TailStart]:
    """Return where the last `length` records of each partition begin.

    Raises:
        TopicsError: Kafka does not answer.
    """
    admin = administrator(client_config)
    cluster(admin)  # without it a new client may wait 3 s before its first request
    numbers = range(partitions)
    first = list_offsets(admin, topic, numbers, EARLIEST)
    last = list_offsets(admin, topic, numbers, LATEST)
    highest = list_offsets(admin, topic, numbers, HIGHEST)
    starts = []
    for number in numbers:
        low, end = first[number].offset, last[number].offset
        at = max(low, end - length)
        unread = highest[number].offset in range(low, at)
        stamp = highest[number].timestamp if unread else -1
        starts.append(TailStart(at, end, at > low, stamp))
    return starts


class LogTails:
    """The tails of the partitions: how far they have been read, and what they hold."""

    def __init__(self, starts: list[TailStart]) -> None:
        self._starts = starts
        self._begun = [False] * len(starts)
        self._unread = {n for n, start in enumerate(starts) if start.offset < start.end}
        self._without = {n for n, start in enumerate(starts) if start.cut}

    @property
    def read(self) -> bool:
        """True if everything has been read that was there at the beginning."""
        return not self._unread

    @property
    def lacks_marker(self) -> bool:
        """True if some partition goes on before its tail, and its tail holds no marker."""
        return bool(self._without)

    def observe(
        self, partition: int, offset: int, append_ms: int, *, is_marker: bool
    ) -> int | None:
        """Take note of a record.

        Returns:
            At the first record of a tail that cuts off others: the highest append time that those
            are known to have, at least this record's. Else None.
        """
        start = self._starts[partition]
        first = not self._begun[partition]
        self._begun[partition] = True
        if offset + 1 >= start.end:
            self._unread.discard(partition)
        if is_marker:
            self._without.discard(partition)
        return max(start.unread_highest_ms, append_ms) if first and start.cut else None

    def at_end(self, partition: int) -> None:
        """Take note that a partition's end was reached; it may end with records of Kafka's own."""
        self._unread.discard(partition)

"""The total order of a log, computed from the whole log at once (docs/semantics.md, order).

The sorter finds the same order piece by piece; this is what it is compared with. The *effective
time* of a record is the running maximum, along its partition, of the append times and marker
numbers up to and including it. Transactions are ordered by (effective time, partition, offset).

A partition that is added later joins at the largest effective time of the first markers, one in
every partition before it, that count it among the partitions: its running maximum starts there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamydb.records import Marker, decode_marker


class LogRecord(NamedTuple):
    """A record of one partition of the log; ``append_ms`` is its LogAppendTime."""

    offset: int
    append_ms: int
    value: bytes | None


class Ordered(NamedTuple):
    """A record in the total order; ``ts_ms`` is its effective time."""

    ts_ms: int
    partition: int
    offset: int
    value: bytes | None


def order(log: Mapping[int, Sequence[LogRecord]], initial_partitions: int) -> list[Ordered]:
    """The total order of the transactions in a log: by effective time, partition, offset.

    Left out are the records of a partition that was added later, as long as markers have not
    decided where it joins.

    Args:
        log: partition -> its records by offset; a partition without records may be left out.
        initial_partitions: how many partitions the topic had when the database was created.
    """
    ordered = []
    for partition, timed in _effective_times(log, initial_partitions).items():
        for record, ts_ms in timed.records:
            if decode_marker(record.value) is None:
                ordered.append(Ordered(ts_ms, partition, record.offset, record.value))
    return sorted(ordered, key=lambda record: record[:3])


def released(log: Mapping[int, Sequence[LogRecord]], initial_partitions: int) -> list[Ordered]:
    """The part of the total order that a pipeline executes: nothing can come before it any more.

    One partition: everything. Several: what has an effective time below the smallest last one, and
    what partition 0, while it was alone, held before the marker that ended this. While only some
    partitions have announced a further one, nothing past what they announced is released either.
    """
    timed = _effective_times(log, initial_partitions)
    if len(timed) == 1:
        return order(log, initial_partitions)
    watermark = min(*(part.last_ms for part in timed.values()), *_caps(timed))
    alone = timed[0].first_naming(1) if initial_partitions == 1 else None
    return [
        record
        for record in order(log, initial_partitions)
        if record.ts_ms < watermark
        or (alone is not None and record.partition == 0 and record.offset < alone[0])
    ]


class _Timed(NamedTuple):
    """A partition: its records with effective times, its markers (offset, time), the last time."""

    records: list[tuple[LogRecord, int]]
    markers: list[tuple[int, int, Marker]]
    last_ms: float

    def first_naming(self, partitions: int) -> tuple[int, int] | None:
        """Offset and effective time of the first marker that counts more partitions than that."""
        for offset, ts_ms, marker in self.markers:
            if marker.partitions > partitions:
                return offset, ts_ms
        return None


def _effective_times(
    log: Mapping[int, Sequence[LogRecord]], initial_partitions: int
) -> dict[int, _Timed]:
    """The partitions that take part in the order: the initial ones and those that have joined."""
    timed: dict[int, _Timed] = {}
    for partition in range(initial_partitions):
        timed[partition] = _timed(log.get(partition, ()), -math.inf)
    for partition in itertools.count(initial_partitions):
        joins = [part.first_naming(partition) for part in timed.values()]
        times = [join[1] for join in joins if join is not None]
        if len(times) < len(joins):
            break
        timed[partition] = _timed(log.get(partition, ()), max(times))
    return timed


def _caps(timed: Mapping[int, _Timed]) -> list[float]:
    """Per partition that some have announced, not all: the last time at which one of them did."""
    counts = (marker.partitions for part in timed.values() for _, _, marker in part.markers)
    caps = [math.inf]
    for partition in range(len(timed), max(counts, default=0)):
        joins = [part.first_naming(partition) for part in timed.values()]
        caps.append(max(join[1] for join in joins if join is not None))
    return caps


def _timed(records: Sequence[LogRecord], start_ms: float) -> _Timed:
    """Effective times: the running maximum of append times and markers, from ``start_ms``."""
    timed = []
    markers = []
    last_ms = start_ms
    for record in records:
        last_ms = max(last_ms, record.append_ms)
        marker = decode_marker(record.value)
        if marker is not None:
            last_ms = max(last_ms, marker.marker)
            markers.append((record.offset, int(last_ms), marker))
        timed.append((record, int(last_ms)))
    return _Timed(timed, markers, last_ms)

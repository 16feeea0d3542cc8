"""Checks of what a sequencer is handed, and hands on; see `frames.invariants`."""

from __future__ import annotations

from streamydb.frames.invariants import HANDED_IN, HANDED_ON, Seam
from streamydb.limits import MARKER_NUMBER_MAX
from streamydb.records.marker import Marker

_RECORD = Seam("sequencer", HANDED_IN, "a record")
_MARKER = Seam("sequencer", HANDED_ON, "a marker")


def read(partition: int, marker: Marker | None, partitions: int) -> None:
    """Require that a record is of a partition that is followed, and a marker one that can be."""
    known = 0 <= partition < partitions
    _RECORD.require(known, "its partition is known", partition=partition, partitions=partitions)
    if marker is not None:
        number = marker.marker
        holds = 0 <= number <= MARKER_NUMBER_MAX
        _RECORD.require(holds, "a marker's number is within its limit", number=number)


def written(marker: Marker, highest_ms: int, partitions: int) -> Marker:
    """Hand on a marker that lies above all that was seen, and closes every partition."""
    number = marker.marker
    holds = highest_ms < number <= MARKER_NUMBER_MAX
    _MARKER.require(holds, "it lies above what was seen", number=number, seen=highest_ms)
    closed = marker.partitions
    _MARKER.require(closed == partitions, "it closes every partition", closed=closed)
    return marker

"""Checks of what the sorter is handed, and hands on; see `frames.invariants`."""

from __future__ import annotations

from streamydb.frames.invariants import HANDED_IN, HANDED_ON, Seam, disorder
from streamydb.frames.record_rows import CompiledRecords, TimedRecords

_RECEIVED = Seam("sorter", HANDED_IN, "records")
_RELEASED = Seam("sorter", HANDED_ON, "an order")


def received(piece: CompiledRecords) -> None:
    """Require that records are as the parser makes them."""
    piece.check(_RECEIVED)


def released(records: TimedRecords, watermark: int, limit: int) -> None:
    """Require that what is released is in order, below the watermark, and not too much."""
    require_order(_RELEASED, records, -1)
    n, last = len(records), int(records.ts_ms[-1])
    _RELEASED.require(last < watermark, "times are below the watermark", ts=last, bound=watermark)
    _RELEASED.require(n <= limit, "no more is released than may be", records=n, limit=limit)


def require_order(seam: Seam, records: TimedRecords, after: int) -> None:
    """Require the total order, and that nothing is before ``after`` (ms), released before."""
    at = disorder(records.ts_ms, records.partition, records.offset)
    seam.require(at < 0, "records are in the total order", row=at)
    first = int(records.ts_ms[0])
    seam.require(first >= after, "time never goes back", ts=first, before=after)

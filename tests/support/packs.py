"""Rows for the real-time gear as `RecordPacking.java` makes them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamydb.pipeline.realtime.core import TailRecord


def packed(records: Sequence[TailRecord]) -> bytes:
    """Return one row with all of these records."""
    if not records:
        return b""
    values = [b"" if record.value is None else record.value for record in records]
    lengths = [-1 if record.value is None else len(record.value) for record in records]
    parts = [
        len(records).to_bytes(8, "little"),
        *(record.offset.to_bytes(8, "little") for record in records),
        *(record.append_ms.to_bytes(8, "little") for record in records),
        *(length.to_bytes(4, "little", signed=True) for length in lengths),
        *values,
    ]
    return b"".join(parts)


def pack_rows(packs: Sequence[Sequence[TailRecord]]) -> pa.RecordBatch:
    """Return a batch with a row for each of these packs."""
    array = pa.array([packed(pack) for pack in packs], pa.binary())
    return pa.RecordBatch.from_arrays([array], names=["value"])

"""The rows that Spark hands to the worker of the real-time gear, as records of the log.

They come in one of two forms: many records in a row, as one text of bytes (`RecordPacking.java`);
or a record a row, and rows of nulls between them. Empty texts and rows of nulls only push out what
was before them.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from streamydb.pipeline.realtime.core import TailRecord

__all__ = ["records_of"]

_COUNT_BYTES: Final = 8


def records_of(batch: pa.RecordBatch) -> list[TailRecord]:
    """Return the records of a batch of rows, in order."""
    if batch.num_columns == 1:
        packs: list[bytes] = batch.column(0).to_pylist()
        return [record for pack in packs if pack for record in _unpacked(pack)]
    rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return [TailRecord(*row) for row in rows if row[0] is not None]


def _unpacked(pack: bytes) -> list[TailRecord]:
    """Return the records of one row, see `RecordPacking.java`."""
    n = int.from_bytes(pack[:_COUNT_BYTES], "little")
    heads = np.frombuffer(pack, "<i8", 2 * n, _COUNT_BYTES)
    at = _COUNT_BYTES + heads.nbytes
    lengths = np.frombuffer(pack, "<i4", n, at)
    ends = accumulate(np.maximum(lengths, 0).tolist(), initial=at + lengths.nbytes)
    values: list[bytes | None] = [pack[begin:end] for begin, end in pairwise(ends)]
    for row in np.flatnonzero(lengths < 0).tolist():
        values[row] = None
    return list(map(TailRecord, heads[:n].tolist(), heads[n:].tolist(), values))

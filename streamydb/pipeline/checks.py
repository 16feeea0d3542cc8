"""Checks of what the stages on Spark are handed, and hand on; see `columns.invariants`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from streamydb.columns.invariants import HANDED_IN, HANDED_ON, Seam
from streamydb.pipeline.spool import NO_SPOOL, Spool
from streamydb.txn_processor.outputs import Records

_BLOCK = Seam("pipeline", HANDED_IN, "a block")
_RECORDS = Seam("pipeline", HANDED_ON, "records")
_ARROW_BYTES_MAX: Final = (1 << 31) - 1
"""Of the texts of one column: Arrow tells where they end in 32 bits."""


def blocks_for(number: int, rows: Iterable[Any], spool: Spool = NO_SPOOL) -> Iterator[bytes]:
    """The blocks of rows; require that they came to where they were sent."""
    for row in rows:
        _BLOCK.require(row.dest == number, "it came where it was sent", here=number, to=row.dest)
        yield spool.read(bytes(row.block))


def paired(records: Records) -> Records:
    """Hand on records; require that each has a key and a value, or none, and that they fit into one
    batch of Arrow's.
    """
    keys, values = len(records.keys), len(records.values)
    _RECORDS.require(keys == values, "each has a key and a value", keys=keys, values=values)
    size = max(int(texts.offsets[-1]) for texts in (records.keys, records.values))
    _RECORDS.require(size <= _ARROW_BYTES_MAX, "a batch has at most 2 GiB of texts", bytes=size)
    return records

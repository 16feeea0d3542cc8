"""Records of blocks as a shard opens them."""

from __future__ import annotations

from collections.abc import Sequence

from streamydb.columns.blocks import open_header
from streamydb.columns.table import Columns
from streamydb.sorter.last_records import LastRecords

__all__ = ["opened"]


def opened(blocks: Sequence[bytes]) -> list[Columns]:
    """The tables of some blocks of records."""
    return LastRecords().of([open_header(block)[1] for block in blocks], 1)

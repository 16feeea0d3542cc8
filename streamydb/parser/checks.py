"""Checks of what the parser hands on; see `frames.invariants`."""

from __future__ import annotations

from typing import Final

from streamydb.frames.invariants import HANDED_ON, Seam
from streamydb.frames.record_rows import CompiledRecords

_RECORDS: Final = Seam("parser", HANDED_ON, "records")


def parsed(table: CompiledRecords) -> None:
    """Require that records were compiled as the sorter takes them."""
    table.check(_RECORDS)

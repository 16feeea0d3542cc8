"""Each invariant of the parser fires when what it is about is damaged."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streamydb.frames.record_rows import CompiledRecords
from streamydb.frames.table import ChildRows
from streamydb.parser import checks
from tests.support.seams import Damage, must_fire


def lost_payload(table: CompiledRecords) -> tuple[CompiledRecords]:
    counts, homes = table.home
    return (replace(table, home=ChildRows(counts, homes.part(1, len(homes)))),)


def marker_without_number(table: CompiledRecords) -> None:
    table.kind[0] = 3 - 3 * (table.kind[0] == 3)


@pytest.mark.parametrize(
    ("damage", "fact"), [(lost_payload, "add up"), (marker_without_number, "markers alone")]
)
def test_damaged_records_stop_the_batch(damage: Damage, fact: str) -> None:
    must_fire(checks.parsed, damage, f"parser .*{fact}")

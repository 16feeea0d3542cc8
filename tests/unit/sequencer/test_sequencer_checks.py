"""Each invariant of the sequencer fires."""

from __future__ import annotations

import pytest

from streamydb.errors import InvariantViolation
from streamydb.limits import MARKER_NUMBER_MAX
from streamydb.records.marker import Marker
from streamydb.sequencer import checks


def marker(number: int, partitions: int = 2) -> Marker:
    return Marker(marker=number, partitions=partitions, sequencer="s")


@pytest.mark.parametrize(
    "found", [marker(7), marker(6), marker(MARKER_NUMBER_MAX + 1), marker(8, 3)]
)
def test_a_marker_that_closes_nothing_is_not_written(found: Marker) -> None:
    assert checks.written(marker(8), 7, 2) == marker(8)
    with pytest.raises(InvariantViolation, match="sequencer hands on a marker"):
        checks.written(found, 7, 2)


@pytest.mark.parametrize(
    ("partition", "found"), [(2, None), (-1, None), (0, marker(-1)), (0, marker(1 << 53))]
)
def test_a_record_that_cannot_be_is_not_taken(partition: int, found: Marker | None) -> None:
    checks.read(1, None, 2)
    checks.read(1, marker(0), 2)
    with pytest.raises(InvariantViolation, match="sequencer is handed a record"):
        checks.read(partition, found, 2)

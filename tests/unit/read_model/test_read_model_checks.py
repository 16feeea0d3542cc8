"""Each invariant of the read model fires."""

from __future__ import annotations

import pytest

from streamydb.errors import InvariantViolation
from streamydb.read_model import checks


@pytest.mark.parametrize("times", [{5: 3, 6: 3}, {5: 3, 6: 2}, {9: 1, 5: 3}])
def test_time_goes_on_with_the_seqs_of_a_batch(times: dict[int, int]) -> None:
    checks.timed({})
    checks.timed({6: 4, 5: 3})
    with pytest.raises(InvariantViolation, match=r"read_model hands on a batch .*time goes on"):
        checks.timed(times)


@pytest.mark.parametrize("found", [(7, 49), (8, 49)])
def test_time_goes_on_from_one_resolved_record_to_the_next(found: tuple[int, int]) -> None:
    for after in ((7, 50), (8, 50), (8, 51), (6, 50), (6, 99)):
        checks.resolved((7, 50), after)
    with pytest.raises(InvariantViolation, match="read_model is handed a resolved record"):
        checks.resolved((7, 50), found)


@pytest.mark.parametrize("after", [{0: 4, 1: 9}, {0: 5}, {0: 5, 1: 9, 2: 0}])
def test_no_partition_is_read_backwards(after: dict[int, int]) -> None:
    checks.progressed({0: 5, 1: 9}, {0: 5, 1: 10})
    with pytest.raises(InvariantViolation, match="no partition goes back"):
        checks.progressed({0: 5, 1: 9}, after)

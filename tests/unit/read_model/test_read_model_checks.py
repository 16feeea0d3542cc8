"""Each invariant of the read model fires."""

from __future__ import annotations

import pytest

from streamydb.errors import InvariantViolation
from streamydb.read_model import checks


@pytest.mark.parametrize("after", [{0: 4, 1: 9}, {0: 5}, {0: 5, 1: 9, 2: 0}])
def test_no_partition_is_read_backwards(after: dict[int, int]) -> None:
    checks.progressed({0: 5, 1: 9}, {0: 5, 1: 10})
    with pytest.raises(InvariantViolation, match="no partition goes back"):
        checks.progressed({0: 5, 1: 9}, after)

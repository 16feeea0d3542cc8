"""What users of numba report, tried on compiled code here; `tests/reports.md` names the reports."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from streamydb.frames.json_writer import put_number


@njit
def _written(out: Any, value: int) -> int:
    return put_number(out, 0, value)


@given(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1]))
def test_compiled_code_writes_all_digits(value: int) -> None:
    out = np.zeros(32, np.uint8)
    assert bytes(out[: _written(out, np.int64(value))]).decode() == str(value)

"""Deadlines: find the records that come after theirs, or set one that is too far ahead."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamydb.columns.program import NOT_A_DUPLICATE, TOO_FAR, TOO_LATE
from streamydb.limits import DEADLINE_AHEAD_MS_MAX

__all__ = ["untimely"]

Ints = npt.NDArray[np.int64]


def untimely(deadlines: Ints, times: Ints) -> npt.NDArray[np.uint8]:
    """Return TOO_LATE, TOO_FAR or NOT_A_DUPLICATE for records that repeat nothing; shape (n,).

    Args:
        deadlines: of the records (ms), 0 for none, shape (n,).
        times: their commit times (ms), shape (n,).
    """
    kinds = np.full(len(deadlines), NOT_A_DUPLICATE, np.uint8)
    if deadlines.any():
        dated = deadlines > 0
        kinds[dated & (times > deadlines)] = TOO_LATE
        kinds[dated & (deadlines > times + DEADLINE_AHEAD_MS_MAX)] = TOO_FAR
    return kinds

"""The places of writes: the transactions of a partition, and the removals of what has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.columns.table import Columns

__all__ = ["PLACE", "Places"]

PLACE: Final = ("seq", "ts", "part", "off")


@dataclass(slots=True)
class Places:
    """The places of writes, in order: columns seq, ts (ms), part, off, text id.

    ``removals``: which of them are; None: they are the transactions, and none is.
    """

    table: Columns
    removals: npt.NDArray[np.bool_] | None = None

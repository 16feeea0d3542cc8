"""The places of writes: the transactions of a partition, and the removals of what has ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamydb.frames.value_rows import PlaceRows


@dataclass(slots=True)
class Places:
    """The places of writes, in order.

    ``removals``: which of them are; None: they are the transactions, and none is.
    """

    table: PlaceRows
    removals: npt.NDArray[np.bool_] | None = None

"""The table of the steps that transactions were compiled to; `program` is the instruction set."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamydb.frames.program import STEP
from streamydb.frames.table import Bytes, ColumnTable, Ragged

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]


class ProgramSteps(ColumnTable, frozen=True):
    """Steps of transactions.

    ``op``: what a step does; ``a``, ``low``, ``high``: its numbers; ``key``: the number of the key
    among those of the transaction; ``index``: of the check or update in the payload; ``flags``,
    ``tag``: see `program`. ``operand``: the text that it compares or writes, else empty.
    """

    a: Ints
    low: Ints
    high: Ints
    key: Places
    index: Places
    op: Bytes
    flags: Bytes
    tag: Bytes
    operand: Ragged

    @classmethod
    def of(cls, steps: npt.NDArray[Any], operand: Ragged) -> Self:
        whole = np.ascontiguousarray
        return cls(
            whole(steps["a"]),
            whole(steps["low"]),
            whole(steps["high"]),
            whole(steps["key"]),
            whole(steps["index"]),
            whole(steps["op"]),
            whole(steps["flags"]),
            whole(steps["tag"]),
            operand,
        )

    def packed(self) -> npt.NDArray[Any]:
        """The steps as kernels take them: of dtype STEP."""
        steps = np.zeros(len(self), STEP)
        for name in ("a", "low", "high", "key", "index", "op", "flags", "tag"):
            steps[name] = getattr(self, name)
        return steps

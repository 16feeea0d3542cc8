"""The outcome of an execution, and the most that it may make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb.frames.grant_rows import PlanTransactions
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import PlaceRows
from streamydb.procedures.follow_ups import NO_OUTPUTS, Outputs
from streamydb.records.rulings import Fault


class OutputBudget(NamedTuple):
    """The bytes that a partition of a plan may produce: values, results and emitted records.

    Transactions that Python executes count, and what the kernel's aborts tell of values that Python
    has made; the weight of the plan bounds the rest.
    ``first``: the plan's first seq. ``bytes``: 0 for any number.
    """

    first: int = 0
    bytes: int = 0

    def fits(self, made: int, seq: int) -> int:
        """Return how many of the plan's first records fit, when those up to ``seq`` have produced
        ``made`` bytes; 0: all so far.

        The first record alone always fits.
        """
        return seq - self.first if 0 < self.bytes < made else 0


@dataclass(slots=True)
class ExecutionOutcome:
    """The effects of a partition's transactions, in seq order.

    Shapes: n transactions, s slots. ``places``: those of the writes. ``special`` maps a
    transaction's position to its finished result record where it is not a plain commit.
    ``internal``: the faults of ours among them, by position; ``unruled``: those that nobody has
    ruled on, so nothing of this may be written. ``workflow``: what goes to streams and to the log.
    ``made``, ``fits``: see `OutputBudget`; if all do not fit, nothing of this may be written.
    ``executed``: how many transactions; of the others nothing is here.
    """

    txns: PlanTransactions
    places: Places
    slots: npt.NDArray[Any]
    slot_keys: Ragged
    slot_home: npt.NDArray[np.int64]
    pool: Ragged
    status: npt.NDArray[np.uint8]
    writes: npt.NDArray[Any]
    reads: npt.NDArray[Any]
    special: dict[int, bytes] = field(default_factory=dict)
    internal: dict[int, Fault] = field(default_factory=dict)
    unruled: list[Fault] = field(default_factory=list)
    workflow: Outputs = NO_OUTPUTS
    made: int = 0
    fits: int = 0
    executed: int = 0


@dataclass(slots=True)
class Places:
    """The places of writes, in order.

    ``removals``: which of them are; None: they are the transactions, and none is.
    """

    table: PlaceRows
    removals: npt.NDArray[np.bool_] | None = None

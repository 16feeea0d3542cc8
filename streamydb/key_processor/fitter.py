"""Fitting plans: how many of the records that could be released are one plan, by their values."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamydb.columns import program as p
from streamydb.columns.record_rows import TimedRecords
from streamydb.columns.sizes import Sizes
from streamydb.errors import InvariantViolation
from streamydb.key_processor import checks
from streamydb.key_processor.grants import Granter
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.last import LAST_PLAN
from streamydb.key_processor.state import ShardState
from streamydb.key_processor.values import ShardValues
from streamydb.key_processor.withdrawals import next_pace
from streamydb.limits import PLAN_RECORDS_MAX
from streamydb.sorter.last_plan import Planned
from streamydb.sorter.planner import Plan, earlier_with_same_id, plan_transactions

__all__ = ["PlanFitter"]

Fitted = tuple[Plan, npt.NDArray[np.int64], Granter]

_PACE_MIN: Final = 16
"""Fewest records that are released again after a plan was cut by its values."""


class PlanFitter:
    """Makes the plan of one shard within one step; the pace of releases is in the shard's state."""

    def __init__(
        self, meta: ShardState, shard: int, values: ShardValues, ids: IdWindow, sizes: Sizes | None
    ) -> None:
        """Plan for a shard with these values and ids; ``sizes``: None if it is the only one."""
        self._meta = meta
        self._shard = shard
        self._values = values
        self._ids = ids
        self._sizes = sizes
        self._planned: Fitted | None = None

    def fit(self, records: TimedRecords) -> int:
        """Return how many of the records are one plan, by the values they touch; keep that plan."""
        meta, keys = self._meta, records.keys.rows
        plan, earlier = LAST_PLAN.of(records, meta.config.shards, _planned)
        granter = Granter(self._shard, meta.config.shards, self._values, self._ids)
        sizes = None if self._sizes is None else self._sizes.of(keys.hash[plan.first])
        most = granter.weigh(records, plan, self._bound, sizes)
        fits = most == len(records)
        self._planned = (plan, earlier, granter) if fits else None
        if not fits:
            meta.pace = max(2 * most, _PACE_MIN)
        return most

    def fitted(self, released: TimedRecords) -> Fitted:
        """The plan of what was released: plan, earlier transactions with the same id, and grants.

        What was cut off lies in blobs, and is read again each time; so no more is asked for than
        twice of what fitted, until it fits again.
        """
        planned, meta = self._planned, self._meta
        if planned is not None:
            meta.pace = next_pace(meta.pace, meta.made, self._bound, PLAN_RECORDS_MAX)
            return planned
        if self.fit(released) == len(released) and (planned := self._planned) is not None:
            return planned
        raise InvariantViolation("a part of a plan that fits does not fit")

    @property
    def _bound(self) -> int:
        """Bytes of the values that a plan may touch."""
        return self._meta.shape.values_bytes_max


def _planned(records: TimedRecords, procs: int) -> Planned:
    """Plan records for partitions; a plan that is used again is not checked again."""
    valid = records.kind != p.REJECTED
    earlier = earlier_with_same_id(records.id0, valid)
    plan = plan_transactions(records, earlier, procs)
    checks.planned(records, plan, earlier, procs)
    return plan, earlier

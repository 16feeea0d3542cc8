"""A plan that makes too many bytes is withdrawn, and the first of its records are planned anew.

What appends and calls leave behind is known only when they are executed. So a partition that makes
more bytes than its plan may (`outcome.OutputBudget`) stops, and tells all shards how many of the
plan's first records fit. They take the plan back as if it had never been, and release so many. What
this partition or others have written of it is written again, to the byte, as after a crash.

Until its feedback has come, the shard keeps of such a plan its records, and the ids that it uses:
they are remembered only when the plan stands.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamydb.frames import program as p
from streamydb.frames.blobs import BlobStore
from streamydb.frames.plans import OpenPlan, PlanShape
from streamydb.frames.record_rows import ReleasedRecords, TimedRecords
from streamydb.key_processor.id_rows import UsedIds
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.memory import put_table, table_of
from streamydb.key_processor.state import ShardState
from streamydb.sorter.core import KeyedEventTimeSorter

_RECORDS: Final = "plan/records"
_IDS: Final = "plan/ids"


def may_be_too_much(released: TimedRecords) -> bool:
    """Return True if a plan of these records may make more than its weight tells;
    alone none does.
    """
    ranged = released.ranges is not None
    return len(released) > 1 and (ranged or bool(np.any(released.kind == p.GENERIC)))


def makes_max(plan: OpenPlan, shape: PlanShape) -> int:
    """Bytes that a partition of a plan may make; 0: any number."""
    return max(shape.values_bytes_max, 1) if plan.kept else 0


class Withdrawals:
    """Takes a plan back that has made too many bytes, within one step of a shard."""

    def __init__(
        self, meta: ShardState, blobs: BlobStore, ids: IdWindow, sorter: KeyedEventTimeSorter
    ) -> None:
        """Keep in ``blobs`` what a withdrawal needs; ``ids`` and ``sorter``: of the shard."""
        self._meta = meta
        self._ids = ids
        self._sorter = sorter
        self._kept = KeptPlan(blobs)

    def keep(self, plan: OpenPlan, released: ReleasedRecords, used: UsedIds) -> None:
        """Keep the records and ids of a plan that is granted; remember the ids of one that surely
        stands.
        """
        if plan.kept:
            self._kept.keep(released, used)
        elif plan.turns > 1:
            self._kept.keep_ids(used)
        else:
            self._ids.remember(used, plan.after + 1, plan.seq, plan.ts)

    def stands(self, plan: OpenPlan) -> bool:
        """Settle a plan whose feedback is complete: return False if it is withdrawn.

        Then the sorter has its records again. Otherwise its ids are remembered.
        """
        meta, kept = self._meta, self._kept
        if not (plan.kept or plan.turns > 1):
            return True
        if meta.fits:
            self._sorter.give_back(kept.records())
            meta.seq, meta.ts, meta.pace = plan.after, plan.ts_before, meta.fits
        else:
            self._ids.remember(kept.ids(), plan.after + 1, plan.seq, plan.ts)
        kept.forget()
        return not meta.fits


class KeptPlan:
    """The records and ids that a shard keeps of the plan in flight,
    in case that it is withdrawn.
    """

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def keep(self, released: ReleasedRecords, used: UsedIds) -> None:
        """Keep the records as they were released, and the ids that they use."""
        put_table(self._blobs, _RECORDS, released)
        self.keep_ids(used)

    def keep_ids(self, used: UsedIds) -> None:
        """Keep the ids alone: the plan stands, but older ids are still asked for."""
        put_table(self._blobs, _IDS, used)

    def ids(self) -> UsedIds:
        """Return the ids of the plan."""
        return table_of(self._blobs, _IDS, UsedIds)[0]

    def records(self) -> ReleasedRecords:
        """Return the records of the plan, as they were released."""
        return table_of(self._blobs, _RECORDS, ReleasedRecords)[0]

    def forget(self) -> None:
        """Keep the plan no more."""
        self._blobs.delete(_RECORDS)
        self._blobs.delete(_IDS)

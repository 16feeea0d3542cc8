"""Grant a plan: what a shard emits of it, and what it keeps of it until its feedback has come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from streamydb import limits
from streamydb.frames import program as p
from streamydb.frames.plans import OpenPlan, PlanShape, Timeline
from streamydb.frames.readers import ToExecutor
from streamydb.frames.record_rows import ReleasedRecords, TimedRecords
from streamydb.key_processor.expiry import Removals
from streamydb.key_processor.grants import Granter, GrantHeader
from streamydb.key_processor.repeats import KnownOutputs, partition_of
from streamydb.key_processor.state import Emitted, ShardState
from streamydb.key_processor.withdrawals import Withdrawals
from streamydb.planner.core import PlannedRecords

_ANY_BYTES: Final = 1 << 62


@dataclass(slots=True, frozen=True)
class PlanGranter:
    """Grants the plans of one shard."""

    meta: ShardState
    shard: int
    granter: Granter
    removals: Removals
    known: KnownOutputs
    withdrawals: Withdrawals

    def grant(
        self, plan: OpenPlan, released: ReleasedRecords, planned: PlannedRecords, shape: PlanShape
    ) -> list[Emitted[ToExecutor]]:
        """Emit what is known of a plan without execution, and what is granted of it."""
        meta, shards = self.meta, self.meta.config.shards
        silent = meta.role.is_silent(plan.after)
        slots = self.granter.read(released, planned)
        timeline = Timeline.of(released) if meta.expires or _may_end(released) else None
        turn_bytes_max = shape.turn_bytes_max(shards)
        if timeline is not None and meta.expires:
            bytes_max = _ANY_BYTES if silent else max(turn_bytes_max, limits.BLOCK_BYTES_MAX)
            written = slots.written(released, planned.plan)
            plan.ended = self.removals.begin(timeline, written, bytes_max)
        grants = self.granter.grant(released, planned, slots, timeline, shape.values_bytes_max)
        emitted = self.known.first_turn(plan, grants.repeats, turn_bytes_max, silent=silent)
        self.withdrawals.keep(plan, released, grants.used)
        header = GrantHeader(
            self.shard,
            plan,
            shape,
            slots,
            timeline,
            grants.left_out,
            silent=silent,
            alone=planned.size == 1,
            more=partition_of(self.shard) if plan.turns > 1 else None,
            members=np.bincount(planned.plan.proc, minlength=shards).tolist(),
        )
        for part in grants.parts:
            emitted += (meta.emit(part.proc, grant) for grant in header.messages(part))
        return emitted


def _may_end(released: TimedRecords) -> bool:
    """Return True if one of the records may say when a key ends."""
    return int(released.keys.rows.write.max(initial=0)) >= p.ENDING

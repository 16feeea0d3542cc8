"""Say which transactions are resolved: in records for readers, and in notices for the driver."""

from __future__ import annotations

from streamydb.frames.messages import Notice, ResolvedRecord, resolved_value
from streamydb.frames.plans import OpenPlan
from streamydb.frames.readers import ToExecutor
from streamydb.key_processor import checks
from streamydb.key_processor.state import ShardOutput, ShardState


class ShardProgress:
    """The progress of one shard; shard 0 says it for all."""

    def __init__(self, meta: ShardState, shard: int) -> None:
        self._meta = meta
        self._shard = shard

    def resolve(self, seq: int, ts: int, offsets: dict[int, int]) -> list[ShardOutput[ToExecutor]]:
        """Publish that everything up to ``seq`` has been written."""
        meta = self._meta
        checks.applied(seq, meta.seq, in_flight=meta.open is not None)
        meta.resolved_offsets = offsets
        if self._shard:
            return []
        record = ResolvedRecord.of(resolved_value(seq, ts, offsets), silent=not meta.role.leads)
        return [ShardOutput(0, record, -seq, meta.ignored)]

    def resolve_offsets(self, offsets: dict[int, int]) -> list[ShardOutput[ToExecutor]]:
        """Publish how much of the log is covered, if that is more than before."""
        meta = self._meta
        if offsets == meta.resolved_offsets or not meta.seq:
            return []
        return self.resolve(meta.seq, meta.ts, offsets)

    def notice(self, plan: OpenPlan) -> list[ShardOutput[ToExecutor]]:
        """Tell the driver what is resolved when this micro-batch has ended, if that is sure."""
        if self._shard or self._meta.role.is_silent(plan.after) or self._may_change(plan):
            return []
        value = resolved_value(plan.seq, plan.ts, plan.offsets).decode()
        return [ShardOutput(0, Notice(), plan.seq, self._meta.ignored, value)]

    def _may_change(self, plan: OpenPlan) -> bool:
        """Return True if a part of the plan may be withdrawn."""
        return plan.kept

"""The progress of a shard: the transactions that are resolved, and the digests of its state.

Records say to readers that a transaction is resolved, notices say it to the driver. A digest
belongs to an interval of seqs, and is published when all of the interval is resolved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from streamydb.errors import InvariantViolation
from streamydb.frames.digest import (
    DigestState,
    Teller,
    close,
    fold,
    item_lanes,
    outcome_sums,
    total,
)
from streamydb.frames.messages import (
    DigestRecords,
    Feedback,
    Notice,
    ResolvedRecord,
    resolved_value,
)
from streamydb.frames.plans import OpenPlan
from streamydb.frames.readers import ToExecutor
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor import checks
from streamydb.key_processor.state import ShardOutput, ShardState
from streamydb.key_processor.values import ShardValues


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


_MASK: Final = (1 << 64) - 1


class ShardDigests:
    """The digests of one shard.

    Args:
        state: what is known from earlier batches; None: begin with what ``values`` hold.
        interval: seqs from digest to digest.
        shard: the shard's number.
        values: the shard's values.
        resolved: what they stand at, when the digests begin with them.
        shards: how many shards there are.
    """

    def __init__(
        self,
        state: DigestState | None,
        interval: int,
        shard: int,
        values: ShardValues,
        resolved: int,
        shards: int = 1,
    ) -> None:
        self._shards = shards
        self._shard = shard
        self._values = values
        self.state = state or self._begun(interval, resolved)

    def end_plan(
        self, plan: OpenPlan, parts: Iterable[Feedback], verdicts: Verdicts, incarnation: str
    ) -> DigestRecords | None:
        """Fold in the feedback of a plan; return the digests of the intervals that it has ended."""
        self.add_plan([*(part.deltas for part in parts), plan.deltas], verdicts)
        return self.over(plan.seq, incarnation, plan.digest_times(self.state.interval))

    def add_plan(
        self, deltas: Iterable[Sequence[tuple[int, int, int]]], verdicts: Verdicts
    ) -> None:
        """Fold in the feedback of a plan; ``deltas``: (interval, low, high), in parts."""
        for part in deltas:
            for place, low, high in part:
                fold(self.state, place, low, high)
        self._add_outcomes(verdicts)

    def add_writes(
        self, before: WrittenValues, after: WrittenValues, seqs: list[int], verdicts: Verdicts
    ) -> None:
        """Fold in single writes: the old and the new values of the keys, and who wrote them."""
        lanes = item_lanes(after) - item_lanes(before)
        for seq, (low, high) in zip(seqs, lanes.tolist(), strict=True):
            fold(self.state, (seq - 1) // self.state.interval, low, high)
        self._add_outcomes(verdicts)

    def _add_outcomes(self, verdicts: Verdicts) -> None:
        sums = outcome_sums(verdicts.seq, verdicts.result, self.state.interval)
        for place, value in sums.items():
            fold(self.state, place, 0, 0, value)

    def over(
        self, resolved: int, incarnation: str, times: Mapping[int, int]
    ) -> DigestRecords | None:
        """Return the digests of all intervals that end at or before ``resolved``.

        ``times``: commit timestamps by seq, as far as they are known.
        """
        digests = close(self.state, self._shard, resolved, self._shards)
        if not digests:
            return None
        tellers = (Teller(incarnation, times.get(digest.seq)) for digest in digests)
        pairs = zip(tellers, digests, strict=True)
        return DigestRecords.of([(teller.key(digest), _encode(digest)) for teller, digest in pairs])

    def audit(self, reason: str) -> None:
        """Compare the stored values with the digest.
        Raises InvariantViolation: they are not what was written: the state is damaged.
        """
        stored, written = self._stored(), total(self.state)
        if stored != written:
            what = f"the stored values of shard {self._shard} have digest {_hex(stored)}, but what"
            raise InvariantViolation(
                f"{what} was written to them has {_hex(written)}: this state is damaged "
                f"(audited because {reason}); move the checkpoint away and rebuild from the log"
            )

    def _begun(self, interval: int, resolved: int) -> DigestState:
        low, high = self._stored()
        return DigestState(interval, -(-resolved // interval), low, high)

    def _stored(self) -> tuple[int, int]:
        if not self._values.state.blobs:
            return 0, 0
        lanes = np.zeros(2, np.uint64)
        for table in self._values.pieces():
            lanes += item_lanes(table).sum(axis=0, dtype=np.uint64)
        low, high = lanes.tolist()
        return low & _MASK, high & _MASK


_encode = msgspec.json.Encoder().encode


def _hex(lanes: tuple[int, int]) -> str:
    return f"{lanes[1]:016x}{lanes[0]:016x}"

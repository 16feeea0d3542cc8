"""The outputs of a plan that a shard knows without execution: repeated results, and removals.

A shard emits at most so many bytes of them in a micro-batch. When there are more, they take
*turns*: the plan stays in flight until the last one. Then the shard counts as one more partition of
the plan, and gives a chunk of feedback with each turn, so all shards wait for it.
"""

from __future__ import annotations

from streamydb import limits
from streamydb.frames.messages import Feedback
from streamydb.frames.plans import OpenPlan
from streamydb.frames.readers import ToExecutor
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor.expiry import Removals
from streamydb.key_processor.id_rows import RepeatedIds
from streamydb.key_processor.repeats import RepeatedResults
from streamydb.key_processor.state import NOT_YET, Emitted, ShardState


def partition_of(shard: int) -> int:
    """Return the number of a shard among the partitions of a plan."""
    return limits.SHARDS_MAX + shard


class KnownOutputs:
    """Emits the known outputs of one shard's plan within one step."""

    def __init__(
        self, meta: ShardState, shard: int, repeats: RepeatedResults, removals: Removals
    ) -> None:
        """Note in ``meta`` which turns are over."""
        self._meta = meta
        self._shard = shard
        self._repeats = repeats
        self._removals = removals

    def first_turn(
        self, plan: OpenPlan, repeated: RepeatedIds, bytes_max: int, *, silent: bool
    ) -> list[Emitted[ToExecutor]]:
        """Emit the known outputs of a new plan, at most some ``bytes_max`` bytes of results.

        ``silent``: they have been written; the digest has still to know the removals.
        """
        if silent:
            plan.deltas = self._removals.count()
            return []
        rows, turns = self._repeats.first(repeated, bytes_max) if len(repeated) else (None, 1)
        plan.turns = max(turns, self._removals.turns)
        if plan.turns > 1:
            plan.procs.append(partition_of(self._shard))
        return self._turn(plan, rows)

    def next_turn(self, plan: OpenPlan) -> list[Emitted[ToExecutor]]:
        """Emit the next known outputs of the plan in flight, if there are more."""
        turn = self._meta.turn
        if turn >= plan.turns or plan.turns == 1:
            return []
        self._removals.go_on(turn)
        return self._turn(plan, self._repeats.of_turn(turn))

    def _turn(self, plan: OpenPlan, rows: RepeatedIds | None) -> list[Emitted[ToExecutor]]:
        meta = self._meta
        messages: list[ToExecutor] = [] if rows is None else [*self._repeats.results(rows)]
        messages += self._removals.take(meta.turn)
        plan.deltas = [*plan.deltas, *self._removals.deltas]
        if plan.turns > 1:
            messages += self._feedback(plan)
        resolves = NOT_YET if plan.turns > 1 else ""
        meta.turn += 1
        return [meta.emit(self._shard, message, resolves) for message in messages]

    def _feedback(self, plan: OpenPlan) -> list[Feedback]:
        """Return the feedback by which every shard knows that this turn is over."""
        config = self._meta.config
        return [
            Feedback(
                plan=plan.name(),
                incarnation=config.incarnation,
                proc=partition_of(self._shard),
                shard=shard,
                chunk=self._meta.turn,
                chunks=plan.turns,
                deltas=[],
                writes=WrittenValues.none(),
                verdicts=Verdicts.none(),
            )
            for shard in range(config.shards)
        ]

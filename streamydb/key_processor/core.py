"""One shard: the sorter, the planner and the key processor take one step per micro-batch.

The step is a pure function of the shard's state and the messages of the batch: it applies the
feedback of the plan in flight; when no plan is in flight, it plans the next records of the order
and grants. Everything it must remember is in the blob store, under ``meta`` and the names that meta
lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from streamydb.frames.blobs import BlobStore
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.readers import ToExecutor, ToShard
from streamydb.frames.shards import ShardConfig
from streamydb.key_processor import checks
from streamydb.key_processor.base import describe
from streamydb.key_processor.duplicates import KnownOutputs, RepeatedResults
from streamydb.key_processor.expiry import Removals, with_removed
from streamydb.key_processor.grants import Granter, PlanGranter
from streamydb.key_processor.id_rows import IdTables
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.inbox import PlanFeedback, ShardInbox
from streamydb.key_processor.memory import META, put_state
from streamydb.key_processor.process_cache import ProcessCache
from streamydb.key_processor.progress import ShardDigests, ShardProgress
from streamydb.key_processor.sizes import sizes_of_shard
from streamydb.key_processor.state import ShardOutput, ShardState, load_or_begin
from streamydb.key_processor.value_store import ValueStore
from streamydb.key_processor.values import ShardValues
from streamydb.key_processor.withdrawals import Withdrawals, may_be_too_much
from streamydb.planner.core import Pace, Planner
from streamydb.sorter.core import KeyedEventTimeSorter
from streamydb.sorter.state import LogEnd, require_ends


class KeyTransactionProcessor:
    """One shard of the keys and of the ids, within one micro-batch.

    In: messages of one micro-batch, in any order: compiled records of the log; feedback of the plan
    in flight, and the tokens by which all shards know that it is complete; orders of the driver
    (which pipeline leads, audits).

    Out: messages for the executing partitions. Grants: the transactions whose ids live here, and
    the values of the keys that live here. Also records of what is resolved, and digests of the
    state.

    State: everything in the blob store under ``meta`` and the names that it lists: the sorter's
    state, the last seq, the plan in flight, values, ids. The local files are caches of it.

    Invariants: at most one plan is in flight, and the next is made when all its feedback has been
    applied, so no value is granted while somebody may still write it; seqs have no gaps; an id is
    executed once within its window; the step depends on state and messages alone, so a batch that
    is repeated grants the same bytes.

    A transfer: ``t1`` is released and gets seq 7, in every shard. The planner puts it on partition
    2. The shard of the id sends its steps there; the shard of ``alice`` sends 100 and version 3,
    that of ``bob`` 20 and version 5. In the next micro-batch the feedback comes: each shard stores
    its own account with version 7, and seq 7 is resolved.
    """

    def __init__(
        self,
        config: ShardConfig,
        shard: int,
        blobs: BlobStore,
        store: ValueStore,
        tables: IdTables,
        life: Life,
        *,
        cache: ProcessCache | None = None,
    ) -> None:
        """Load the state from ``blobs``, or begin a new database.

        ``cache``: of the process, for its shards.
        Raises ConfigurationError: the state was made with another configuration.
        """
        begins = blobs.get(META) is None
        self._meta = meta = load_or_begin(ShardState, blobs, config, life.shape)
        self._shard, self._blobs, self._life = shard, blobs, life
        self._cache = cache or ProcessCache()
        self._sorter = KeyedEventTimeSorter(meta.sorter, blobs)
        self._values = ShardValues(meta.values, blobs, store)
        self._ids = IdWindow(meta.ids, blobs, tables)
        self._sizes = sizes_of_shard(meta, self._values, blobs, shard, begins=begins)
        self._feedback = PlanFeedback(meta, blobs, shard, self._sizes)
        self._planner = Planner(config.shards, self._cache.plan)
        self._removals = Removals(blobs, self._values, config.digest_interval)
        repeats = RepeatedResults(blobs, self._ids)
        self._known = KnownOutputs(meta, shard, repeats, self._removals)
        self._withdrawals = Withdrawals(meta, blobs, self._ids, self._sorter)
        granter = Granter(shard, config.shards, self._values, self._ids)
        rest = granter, self._removals, self._known, self._withdrawals
        self._granter = PlanGranter(meta, shard, *rest)
        self._progress = ShardProgress(meta, shard)
        digests = meta.digests, config.digest_interval, shard, self._values, meta.applied()
        self._digests = ShardDigests(*digests, config.shards)

    def require_log(self, ends: Mapping[int, LogEnd]) -> None:
        """Refuse a log whose end is not what this state has read of it; see `LogEnd`.
        Raises InvariantViolation: the tail of the log was lost, and it has grown anew.
        """
        require_ends(ends, self._meta.sorter)

    def step(self, messages: Iterable[ToShard]) -> list[ShardOutput[ToExecutor]]:
        """Process the messages of one micro-batch; return what the executing partitions get."""
        meta = self._meta
        inbox = ShardInbox.of(messages, meta.config.incarnation)
        self._feedback.collect(inbox.feedback)
        self._sorter.add(self._cache.records.of(inbox.records, meta.config.shards))
        self._sorter.note_last(last for records in inbox.records for last in records.last)
        if meta.role.hear(inbox.roles):
            meta.resolved_offsets = {}
        emitted = self._apply()
        for audit in inbox.audits:
            self._digests.audit(audit.reason)
        self._sizes.hear_all(inbox.sizes)
        if meta.open is not None:
            emitted += self._known.next_turn(meta.open)
        elif self._sizes.known:
            emitted += self._plan(meta.shape)
        else:
            emitted += (meta.emit(self._shard, part) for part in self._sizes.announcement())
        self._save()
        return emitted

    def _apply(self) -> list[ShardOutput[ToExecutor]]:
        """Apply the feedback of the plan in flight when all of it is there; until then keep it."""
        meta, plan = self._meta, self._meta.open
        if plan is None:
            return []
        if not self._feedback.is_complete(plan):
            self._feedback.keep()
            return []
        parts, writes, verdicts = self._feedback.take()
        if not self._withdrawals.stands(plan):
            self._removals.forget_ended(plan)
            return []
        checks.fed(plan, parts, writes, verdicts, (self._shard, meta.config.shards))
        # Ends count from the plan after the first one that wrote an end.
        expires, meta.expires = meta.expires, meta.expires or meta.ends
        self._values.apply_all(
            lambda: with_removed(self._removals.ended(plan) if expires else (), writes)
        )
        self._removals.forget_ended(plan)
        self._ids.conclude(verdicts)
        digests = self._digests.end_plan(plan, parts, verdicts, meta.config.incarnation)
        emitted: list[ShardOutput[ToExecutor]] = []
        if digests is not None:
            emitted.append(meta.emit(self._shard, digests))
        emitted += self._progress.resolve(plan.seq, plan.ts, plan.offsets)
        meta.digests = self._digests.state
        describe(meta, plan, self._values, self._ids)
        return emitted

    def _plan(self, shape: PlanShape) -> list[ShardOutput[ToExecutor]]:
        """Plan the next records of the order, and grant; ``shape``: as the last step saved it."""
        meta = self._meta
        limit = min(shape.records_max, meta.pace or shape.records_max)
        limit = meta.role.may_release(meta.seq, limit)
        candidates = self._sorter.peek(limit, shape.bytes_max)
        if candidates is None:
            return self._progress.resolve_offsets(self._sorter.covered())
        planned = self._planner.plan(candidates.records, self._sizes, shape.values_bytes_max)
        pace = Pace(meta.pace, meta.made, shape.values_bytes_max)
        meta.pace = pace.after(len(candidates.records), planned.size)
        taken = self._sorter.take(candidates, planned.size)
        released = taken.released(meta.seq + 1 + np.arange(planned.size))
        checks.ordered(released, (meta.seq, meta.ts))
        covered, kept = self._sorter.covered(), may_be_too_much(released)
        plan = meta.open_plan(released, planned.plan, covered, self._life.name, kept=kept)
        emitted = self._granter.grant(plan, released, planned, shape)
        return [*emitted, *self._progress.notice(plan)]

    def _save(self) -> None:
        self._sorter.save()
        self._sizes.save()
        self._meta.digests = self._digests.state
        self._meta.shape = self._life.shape
        put_state(self._blobs, self._meta)

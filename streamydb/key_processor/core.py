"""One shard: the sorter and the key processor take one step per micro-batch.

The step is a pure function of the shard's state and the messages of the batch (records, feedback,
tokens): it applies the feedback of the plan in flight, orders and releases records, plans them when
no plan is in flight, and grants. Everything it must remember is in the blob store, under ``meta``
and the names that meta lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from streamydb import limits
from streamydb.columns.blobs import BlobStore
from streamydb.columns.grant_rows import RangeRows
from streamydb.columns.messages import (
    Audit,
    Deltas,
    Grant,
    Notice,
    ResolvedRecord,
    Role,
    ValueSizes,
    resolved_value,
)
from streamydb.columns.plans import Life, OpenPlan, PlanShape
from streamydb.columns.readers import ToExecutor, ToShard
from streamydb.columns.record_messages import LogRecords
from streamydb.columns.record_rows import ReleasedRecords
from streamydb.columns.shards import ShardConfig
from streamydb.columns.sizes import Sizes, SizesState
from streamydb.columns.timeline import Timeline
from streamydb.columns.value_rows import Verdicts, WrittenValues
from streamydb.key_processor import checks
from streamydb.key_processor.base import base_of, has_base
from streamydb.key_processor.digests import ShardDigests
from streamydb.key_processor.expiry import Removals, may_end, with_removed
from streamydb.key_processor.feedback import PlanFeedback
from streamydb.key_processor.fitter import PlanFitter
from streamydb.key_processor.grants import Granter, PartGrant, in_blocks
from streamydb.key_processor.id_rows import RepeatedIds
from streamydb.key_processor.idtable import IdTables
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.last import LAST_RECORDS
from streamydb.key_processor.repeats import RepeatedResults, partition_of, turn_feedback
from streamydb.key_processor.state import NOT_YET, Emitted, ShardState, load_or_begin
from streamydb.key_processor.value_store import ValueStore
from streamydb.key_processor.values import ShardValues
from streamydb.key_processor.waits import refuse_to_wait
from streamydb.key_processor.withdrawals import KeptPlan, makes_max, may_be_too_much
from streamydb.sorter.core import KeyedEventTimeSorter
from streamydb.sorter.log_end import LogEnd, require_ends

__all__ = ["KeyTransactionProcessor"]


class _Granting(NamedTuple):
    """The facts of a plan that are the same in all its grants; ``left_out``: see `Grant`."""

    plan: OpenPlan
    shape: PlanShape
    granter: Granter
    silent: bool
    alone: bool
    timeline: Timeline | None
    left_out: int | None


class KeyTransactionProcessor:
    """One shard of the keys and of the ids, within one micro-batch.

    In: messages of one micro-batch, in any order: compiled records of the log; feedback of the plan
    in flight, and the tokens by which all shards know that it is complete; orders of the driver
    (which pipeline leads, audits).

    Out: messages for the executing partitions. Grants: the transactions whose ids live here, and
    the values of the keys that live here. And what is resolved, and digests of the state.

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
    ) -> None:
        """Load the state from ``blobs``, or begin a new database.

        Raises:
            ConfigurationError: the state was made with another configuration.

        """
        self._shard = shard
        self._blobs = blobs
        self._life = life
        data = blobs.get("meta")
        self._meta = load_or_begin(ShardState, data, config, life.shape)
        self._sorter = KeyedEventTimeSorter(self._meta.sorter, blobs)
        self._values = ShardValues(self._meta.values, blobs, store)
        self._ids = IdWindow(self._meta.ids, blobs, tables)
        self._sizes = None
        if config.shards > 1:
            self._meta.sizes = self._meta.sizes or SizesState(known=data is None)
            self._sizes = Sizes(self._meta.sizes, blobs)
        self._feedback = PlanFeedback(self._meta, blobs, shard, self._sizes)
        self._fitter = PlanFitter(self._meta, shard, self._values, self._ids, self._sizes)
        self._repeats = RepeatedResults(blobs, self._ids)
        self._removals = Removals(blobs, self._values, config.digest_interval)
        self._digests = ShardDigests(
            self._meta.digests,
            config.digest_interval,
            shard,
            self._values,
            self._meta.applied(),
            config.shards,
        )

    def require_log(self, ends: Mapping[int, LogEnd]) -> None:
        """Refuse a log whose end is not what this state has read of it; see `LogEnd`.

        Raises:
            InvariantViolation: the tail of the log was lost, and it has grown anew.

        """
        require_ends(ends, self._meta.sorter)

    def step(self, messages: Iterable[ToShard]) -> Iterator[Emitted[ToExecutor]]:
        """Process what has come in one micro-batch; yields what the executing partitions get."""
        roles: list[Role] = []
        audits: list[Audit] = []
        sizes: list[ValueSizes] = []
        records: list[LogRecords] = []
        told_before = len(self._meta.tokens)
        for message in messages:
            if isinstance(message, LogRecords):
                records.append(message)
            elif isinstance(message, Role):
                roles.append(message)
            elif isinstance(message, Audit):
                audits.append(message)
            elif isinstance(message, ValueSizes):
                sizes.append(message)
            elif message.incarnation == self._meta.config.incarnation:
                self._feedback.collect(message)
        plan, came = self._meta.open, len(self._meta.tokens) > told_before
        self._meta.waits = 0 if came or plan is None else self._meta.waits + 1
        refuse_to_wait(self._meta.waits, self._meta.applied())
        self._sorter.add(LAST_RECORDS.of(records, self._meta.config.shards))
        self._sorter.note_last(last for told in records for last in told.last)
        if self._meta.role.hear(roles):
            self._meta.resolved_offsets = {}
        yield from self._complete()
        for audit in audits:
            self._digests.audit(audit.reason)
        for part in sizes:
            if self._sizes is not None:
                self._sizes.hear_from(part, self._meta.config.shards)
        if self._meta.open is None:
            yield from self._plan()
            yield from self._notice()
        else:
            yield from self._next_turn(self._meta.open)
        self._sorter.save()
        if self._sizes is not None:
            self._sizes.save()
        self._meta.digests = self._digests.state
        self._meta.shape = self._life.shape
        self._blobs.put("meta", msgspec.msgpack.encode(self._meta))

    def _complete(self) -> Iterator[Emitted[ToExecutor]]:
        """Apply the feedback of the plan in flight when all of it is there; until then keep it."""
        plan = self._meta.open
        if plan is None:
            return
        if not self._feedback.is_complete(plan):
            self._feedback.keep()
            return
        told = self._feedback.take()
        if (plan.kept or plan.turns > 1) and not self._stands(plan):
            self._removals.forget_ended(plan)
            return
        written = WrittenValues.concat([WrittenValues.none(), *(part.writes for part in told)])
        concluded = Verdicts.concat([Verdicts.none(), *(part.verdicts for part in told)])
        checks.fed(plan, told, written, concluded, (self._shard, self._meta.config.shards))
        expires, self._meta.expires = self._meta.expires, self._meta.expires or self._meta.ends
        self._values.apply_all(
            lambda: with_removed(self._removals.ended(plan) if expires else (), written)
        )
        self._removals.forget_ended(plan)
        self._ids.conclude(concluded)
        yield from self._digest(plan, [*(part.deltas for part in told), plan.deltas], concluded)
        yield from self._resolve(plan.seq, plan.ts, plan.offsets)
        self._describe(plan)

    def _describe(self, plan: OpenPlan) -> None:
        """Note beside the values what the real-time gear needs to begin with them."""
        tables = self._ids.shared_tables(plan.seq) if has_base(self._meta.config) else None
        if tables is None:
            return
        self._meta.digests = self._digests.state
        base = base_of(self._meta, plan, tables)
        if base is not None:
            self._values.describe(base)

    def _stands(self, plan: OpenPlan) -> bool:
        """Withdraw a plan that has produced too much; otherwise remember the ids that it uses."""
        meta, stands = self._meta, not self._meta.fits
        kept = KeptPlan(self._blobs)
        if stands:
            self._ids.remember(kept.ids(), plan.after + 1, plan.seq, plan.ts)
        else:
            self._sorter.give_back(kept.records())
            meta.seq, meta.ts, meta.pace = plan.after, plan.ts_before, meta.fits
        kept.forget()
        return stands

    def _digest(
        self, plan: OpenPlan, deltas: list[Deltas], verdicts: Verdicts
    ) -> Iterator[Emitted[ToExecutor]]:
        """Publish the digests of the intervals that the plan has ended."""
        self._digests.add_plan(deltas, verdicts)
        config = self._meta.config
        times = plan.digest_times(config.digest_interval)
        told = self._digests.over(self._meta.seq, config.incarnation, times)
        if told is not None:
            yield Emitted(self._shard, told, self._meta.seq, self._meta.ignored)

    def _resolve(self, seq: int, ts: int, offsets: dict[int, int]) -> Iterator[Emitted[ToExecutor]]:
        """Publish that everything up to ``seq`` has been written."""
        checks.applied(seq, self._meta.seq, in_flight=self._meta.open is not None)
        self._meta.resolved_offsets = offsets
        if self._shard == 0:
            value = resolved_value(seq, ts, offsets)
            told = ResolvedRecord.of(value, silent=not self._meta.role.leads)
            yield Emitted(0, told, -seq, self._meta.ignored)

    def _plan(self) -> Iterator[Emitted[ToExecutor]]:
        """Release records, plan them, and grant; the bounds are those of the state before the
        batch.
        """
        meta = self._meta
        if self._sizes is not None and not self._sizes.state.known:
            yield from self._announce(self._sizes)
            return
        shape = meta.shape
        limit = min(shape.records_max, meta.pace or shape.records_max)
        most = meta.role.may_release(meta.seq, limit)
        silent, before = meta.role.is_silent(meta.seq), (meta.seq, meta.ts)
        ready = self._sorter.release(most, shape.bytes_max, self._fitter.fit) if most else None
        if ready is None:
            covered = self._sorter.covered()
            if covered != meta.resolved_offsets and meta.seq:
                yield from self._resolve(meta.seq, meta.ts, covered)
            return
        n = len(ready)
        released = ready.released(np.arange(meta.seq + 1, meta.seq + n + 1))
        meta.seq, meta.plan = meta.seq + n, meta.plan + 1
        meta.ts = int(released.ts_ms[-1])
        plan, earlier, granter = self._fitter.fitted(released)
        checks.ordered(released, before)
        meta.open = OpenPlan(
            meta.plan,
            plan.procs(),
            meta.seq,
            meta.ts,
            self._sorter.covered(),
            before[0],
            self._life.name,
            plan.layout(shape.feedback_bytes_max),
            before[1],
            may_be_too_much(released),
            times=self._digest_times(released),
            position=self._position(released),
        )
        meta.fits, meta.made, meta.turn, meta.ends = 0, 0, 0, False
        timeline, most = self._timeline(released), shape.turn_bytes_max(meta.config.shards)
        if timeline is not None and meta.expires:
            bound = 1 << 62 if silent else max(most, limits.BLOCK_BYTES_MAX)
            skip = granter.written(released, plan)
            meta.open.ended = self._removals.begin(timeline, skip, bound)
        grants = granter.grants(released, plan, earlier, ends=timeline is not None)
        yield from self._first_turn(meta.open, granter.repeats, most, silent=silent)
        ranges = granter.ranges(released, plan, shape.values_bytes_max, timeline)
        if meta.open.kept:
            KeptPlan(self._blobs).keep(released, granter.used)
        elif meta.open.turns > 1:
            KeptPlan(self._blobs).keep_ids(granter.used)
        else:
            self._ids.remember(granter.used, before[0] + 1, meta.seq, meta.ts)
        members = np.bincount(plan.proc, minlength=meta.config.shards).tolist()
        left_out = None if plan.ranges is None else ranges.left_out
        granting = _Granting(meta.open, shape, granter, silent, n == 1, timeline, left_out)
        for part in grants:
            named = ranges.by_proc.get(part.proc)
            yield from self._granted(granting, part, named, members[part.proc])

    def _notice(self) -> Iterator[Emitted[ToExecutor]]:
        """Tell the driver what is resolved when this micro-batch has ended, if that is sure."""
        plan = self._meta.open
        if self._shard or plan is None:
            return
        if self._meta.role.is_silent(plan.after) or self._may_change(plan):
            return
        value = resolved_value(plan.seq, plan.ts, plan.offsets).decode()
        yield Emitted(0, Notice(), plan.seq, self._meta.ignored, value)

    def _may_change(self, plan: OpenPlan) -> bool:
        """Return True if a part of the plan may be withdrawn."""
        return plan.kept

    def _granted(
        self, granting: _Granting, part: PartGrant, ranges: RangeRows | None, members: int
    ) -> Iterator[Emitted[ToExecutor]]:
        """Yield what a partition is granted, which executes so many ``members`` of the plan."""
        plan, shape, granter, silent, alone, timeline, left_out = granting
        for chunk, (txns, slots, named) in enumerate(in_blocks(part.txns, part.slots, ranges)):
            checks.granted(plan, chunk, txns, slots)
            told = timeline is not None and (chunk == 0 or alone)
            grant = Grant(
                plan=plan.name(),
                shard=self._shard,
                silent=silent,
                feedback_bytes_max=shape.feedback_bytes_max,
                alone=alone,
                over=granter.over,
                makes_max=makes_max(plan, shape),
                times=timeline.packed() if timeline is not None and told else b"",
                more=partition_of(self._shard) if plan.turns > 1 else None,
                left_out=left_out,
                proc=part.proc,
                members=members,
                chunk=chunk,
                txns=txns,
                slots=slots,
                ranges=named,
            )
            yield Emitted(part.proc, grant, self._meta.seq, self._meta.ignored)

    def _first_turn(
        self, plan: OpenPlan, repeats: RepeatedIds, bound: int, *, silent: bool
    ) -> Iterator[Emitted[ToExecutor]]:
        """Tell what is known without execution, or some of it; nothing if it has been told."""
        if silent:
            for _ in self._removals.told(0):
                pass  # the digest must know them
            plan.deltas = self._removals.deltas
            return
        rows, turns = self._repeats.first(repeats, bound)
        plan.turns = max(turns, self._removals.turns)
        if plan.turns > 1:
            plan.procs.append(partition_of(self._shard))
        yield from self._turn(plan, rows)

    def _next_turn(self, plan: OpenPlan) -> Iterator[Emitted[ToExecutor]]:
        """Go on telling it, while a plan waits for its feedback."""
        turn = self._meta.turn
        if turn < plan.turns > 1:
            self._removals.go_on(turn)
            yield from self._turn(plan, self._repeats.of_turn(turn))

    def _turn(self, plan: OpenPlan, rows: RepeatedIds | None) -> Iterator[Emitted[ToExecutor]]:
        meta = self._meta
        repeats = () if rows is None else self._repeats.results(rows)
        resolves = NOT_YET if plan.turns > 1 else ""
        messages: Iterable[ToExecutor] = chain(repeats, self._removals.told(meta.turn))
        for message in messages:
            yield Emitted(self._shard, message, meta.seq, meta.ignored, resolves)
        plan.deltas = [*plan.deltas, *self._removals.deltas]
        if plan.turns > 1:
            own, config = partition_of(self._shard), meta.config
            for told in turn_feedback(plan, meta.turn, config.incarnation, own, config.shards):
                yield Emitted(self._shard, told, meta.seq, meta.ignored, resolves)
        meta.turn += 1

    def _position(self, released: ReleasedRecords) -> int:
        """Return where the log goes on behind a plan; -1: it has several partitions."""
        alone = self._meta.config.partitions == 1 and not released.partition.any()
        return int(released.offset[-1]) + 1 if alone else -1

    def _digest_times(self, released: ReleasedRecords) -> list[int]:
        """Return the commit timestamps of the records after which there is a digest."""
        interval = self._meta.config.digest_interval
        first = -int(released.seq[0]) % interval
        times: list[int] = released.ts_ms[first::interval].tolist()
        return times

    def _timeline(self, released: ReleasedRecords) -> Timeline | None:
        """Return when time passes in a plan, unless nothing can end in it."""
        if not (self._meta.expires or may_end(released)):
            return None
        return Timeline.of(released)

    def _announce(self, sizes: Sizes) -> Iterator[Emitted[ToExecutor]]:
        """Tell all shards the sizes of the values here."""
        incarnation = self._meta.config.incarnation
        for part in sizes.announcement(self._values.pieces(), incarnation, self._shard):
            yield Emitted(self._shard, part, self._meta.seq, self._meta.ignored)

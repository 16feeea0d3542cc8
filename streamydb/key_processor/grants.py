"""The grants of a shard to executing partitions: payloads of transactions, and values of keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.frames import program as p
from streamydb.frames.grant_rows import GrantedKeys, GrantedTransactions, RangeRows, SlotRows
from streamydb.frames.jit import leaf
from streamydb.frames.messages import Grant
from streamydb.frames.plans import OpenPlan, PlanShape, Timeline
from streamydb.frames.readers import ToExecutor
from streamydb.frames.record_rows import ReleasedRecords, TimedRecords
from streamydb.frames.sizes import SYSTEM, only_system
from streamydb.frames.table import Array, ChildRows, ColumnTable, Ragged, chunk_bounds, starts_of
from streamydb.frames.value_rows import ValueRows
from streamydb.key_processor import checks
from streamydb.key_processor.duplicates import (
    Duplicates,
    KnownOutputs,
    find_duplicates,
    partition_of,
)
from streamydb.key_processor.expiry import Removals, may_write, written_keys
from streamydb.key_processor.id_rows import RepeatedIds, UsedIds
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.ranges import OwnValues, RangeGrants, blocks_of, range_grants
from streamydb.key_processor.state import ShardOutput, ShardState
from streamydb.key_processor.values import ShardValues
from streamydb.key_processor.withdrawals import Withdrawals, makes_max
from streamydb.planner.core import PlannedRecords
from streamydb.planner.plan import Plan

_ROW_BYTES: Final = 8
"""Of a key, a step or a slot beside its texts: few, so that most plans are one block."""

Ints = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]


class OwnSlots(NamedTuple):
    """The slots of a plan whose keys live here, those keys, and their values.

    ``omitted``: the plan is one transaction whose values are too many bytes, so they are absent,
    but for the database's own.
    """

    owned: Ints
    keys: Ragged
    values: ValueRows
    omitted: bool

    def written(self, released: ReleasedRecords, plan: Plan) -> set[bytes]:
        """Return the keys that the plan may write, so that it is known to whom executes it when
        they end; those whose values are omitted are not among them.
        """
        keys = written_keys(released, plan, self.owned)
        return {key for key in keys if key[0] == SYSTEM} if self.omitted else keys


class PartGrant(NamedTuple):
    """All that a shard grants to partition ``proc``; ``ranges``: None if it has none."""

    proc: int
    txns: GrantedTransactions
    slots: SlotRows
    ranges: RangeRows | None


class Grants(NamedTuple):
    """All that a shard grants of a plan.

    ``used``: the ids to remember. ``repeats``: the transactions that repeat one of an earlier plan.
    ``left_out``: see `Grant`.
    """

    parts: list[PartGrant]
    used: UsedIds
    repeats: RepeatedIds
    left_out: int | None


@dataclass(slots=True, frozen=True)
class Granter:
    """Makes the grants of one shard."""

    shard: int
    shards: int
    values: ShardValues
    ids: IdWindow

    def read(self, released: ReleasedRecords, planned: PlannedRecords) -> OwnSlots:
        """Return the slots of a plan that live here."""
        plan, keys = planned.plan, released.keys.rows
        owned = (keys.hash[plan.first] % np.uint64(self.shards) == self.shard).nonzero()[0]
        texts = keys.key.take(plan.first[owned])
        if len(released) == 1 and self._is_too_much(texts, int(released.ts_ms[0])):
            system = only_system(texts, lambda rows: self.values.read(texts.take(rows)))
            return OwnSlots(owned, texts, system, omitted=True)
        values = self.values.read(texts) if planned.values is None else planned.values
        return OwnSlots(owned, texts, values, omitted=False)

    def _is_too_much(self, keys: Ragged, ts_ms: int) -> bool:
        """Return True if values that have not ended have more bytes than a transaction may meet."""
        bytes_max = limits.TRANSACTION_VALUES_BYTES_MAX
        if len(keys) <= bytes_max // limits.VALUE_BYTES_MAX:
            return False
        sizes = self.values.sizes(keys)
        ended = {key for due in self.values.due(ts_ms) for _, key in due}
        if ended:
            sizes[[key in ended for key in keys.tolist()]] = 0
        return int(sizes.sum()) > bytes_max

    def grant(
        self,
        released: ReleasedRecords,
        planned: PlannedRecords,
        slots: OwnSlots,
        timeline: Timeline | None,
        bytes_max: int,
    ) -> Grants:
        """Return what every partition gets to which this shard grants something.

        ``timeline``: of the plan, if keys may end in it. ``bytes_max``: of ranges, about.
        """
        plan = planned.plan
        at_home = (released.home.counts == 1).nonzero()[0]
        duplicates = find_duplicates(released, at_home, planned.earlier, self.ids)
        txns = _transactions(released, plan, at_home, duplicates)
        ends = timeline is not None
        owned, values = slots.owned, slots.values
        covered = None if plan.ranges is None else plan.ranges.covered[owned].astype(np.uint8)
        written = may_write(released, plan)[owned].astype(np.uint8) if ends else None
        columns = {"slot": owned, "covered": covered, "written": written, "key": slots.keys}
        rows = values.cast(SlotRows, **columns)
        ranges = RangeGrants({}, 0)
        if plan.ranges is not None:
            here = OwnValues(self.values, slots.owned, timeline)
            ranges = range_grants(released, plan, here, bytes_max // self.shards)
        parts = _divided(released, plan, at_home, (txns, rows), ranges)
        if timeline is None and plan.ranges is None and len(parts) > 1:
            parts = [part for part in parts if len(part.txns) or len(part.slots)]
        left_out = None if plan.ranges is None else ranges.left_out
        return Grants(parts, duplicates.used, duplicates.repeats, left_out)


def _divided(
    released: ReleasedRecords,
    plan: Plan,
    at_home: Ints,
    whole: tuple[GrantedTransactions, SlotRows],
    ranges: RangeGrants,
) -> list[PartGrant]:
    """Divide transactions and slots among the partitions of a plan."""
    txns, slots = whole
    procs = plan.procs()
    if len(procs) == 1:
        return [PartGrant(procs[0], txns, slots, ranges.by_proc.get(procs[0]))]
    slots_of = _slots_by_proc(plan, released.keys.counts, slots.slot, procs)
    home_proc = plan.proc[at_home]
    return [
        PartGrant(
            proc,
            txns.take(np.flatnonzero(home_proc == proc)),
            slots.take(slots_of[proc]),
            ranges.by_proc.get(proc),
        )
        for proc in procs
    ]


def _transactions(
    released: ReleasedRecords, plan: Plan, at_home: Ints, duplicates: Duplicates
) -> GrantedTransactions:
    """Return the payloads that live here, with places, slots of keys, and duplicates marked."""
    home = released.home.rows
    base = released.cast(_Places, keys=ChildRows(released.keys.counts, GrantedKeys(plan.slot)))
    base = base if len(at_home) == len(released) else base.take(at_home)
    columns = {"code": home.code, "id": home.id, "raw": home.raw, "steps": home.steps}
    copies = {"duplicate": duplicates.kind, "original": duplicates.of}
    return base.cast(GrantedTransactions, **columns, **copies)


class _Places(ColumnTable, frozen=True):
    """The places and kinds of records, and the slots of their keys."""

    seq: Ints
    ts_ms: Ints
    partition: Array
    offset: Ints
    kind: npt.NDArray[np.uint8]
    keys: ChildRows[GrantedKeys]


def in_blocks(
    txns: GrantedTransactions, slots: SlotRows, ranges: RangeRows | None = None
) -> Iterator[tuple[GrantedTransactions, SlotRows, RangeRows | None]]:
    """A grant in pieces of at most some `BLOCK_BYTES_MAX` of keys, values and payloads, at least
    one; ranges in pieces of their own.
    """
    if ranges is None and _is_one_block(txns, slots):
        yield txns, slots, None
        return
    counts, steps = txns.steps
    ends = np.concatenate([[0], np.cumsum(steps.operand.lengths())])
    rows = counts + txns.keys.counts
    home = txns.raw.lengths() + np.diff(ends[starts_of(counts)]) + _ROW_BYTES * rows
    held = slots.text_bytes() + _ROW_BYTES
    parts = [(txns.part(a, b), slots.part(0, 0)) for a, b in _cut(home)]
    parts += [(txns.part(0, 0), slots.part(a, b)) for a, b in _cut(held)]
    if len(parts) == 2:
        parts = [(txns, slots)]
    for part in parts:
        yield (*part, None)
    for named in [] if ranges is None else blocks_of(ranges):
        yield txns.part(0, 0), slots.part(0, 0), named


def _is_one_block(txns: GrantedTransactions, slots: SlotRows) -> bool:
    """Return True if neither the transactions nor the slots have to be cut, as mostly."""
    steps = txns.steps.rows
    rows = len(steps) + len(txns.keys.rows)
    home = txns.raw.size + steps.operand.size + _ROW_BYTES * rows
    held = slots.text.size + slots.key.size + _ROW_BYTES * len(slots)
    return max(home, held) <= limits.BLOCK_BYTES_MAX


def _cut(sizes: Ints) -> list[tuple[int, int]]:
    if int(sizes.sum()) <= limits.BLOCK_BYTES_MAX:
        return [(0, len(sizes))]
    return chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, len(sizes))


@leaf
def _mark(mask: Masks, slot: Ints, starts: Ints, proc: Ints) -> None:
    for i in range(len(proc)):
        bit = np.uint64(1) << np.uint64(proc[i])
        for k in range(starts[i], starts[i + 1]):
            mask[slot[k]] |= bit


def _slots_by_proc(plan: Plan, counts: Array, owned: Ints, procs: list[int]) -> dict[int, Ints]:
    """Per partition, the positions in ``owned`` of the slots that its transactions touch."""
    mask = np.zeros(len(plan.first), np.uint64)
    _mark(mask, plan.slot, starts_of(counts), plan.proc)
    mine = mask[owned]
    return {q: np.flatnonzero(mine & np.uint64(1 << q)) for q in procs}


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
    ) -> list[ShardOutput[ToExecutor]]:
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
        times = b"" if timeline is None else timeline.packed()
        members = np.bincount(planned.plan.proc, minlength=shards).tolist()
        alone = planned.size == 1
        for part in grants.parts:
            blocks = in_blocks(part.txns, part.slots, part.ranges)
            for chunk, (txns, rows, ranges) in enumerate(blocks):
                checks.granted(plan, chunk, txns, rows)
                grant = Grant(
                    plan=plan.name(),
                    shard=self.shard,
                    silent=silent,
                    feedback_bytes_max=shape.feedback_bytes_max,
                    alone=alone,
                    over=slots.omitted,
                    makes_max=makes_max(plan, shape),
                    times=times if chunk == 0 or alone else b"",
                    more=partition_of(self.shard) if plan.turns > 1 else None,
                    left_out=grants.left_out,
                    proc=part.proc,
                    members=members[part.proc],
                    chunk=chunk,
                    txns=txns,
                    slots=rows,
                    ranges=ranges,
                )
                emitted.append(meta.emit(part.proc, grant))
        return emitted


def _may_end(released: TimedRecords) -> bool:
    """Return True if one of the records may say when a key ends."""
    return int(released.keys.rows.write.max(initial=0)) >= p.ENDING

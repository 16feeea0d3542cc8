"""The grants of a shard to executing partitions: payloads of transactions, and values of keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.columns.grant_rows import GrantedKeys, GrantedTransactions, RangeRows, SlotRows
from streamydb.columns.jit import leaf
from streamydb.columns.messages import Grant
from streamydb.columns.plans import OpenPlan, PlanShape
from streamydb.columns.record_rows import ReleasedRecords
from streamydb.columns.sizes import SYSTEM, only_system
from streamydb.columns.table import Array, ChildRows, ColumnTable, Ragged, chunk_bounds, starts_of
from streamydb.columns.timeline import Timeline
from streamydb.columns.value_rows import ValueRows
from streamydb.key_processor import checks
from streamydb.key_processor.duplicates import Duplicates, find_duplicates
from streamydb.key_processor.expiry import may_write, written_keys
from streamydb.key_processor.id_rows import RepeatedIds, UsedIds
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.ranges import OwnValues, RangeGrants, blocks_of, range_grants
from streamydb.key_processor.values import ShardValues
from streamydb.key_processor.withdrawals import makes_max
from streamydb.planner.core import PlannedRecords
from streamydb.planner.plan import Plan

__all__ = ["GrantHeader", "Granter", "Grants", "OwnSlots", "PartGrant", "in_blocks"]

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
        rows = _slot_rows(released, plan, slots, ends=timeline is not None)
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


def _slot_rows(released: ReleasedRecords, plan: Plan, slots: OwnSlots, *, ends: bool) -> SlotRows:
    """Return the slots as they are granted; ``ends``: say which of them the plan may write."""
    owned, values = slots.owned, slots.values
    covered = None if plan.ranges is None else plan.ranges.covered[owned].astype(np.uint8)
    written = may_write(released, plan)[owned].astype(np.uint8) if ends else None
    return SlotRows(
        values.tag, values.number, values.version, owned, covered, written, values.text, slots.keys
    )


def _transactions(
    released: ReleasedRecords, plan: Plan, at_home: Ints, duplicates: Duplicates
) -> GrantedTransactions:
    """Return the payloads that live here, with places, slots of keys, and duplicates marked."""
    home = released.home.rows
    base = _Places(
        released.seq,
        released.ts_ms,
        released.partition,
        released.offset,
        released.kind,
        ChildRows(released.keys.counts, GrantedKeys(plan.slot)),
    )
    base = base if len(at_home) == len(released) else base.take(at_home)
    return GrantedTransactions(
        base.seq,
        base.ts_ms,
        base.partition,
        base.offset,
        base.kind,
        home.code,
        duplicates.kind,
        duplicates.of,
        home.id,
        home.raw,
        base.keys,
        home.steps,
    )


@dataclass(slots=True, frozen=True)
class GrantHeader:
    """The facts of a plan that all its grants of one shard have in their headers.

    ``alone``: the plan is one transaction. ``more``: one more partition whose feedback belongs to
    the plan. ``members``: how many transactions each partition executes.
    """

    shard: int
    plan: OpenPlan
    shape: PlanShape
    slots: OwnSlots
    timeline: Timeline | None
    left_out: int | None
    silent: bool
    alone: bool
    more: int | None
    members: list[int]

    def messages(self, part: PartGrant) -> Iterator[Grant]:
        """Yield what a partition is granted, in blocks."""
        times = b"" if self.timeline is None else self.timeline.packed()
        blocks = in_blocks(part.txns, part.slots, part.ranges)
        for chunk, (txns, slots, ranges) in enumerate(blocks):
            checks.granted(self.plan, chunk, txns, slots)
            yield Grant(
                plan=self.plan.name(),
                shard=self.shard,
                silent=self.silent,
                feedback_bytes_max=self.shape.feedback_bytes_max,
                alone=self.alone,
                over=self.slots.omitted,
                makes_max=makes_max(self.plan, self.shape),
                times=times if chunk == 0 or self.alone else b"",
                more=self.more,
                left_out=self.left_out,
                proc=part.proc,
                members=self.members[part.proc],
                chunk=chunk,
                txns=txns,
                slots=slots,
                ranges=ranges,
            )


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
    """Return True if neither the transactions nor the slots have to be cut; most plans' have not."""
    steps = txns.steps.rows
    rows = len(steps) + len(txns.keys.rows)
    home = txns.raw.bytes + steps.operand.bytes + _ROW_BYTES * rows
    held = slots.text.bytes + slots.key.bytes + _ROW_BYTES * len(slots)
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

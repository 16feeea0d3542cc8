"""The grants of a shard to an executing partition: payloads of transactions, and values of keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.columns.grant_rows import GrantedKeys, GrantedTransactions, RangeRows, SlotRows
from streamydb.columns.jit import leaf
from streamydb.columns.program import NOT_A_DUPLICATE, PLAN_DUPLICATE, REUSED, WINDOW_DUPLICATE
from streamydb.columns.record_rows import HomeRows, ReleasedRecords, TimedRecords
from streamydb.columns.sizes import SYSTEM, only_system
from streamydb.columns.table import Array, ChildRows, ColumnTable, Ragged, chunk_bounds, starts_of
from streamydb.columns.timeline import Timeline
from streamydb.columns.value_rows import ValueRows
from streamydb.errors import InvariantViolation
from streamydb.key_processor.deadlines import untimely
from streamydb.key_processor.expiry import may_write, written_keys
from streamydb.key_processor.id_rows import HomeIds, IdUse, RepeatedIds, UsedIds
from streamydb.key_processor.idwindow import IdWindow
from streamydb.key_processor.ranges import OwnValues, RangeGrants, blocks_of, range_grants
from streamydb.key_processor.values import ShardValues
from streamydb.key_processor.weights import affordable
from streamydb.sorter.planner import Plan

__all__ = ["Granter", "PartGrant", "in_blocks"]

_ROW_BYTES: Final = 8
"""Of a key, a step or a slot beside its texts: few, so that most plans are one block."""

Ints = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]


@dataclass(slots=True)
class _Duplicates:
    """For each transaction at home here: which kind of duplicate it is, and of which seq."""

    kind: npt.NDArray[np.uint8]
    of: Ints


class _Found(NamedTuple):
    """The slots of a plan whose keys live here, those keys, and their values."""

    owned: Ints
    keys: Ragged
    values: ValueRows


class PartGrant(NamedTuple):
    """All that a shard grants to partition ``proc``, but ranges."""

    proc: int
    txns: GrantedTransactions
    slots: SlotRows


@dataclass(slots=True)
class Granter:
    """Makes the grants of one shard for one plan."""

    shard: int
    shards: int
    values: ShardValues
    ids: IdWindow
    over: bool = False
    used: UsedIds = field(default_factory=UsedIds.none)
    repeats: RepeatedIds = field(default_factory=RepeatedIds.none)
    _found: _Found | None = None

    def weigh(self, released: TimedRecords, plan: Plan, bound: int, sizes: Ints | None) -> int:
        """Return how many of the first records may be one plan: all of them, or fewer, but at least
        one.

        Reads the values that live here if it is all. A transaction that is alone in its plan may
        turn out to meet too many bytes (`TRANSACTION_VALUES_BYTES_MAX`): then ``over`` is set, and
        the values are not read.

        Args:
            released: the records, in order.
            plan: what they would be.
            bound: bytes of the values that a plan may touch.
            sizes: of the slots' values, as all shards know them; None: only this shard has values.
        """
        keys = released.keys.rows
        owned = np.flatnonzero(keys.hash[plan.first] % np.uint64(self.shards) == self.shard)
        texts = keys.key.take(plan.first[owned])
        if len(released) == 1:
            self._found = _Found(owned, texts, self._of_one(texts, int(released.ts_ms[0])))
            return 1
        if sizes is not None:
            most = affordable(released, plan, sizes, bound)
            if most < len(released):
                return most
        found = self.values.read_within(texts, bound if sizes is None else None)
        if sizes is None:
            values = self.values
            exact = values.sizes(texts) if found is None else values.sizes_of(found)
            most = affordable(released, plan, exact, bound)
            if most < len(released):
                return most
        self._found = _Found(owned, texts, found or self.values.read(texts))
        return len(released)

    def written(self, released: TimedRecords, plan: Plan) -> set[bytes]:
        """Return the keys that live here and that the plan may write, so that it is known to whom
        executes it when they end; those without their values are not among them.
        """
        owned = np.empty(0, np.int64) if self._found is None else self._found.owned
        found = written_keys(released, plan, owned)
        return {key for key in found if key[0] == SYSTEM} if self.over else found

    def _of_one(self, texts: Ragged, ts_ms: int) -> ValueRows:
        """Return the values for a transaction that is alone in its plan, unless they are surely too
        large.
        """
        most = limits.TRANSACTION_VALUES_BYTES_MAX
        few = len(texts) <= most // limits.VALUE_BYTES_MAX
        if few or self._met(texts, ts_ms) <= most:
            return self.values.read(texts)
        self.over = True
        return only_system(texts, lambda chosen: self.values.read(texts.take(chosen)))

    def _met(self, texts: Ragged, ts_ms: int) -> int:
        """Return how many bytes the values of keys have at least that have not ended."""
        sizes = self.values.sizes(texts)
        over = {key for due in self.values.due(ts_ms) for _, key in due}
        if over:
            sizes[[key in over for key in texts.tolist()]] = 0
        return int(sizes.sum())

    def grants(
        self, released: ReleasedRecords, plan: Plan, earlier: Ints, *, ends: bool = False
    ) -> list[PartGrant]:
        """Return what every partition gets to which this shard grants something.

        The plan has been weighed, and may be one. The ids to remember are then in ``used``, and the
        transactions that repeat one of an earlier plan in ``repeats``. ``ends``: keys may end in
        the plan, so it is told which of them it may write.
        """
        counts, _ = released.keys
        at_home = np.flatnonzero(released.home.counts == 1)
        txns = self._transactions(released, plan, earlier, at_home)
        if self._found is None:
            raise InvariantViolation("a plan is granted before it was weighed")
        owned, texts, found = self._found
        covered = None if plan.ranges is None else plan.ranges.covered[owned].astype(np.uint8)
        written = may_write(released, plan)[owned].astype(np.uint8) if ends else None
        slots = SlotRows(
            found.tag, found.number, found.version, owned, covered, written, found.text, texts
        )
        procs = plan.procs()
        if len(procs) == 1:
            return [PartGrant(procs[0], txns, slots)]
        wanted = _slots_by_proc(plan, counts, owned, procs)
        home_proc = plan.proc[at_home]
        grants = []
        for proc in procs:
            part = txns.take(np.flatnonzero(home_proc == proc))
            values = slots.take(wanted[proc])
            if len(part) or len(values) or plan.ranges is not None or ends:
                grants.append(PartGrant(proc, part, values))
        return grants

    def ranges(
        self, released: ReleasedRecords, plan: Plan, bound: int, timeline: Timeline | None = None
    ) -> RangeGrants:
        """Return the ranges of the plan as they are here; at most ``bound`` bytes, about.

        ``timeline``: of the plan, where keys may end.
        """
        owned = np.empty(0, np.int64) if self._found is None else self._found.owned
        here = OwnValues(self.values, owned, timeline)
        return range_grants(released, plan, here, bound // self.shards)

    def _transactions(
        self, released: ReleasedRecords, plan: Plan, earlier: Ints, at_home: Ints
    ) -> GrantedTransactions:
        """Return the payloads that live here, with positions, slots of all keys, and duplicates
        marked.
        """
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
        duplicates = self._duplicates(released, home, at_home, earlier)
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

    def _duplicates(
        self, released: ReleasedRecords, home: HomeRows, at_home: Ints, earlier: Ints
    ) -> _Duplicates:
        """Find the transactions whose id was used before, and note the ids of the others."""
        own = HomeIds(
            released.seq[at_home],
            released.ts_ms[at_home],
            released.partition[at_home],
            released.offset[at_home],
            released.kind[at_home],
            released.id0[at_home],
            released.id1[at_home],
            home.payload,
            home.deadline,
        )
        seqs, valid = own.seq, own.valid()
        refused = untimely(own.deadline, own.ts_ms)
        id0, id1 = np.where(valid, own.id0, 0), np.where(valid, own.id1, 0)
        before = int(released.seq[0]) - 1
        last = self.ids.last_use(id0, id1, before)
        found = _Duplicates(np.zeros(len(seqs), np.uint8), np.zeros(len(seqs), np.int64))
        hit = np.flatnonzero(valid & self.ids.suspects(last, seqs))
        suspects = np.union1d(hit, _repeated(earlier, at_home))
        if len(suspects):
            self._resolve(suspects, own, refused, last, found)
        fresh = valid & (found.kind == NOT_A_DUPLICATE)
        found.kind[fresh] = refused[fresh]
        self.used = own.used(np.flatnonzero(valid & (found.kind == NOT_A_DUPLICATE)))
        again = np.flatnonzero(found.kind == WINDOW_DUPLICATE)
        self.repeats = own.repeats(again, found.of, home.id)
        return found

    def _resolve(
        self,
        suspects: Ints,
        ids: HomeIds,
        refused: npt.NDArray[np.uint8],
        last: Ints,
        found: _Duplicates,
    ) -> None:
        """Decide in seq order which suspects are duplicates, and of which transaction."""
        in_plan: dict[tuple[int, int], IdUse] = {}
        for i in suspects.tolist():
            key = (int(ids.id0[i]), int(ids.id1[i]))
            own = ids.use(i)
            use = in_plan.get(key)
            inside = use is not None
            if use is None:
                use = self.ids.repeated(int(last[i]), own.seq, own.ts_ms)
            elif not self.ids.remembers((use.seq, use.deadline), own.seq, own.ts_ms):
                use = None
            if use is None:
                if refused[i] == NOT_A_DUPLICATE:
                    in_plan[key] = own
                continue
            found.of[i] = use.seq
            if use.payload != own.payload:
                found.kind[i] = REUSED
            elif inside:
                found.kind[i] = PLAN_DUPLICATE
            else:
                found.kind[i] = WINDOW_DUPLICATE


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


def _cut(sizes: Ints) -> list[tuple[int, int]]:
    if int(sizes.sum()) <= limits.BLOCK_BYTES_MAX:
        return [(0, len(sizes))]
    return chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, len(sizes))


def _repeated(earlier: Ints, at_home: Ints) -> Ints:
    """Positions among ``at_home`` of transactions whose id occurs more than once in the plan."""
    later = np.flatnonzero(earlier >= 0)
    if not len(later):
        return later
    return np.flatnonzero(np.isin(at_home, np.concatenate([later, earlier[later]])))


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

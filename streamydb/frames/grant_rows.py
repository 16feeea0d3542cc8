"""Tables of a grant: the transactions, the values of their keys, and the ranges that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamydb.frames.invariants import Seam, not_after
from streamydb.frames.jit import kernel
from streamydb.frames.program import ProgramSteps
from streamydb.frames.table import Array, Bytes, ChildRows, ColumnTable, Ragged
from streamydb.frames.value_rows import (
    VALUE_FACTS,
    PlaceRows,
    ValueLimits,
    WrittenValues,
    wrong_value,
)

Ints = npt.NDArray[np.int64]

_TRANSACTION_FACTS: Final = (
    "seqs are the plan's, each once, in order",
    "records are in the total order",
    "steps are on keys of their transaction",
    "counts add up to the rows",
)
_SLOT_FACTS: Final = (*VALUE_FACTS, "each slot is there once, in order")


class GrantedKeys(ColumnTable, frozen=True):
    """The keys of granted transactions: the slot of each in the plan."""

    slot: Ints


class GrantedTransactions(ColumnTable, frozen=True):
    """Transactions that a shard grants to a partition: those whose ids live there.

    ``seq``, ``ts_ms``, ``partition``, ``offset``: the place of each. ``kind``, ``code``: as
    compiled (see `program`). ``duplicate``: NOT_A_DUPLICATE, or which kind of duplicate it is, and
    ``original``: of which seq. ``id``; ``raw``: the record, if
    Python executes it. ``keys``; ``steps``: that it was compiled to.
    """

    seq: Ints
    ts_ms: Ints
    partition: Array
    offset: Ints
    kind: Bytes
    code: Bytes
    duplicate: Bytes
    original: Ints
    id: Ragged
    raw: Ragged
    keys: ChildRows[GrantedKeys]
    steps: ChildRows[ProgramSteps]

    def check(self, seam: Seam, seqs: tuple[int, int], **where: object) -> None:
        """Require what holds of the transactions of a grant, or of a chunk of it.

        ``seqs``: the first and the last of the plan. ``where``: for people.
        """
        rows = len(self.keys.rows), len(self.steps.rows)
        columns = _Columns(
            self.seq,
            self.ts_ms,
            self.partition,
            self.offset,
            self.keys.counts,
            self.steps.counts,
            self.steps.rows.key,
            rows,
        )
        wrong = _wrong_transaction(columns, seqs)
        seam.require_none(wrong, _TRANSACTION_FACTS, first=seqs[0], last=seqs[1], **where)


class PlanTransactions(GrantedTransactions, frozen=True):
    """The transactions of a partition of a plan, in seq order; ``home``: the shard of each id."""

    home: Array

    @classmethod
    def of(cls, parts: Sequence[tuple[int, GrantedTransactions]]) -> Self:
        """Join what shards have granted: (shard, transactions)."""
        txns = GrantedTransactions.concat([part for _, part in parts])
        homes = [np.full(len(part), shard, np.int32) for shard, part in parts]
        whole = txns.cast(cls, home=homes[0] if len(homes) == 1 else np.concatenate(homes))
        if len(txns) > 1 and np.any(txns.seq[1:] < txns.seq[:-1]):
            return whole.take(np.argsort(txns.seq, kind="stable"))
        return whole

    def places(self) -> PlaceRows:
        return self.cast(PlaceRows)


class SlotRows(ColumnTable, frozen=True):
    """The values of slots of a plan before it, with their keys; as `WrittenValues`.

    ``slot``: which one each is. ``covered``: 1 if the plan may write it, and it is in a range that
    somebody names; None if nobody names a range. ``written``: 1 if the plan may write it; None if
    no key can end in the plan.
    """

    tag: Bytes
    number: Ints
    version: Ints
    slot: Ints
    covered: Bytes | None
    written: Bytes | None
    text: Ragged
    key: Ragged

    def check(self, seam: Seam, seqs: tuple[int, int], **where: object) -> None:
        """Require what holds of the slots of a grant, or of a chunk of it; as
        `GrantedTransactions.check`.
        """
        values = ValueLimits.of(self.cast(WrittenValues), 1, seqs[0] - 1)
        wrong = _wrong_slot(self.slot, values)
        seam.require_none(wrong, _SLOT_FACTS, first=seqs[0], last=seqs[1], **where)


class RangeEntries(ColumnTable, frozen=True):
    """Keys in a range and their values; as `WrittenValues`."""

    tag: Bytes
    number: Ints
    version: Ints
    text: Ragged
    key: Ragged


class RangeRows(ColumnTable, frozen=True):
    """Ranges from ``start`` to before ``end``, as a shard holds them.

    ``count``: of the keys that the plan does not write; ``version``: the highest of these.
    ``whole``: 1 if the ``entries`` are all here. ``written``: keys in it that live in the shard and
    are granted one by one. ``ending``: entries that end in the plan; None if no key can.
    """

    count: Ints
    version: Ints
    whole: Bytes
    written: Ints
    start: Ragged
    end: Ragged
    entries: ChildRows[RangeEntries]
    ending: ChildRows[RangeEntries] | None


class _Columns(NamedTuple):
    """The columns of granted transactions; ``rows``: of keys and of steps."""

    seq: Ints
    ts: Ints
    part: Array
    off: Ints
    keys: Array
    steps: Array
    step_keys: Array
    rows: tuple[int, int]


@kernel
def _wrong_transaction(txns: _Columns, seqs: tuple[int, int]) -> tuple[int, int]:
    last, keys, step = seqs[0] - 1, 0, 0
    for i in range(len(txns.seq)):
        if txns.seq[i] <= last or txns.seq[i] > seqs[1]:
            return 0, i
        last = txns.seq[i]
        if i > 0 and not_after(txns.ts, txns.part, txns.off, i):
            return 1, i
        end = step + txns.steps[i]
        if end < step or end > txns.rows[1] or txns.keys[i] < 0:
            return 3, i
        while step < end:
            if txns.step_keys[step] < 0 or txns.step_keys[step] >= txns.keys[i]:
                return 2, i
            step += 1
        keys += txns.keys[i]
    if keys != txns.rows[0] or step != txns.rows[1]:
        return 3, -1
    return -1, -1


@kernel
def _wrong_slot(slot: Ints, values: ValueLimits) -> tuple[int, int]:
    fact, row = wrong_value(values)
    if fact >= 0:
        return fact, row
    for i in range(1, len(slot)):
        if slot[i] <= slot[i - 1]:
            return 3, i
    return -1, -1

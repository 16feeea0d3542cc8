"""The facts of a block that both of its sides check: who makes it, and who is handed it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy.typing as npt

from streamydb import limits
from streamydb.columns import program as p
from streamydb.columns.invariants import Seam, not_after
from streamydb.columns.jit import kernel
from streamydb.columns.table import Bytes, Columns
from streamydb.columns.value_rows import KEYS_FACT, VALUE_FACTS, ValueLimits, wrong_value

__all__ = ["require_grant", "require_records"]

Ints = npt.NDArray[Any]

_SUMS: Final = "counts add up to the rows"

_RECORD_FACTS: Final = (
    "records are of a known kind, with one home, and markers alone have numbers", _SUMS, KEYS_FACT,
)
_GRANT_FACTS: Final = (
    *VALUE_FACTS,
    "seqs are the plan's, each once, in order",
    "records are in the total order",
    "steps are on keys of their transaction",
    _SUMS,
    "each slot is there once, in order",
)

def _values(table: Columns, low: int, high: int) -> ValueLimits:
    keys, texts = table.texts["key"].offsets, table.texts["text"].offsets
    return ValueLimits(
        table.cols["tag"], table.cols["version"], keys, texts, low, high, limits.KEY_BYTES_MAX,
        limits.VALUE_BYTES_MAX,
    )


@kernel
def _wrong_record(
    kinds: Bytes, counts: tuple[Ints, Ints, Ints], rows: tuple[int, int, int], keys: Ints, most: int
) -> tuple[int, int]:
    of_keys, of_homes, of_markers = counts
    key, home, marker = 0, 0, 0
    for i in range(len(kinds)):
        if kinds[i] > p.MARKER or of_homes[i] < 0 or of_homes[i] > 1:
            return 0, i
        if of_markers[i] != (kinds[i] == p.MARKER):
            return 0, i
        if of_keys[i] < 0:
            return 1, i
        key, home, marker = key + of_keys[i], home + of_homes[i], marker + of_markers[i]
    if key != rows[0] or home != rows[1] or marker != rows[2]:
        return 1, -1
    for k in range(len(keys) - 1):
        length = keys[k + 1] - keys[k]
        if length < 1 or length > most:
            return 2, k
    return -1, -1


def require_records(seam: Seam, table: Columns) -> None:
    """Require what holds of compiled records."""
    (keys, key_rows), (homes, home_rows), (markers, marker_rows) = (
        table.children[name] for name in ("keys", "home", "marker")
    )
    found = _wrong_record(
        table.cols["kind"], (keys, homes, markers),
        (len(key_rows), len(home_rows), len(marker_rows)), key_rows.texts["key"].offsets,
        limits.KEY_BYTES_MAX,
    )
    seam.require_none(found, _RECORD_FACTS)


class _Txns(NamedTuple):
    """The columns of granted transactions; ``rows``: of keys and of steps."""

    seq: Ints
    ts: Ints
    part: Ints
    off: Ints
    keys: Ints
    steps: Ints
    step_keys: Ints
    rows: tuple[int, int]


@kernel
def _wrong_grant(
    txns: _Txns, slot: Ints, values: ValueLimits, seqs: tuple[int, int]
) -> tuple[int, int]:
    fact, row = wrong_value(values)
    if fact >= 0:
        return fact, row
    last, keys, step = seqs[0] - 1, 0, 0
    for i in range(len(txns.seq)):
        if txns.seq[i] <= last or txns.seq[i] > seqs[1]:
            return 3, i
        last = txns.seq[i]
        if i > 0 and not_after(txns.ts, txns.part, txns.off, i):
            return 4, i
        end = step + txns.steps[i]
        if end < step or end > txns.rows[1] or txns.keys[i] < 0:
            return 6, i
        while step < end:
            if txns.step_keys[step] < 0 or txns.step_keys[step] >= txns.keys[i]:
                return 5, i
            step += 1
        keys += txns.keys[i]
    if keys != txns.rows[0] or step != txns.rows[1]:
        return 6, -1
    for i in range(1, len(slot)):
        if slot[i] <= slot[i - 1]:
            return 7, i
    return -1, -1


def require_grant(
    seam: Seam, seqs: tuple[int, int], txns: Columns, slots: Columns, **where: object
) -> None:
    """Require what holds of a grant, or a chunk of it: a plan's transactions, and the values of
    their keys from before it.

    Args:
        seam: where.
        seqs: the first and the last of the plan.
        txns: the transactions.
        slots: the values.
        where: for people.

    """
    (keys, key_rows), (steps, step_rows) = txns.children["keys"], txns.children["steps"]
    cols, rows = txns.cols, (len(key_rows), len(step_rows))
    columns = _Txns(
        cols["seq"], cols["ts"], cols["part"], cols["off"], keys, steps, step_rows.cols["key"], rows
    )
    found = _wrong_grant(columns, slots.cols["slot"], _values(slots, 1, seqs[0] - 1), seqs)
    seam.require_none(found, _GRANT_FACTS, first=seqs[0], last=seqs[1], **where)

"""Expiry in a shard: the removal of what has ended and that the plan in hand does not write.

A key is absent from its end on, whatever lies under it: whoever executes a transaction sees to
that. What tells the removal, once, is a change at the first seq whose commit time is not before the
end, so it depends on the log alone. If the plan may write the key, the executing partition tells
it, because it knows whether the end was moved before; all others are told by their shard when the
plan is made, and leave the values when it stands.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import numpy as np
import numpy.typing as npt

from streamydb import limits
from streamydb.columns import program as p
from streamydb.columns.blocks import removals_block
from streamydb.columns.digest import item_lanes
from streamydb.columns.table import Array, Columns, Ragged, chunk_bounds
from streamydb.columns.timeline import Timeline
from streamydb.key_processor.values import ShardValues
from streamydb.records.expiry import EXPIRY_ID, removal_number
from streamydb.sorter.planner import Plan

__all__ = ["Removals", "may_end", "may_write", "removed", "with_removed", "written_keys"]

Ints = npt.NDArray[np.int64]
_MASK = (1 << 64) - 1


def may_end(released: Columns) -> bool:
    """Return True if one of the records may say when a key ends."""
    return int(released.children["keys"][1].cols["write"].max(initial=0)) >= p.ENDING


def may_write(released: Columns, plan: Plan) -> npt.NDArray[np.bool_]:
    """Mark the slots that a plan may write; shape (slots,)."""
    written = np.zeros(len(plan.first), np.bool_)
    written[plan.slot[released.children["keys"][1].cols["write"] != 0]] = True
    return written


def written_keys(released: Columns, plan: Plan, owned: Ints) -> set[bytes]:
    """Return the keys among the ``owned`` slots that a plan may write."""
    chosen = owned[may_write(released, plan)[owned]]
    texts = released.children["keys"][1].texts["key"]
    return set(texts.take(plan.first[chosen]).tolist())


class Removals:
    """The removals that a shard tells at the places of a timeline."""

    def __init__(self, values: ShardValues, timeline: Timeline, interval: int) -> None:
        """Look for them in ``values``; ``interval``: seqs from digest to digest."""
        self._values = values
        self._timeline = timeline
        self._interval = interval
        self._sums: dict[int, tuple[int, int]] = {}

    @property
    def deltas(self) -> list[tuple[int, int, int]]:
        """By how much the removals change the digest: (interval, low, high)."""
        return [(place, *sums) for place, sums in sorted(self._sums.items())]

    def blocks(self, skip: Container[bytes], *, silent: bool) -> Iterator[bytes]:
        """Yield blocks of all of them but those in ``skip``; none if they are not to be told."""
        for due in self._values.due(int(self._timeline.ts[-1])):
            ends = np.array([end for end, key in due if key not in skip], np.int64)
            keys = Ragged.of([key for _, key in due if key not in skip])
            sizes = self._values.sizes(keys)
            for start, end in chunk_bounds(sizes, limits.BLOCK_BYTES_MAX, len(sizes)):
                table = self._table(keys.part(start, end), ends[start:end])
                if not silent:
                    yield removals_block(table)

    def _table(self, keys: Ragged, ends: Ints) -> Columns:
        """Return the removals of some keys as changes, see `format_changes`."""
        keys = Ragged.of(keys.tolist())
        found, rows = self._values.read(keys), self._timeline.at(ends)
        seqs = self._timeline.seq[rows]
        lanes = item_lanes(Columns(found.cols, {**found.texts, "key": keys}))
        for place, (low, high) in zip(
            ((seqs - 1) // self._interval).tolist(), lanes.tolist(), strict=True
        ):
            known = self._sums.get(place, (0, 0))
            self._sums[place] = (known[0] - low) & _MASK, (known[1] - high) & _MASK
        return removed(keys, found, self._timeline, rows)


def removed(keys: Ragged, values: Columns, timeline: Timeline, rows: Ints) -> Columns:
    """Return the removals of keys with these values, at ``rows`` of a timeline, as changes."""
    n = len(keys)
    cols: dict[str, Array] = {name: col[rows] for name, col in timeline._asdict().items()}
    cols["part"] = cols["part"].astype(np.int32)
    cols["index"] = np.array([removal_number(key) for key in keys.tolist()], np.int64)
    cols["before_tag"], cols["before_number"] = values.cols["tag"], values.cols["number"]
    cols["after_tag"], cols["after_number"] = np.zeros(n, np.uint8), np.zeros(n, np.int64)
    ids = Ragged.of([EXPIRY_ID.encode()] * n)
    texts = {"id": ids, "key": keys, "before": values.texts["text"], "after": Ragged.empty(n)}
    return Columns(cols, texts)


def with_removed(values: ShardValues, written: Columns, until_ms: int) -> Columns:
    """Return what a plan has written, and deletes of what has ended by its last commit time and was
    not written.
    """
    gone: list[bytes] = []
    known: set[bytes] | None = None
    for due in values.due(until_ms):
        if known is None:
            known = set(written.texts["key"].tolist())
        gone += [key for _, key in due if key not in known]
    if not gone:
        return written
    return Columns.concat([written, deletes(gone)])


def deletes(keys: list[bytes]) -> Columns:
    """Return deletes of keys as `ShardValues.apply` takes writes."""
    n = len(keys)
    cols: dict[str, Array] = {
        "tag": np.zeros(n, np.uint8), "number": np.zeros(n, np.int64),
        "version": np.zeros(n, np.int64),
    }
    return Columns(cols, {"key": Ragged.of(keys), "text": Ragged.empty(n)})

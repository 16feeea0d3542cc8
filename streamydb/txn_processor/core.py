"""The stateless stages around the shards, as plain functions over columns: parse and execute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamydb import limits
from streamydb.columns.blocks import (
    empty_verdicts,
    empty_writes,
    feedback_block,
    open_block,
)
from streamydb.columns.digest import write_deltas
from streamydb.columns.plans import PlanName
from streamydb.columns.shards import ShardConfig
from streamydb.columns.sizes import only_system, tells, text_bytes
from streamydb.columns.table import Array, Columns, Ragged
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Rulings, require_ruled
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.execution import ExecutionOutcome, Most, execute_grants

__all__ = ["execute", "passed_on"]


def execute(
    blocks: Iterable[bytes], config: ShardConfig, spreads: int, changes_partitions: int,
    modules: Modules = NO_MODULES, rulings: Rulings = NO_RULINGS,
) -> Iterator[o.Rows | o.Records]:
    """Execute what one partition was granted; yields outputs to be formatted, feedback last.

    ``modules``: where the code of procedures is. ``rulings``: as they are given.

    Raises:
        UnruledFaults: our own code failed on transactions that nobody has ruled on.
        InvariantViolation: the same, on transactions that another pipeline has executed.

    """
    parts: dict[tuple[PlanName, int, bool, int, int], _Grants] = {}
    for block in blocks:
        header, arrays = open_block(block)
        if header["kind"] in _PASSED:
            yield from passed_on(header, arrays, changes_partitions)
            continue
        if header["kind"] == "sizes":
            yield o.Records(o.FEEDBACK, Ragged.empty(1), Ragged.of([block]), 0, header["shard"])
            continue
        grant = Columns.unflatten(arrays, "txns."), Columns.unflatten(arrays, "slots.")
        plan = (
            PlanName.of(header), header["proc"], header["silent"], header["feedback_bytes_max"],
            header.get("makes_max", 0),
        )
        parts.setdefault(plan, _Grants()).add(header, *grant)
    for (name, proc, silent, bytes_max, makes), found in sorted(parts.items(), key=_first):
        grants, most = found.in_order(), Most(name.first, makes)
        outcome = execute_grants(grants, modules, rulings, over=found.over, most=most)
        require_ruled(outcome.unruled, executed=silent)
        shown: dict[str, Any] = {**name.fields(), "incarnation": config.incarnation, "proc": proc}
        if makes:
            shown["made"] = outcome.made
        if outcome.fits:
            yield from _withdrawn({**shown, "fits": outcome.fits}, config.shards)
            continue
        if not silent:
            yield from o.outputs_of(outcome, spreads)
        deltas = _deltas(outcome, grants, config)
        chunked = o.feedback_chunks(outcome, config.shards, bytes_max)
        for shard, chunk, chunks, writes, verdicts in chunked:
            header = {
                **shown, "shard": shard, "chunk": chunk, "chunks": chunks,
                "deltas": deltas[shard] if chunk == 0 else [],
            }
            if (told := _told(writes)):
                header["sizes"] = told
            block = feedback_block(header, writes, verdicts)
            yield o.Records(o.FEEDBACK, Ragged.empty(1), Ragged.of([block]), 0, shard)


def _withdrawn(header: dict[str, Any], shards: int) -> Iterator[o.Records]:
    """Return the feedback of a partition that has stopped, because its plan produces too much."""
    for shard in range(shards):
        told = {**header, "shard": shard, "chunk": 0, "chunks": 1, "deltas": []}
        block = feedback_block(told, empty_writes(), empty_verdicts())
        yield o.Records(o.FEEDBACK, Ragged.empty(1), Ragged.of([block]), 0, shard)


@dataclass(slots=True)
class _Grants:
    """The grants of all shards to one partition: by shard and number, transactions and slots.

    ``over``: the plan is one transaction, whose keys hold too many bytes. Then their values are not
    kept, whoever sent them.
    """

    parts: dict[tuple[int, int], tuple[Columns, Columns]] = field(default_factory=dict)
    over: bool = False
    met: int = 0

    def add(self, header: dict[str, Any], txns: Columns, slots: Columns) -> None:
        """Take one block."""
        self.parts[header["shard"], header.get("chunk", 0)] = txns, slots
        if header.get("alone") and header.get("bounded", True):
            self.met += text_bytes(slots)
            self.over |= header["over"] or self.met > limits.TRANSACTION_VALUES_BYTES_MAX
        if self.over:
            self.parts = {at: (txns, _emptied(rows)) for at, (txns, rows) in self.parts.items()}

    def in_order(self) -> list[tuple[int, Columns, Columns]]:
        """(shard, transactions, slots), the same whatever order they came in."""
        return [(shard, *grant) for (shard, _), grant in sorted(self.parts.items(), key=_first)]


def _told(writes: Columns) -> bytes:
    """Encode the size classes that written values have newly reached, for all shards."""
    grown = writes.cols.pop("grown", None)
    if grown is None or not grown.any():
        return b""
    rows = np.flatnonzero(grown)
    return tells(writes.texts["key"].take(rows), grown[rows])


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


def _emptied(slots: Columns) -> Columns:
    """Drop the values of all slots but those of the database's own keys."""
    left = only_system(slots.texts["key"], slots.take)
    left.cols["slot"], left.texts["key"] = slots.cols["slot"], slots.texts["key"]
    return left


_PASSED = {"resolved", "digests"}


def passed_on(
    header: dict[str, Any], arrays: dict[str, Array], changes_partitions: int
) -> Iterator[o.Records]:
    """The records of a block that has nothing to execute: resolved records, digests."""
    if header["kind"] == "digests":
        texts = Columns.unflatten(arrays).texts
        yield o.Records(o.DIGESTS, texts["key"], texts["value"])
    elif not header["silent"]:
        value = Ragged.of([arrays["value"].tobytes()])
        for partition in range(changes_partitions):
            yield o.Records(o.CHANGES, Ragged.empty(1), value, 0, partition)


def _deltas(
    outcome: ExecutionOutcome, grants: list[tuple[int, Columns, Columns]], config: ShardConfig
) -> list[list[tuple[int, int, int]]]:
    """Return, per shard, the change of its digest by the writes: (interval, low, high)."""
    met = np.concatenate([slots.cols["version"] for _, _, slots in grants]).astype(np.int64)
    first, sums = write_deltas(
        outcome.writes, outcome.txns.cols["seq"], outcome.slot_keys, met, outcome.slot_home,
        outcome.pool, config.digest_interval, config.shards,
    )
    return [
        [(first + i, low, high) for i, (low, high) in enumerate(rows) if low or high]
        for rows in sums.tolist()
    ]

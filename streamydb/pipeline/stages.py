"""The stateless stages around the shards, as plain functions over columns: parse and execute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from streamydb import limits
from streamydb.columns import program as p
from streamydb.columns.blocks import (
    empty_verdicts,
    feedback_block,
    open_block,
    parts_block,
    records_blocks,
    require_format,
    token_block,
)
from streamydb.columns.digest import write_deltas
from streamydb.columns.plans import PlanName
from streamydb.columns.shards import ShardConfig
from streamydb.columns.sizes import only_system, tells, text_bytes
from streamydb.columns.table import Array, Ragged, Table, pack, unpack
from streamydb.errors import RecordError
from streamydb.key_processor.values import empty_writes
from streamydb.pipeline.tail import last_reads
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Rulings, require_ruled
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.compile import compile_records
from streamydb.txn_processor.execution import Most, Outcome, execute_grants

__all__ = ["Routed", "execute", "parse_feedback", "parse_transactions", "passed_on"]


@dataclass(slots=True, frozen=True)
class Routed:
    """A block for a shard."""

    shard: int
    block: bytes


def parse_transactions(
    partitions: Array, offsets: Array, append_ms: Array,
    values: Sequence[bytes | None] | Ragged, shards: int, *, whole: bool = False,
    constraints: bool = False, rulings: Rulings = NO_RULINGS,
) -> Iterator[Routed]:
    """Compile log records; keys and positions go to every shard, the payload to its home shard.

    ``whole``: payloads travel as they are, even if they compile to steps (`grouping=single`).
    ``constraints``: whether the database has constraints. ``rulings``: as they are given.

    Raises:
        UnruledFaults: our own code failed on records that nobody has ruled on.

    """
    table = compile_records(
        partitions, offsets, append_ms, values, constraints=constraints, rulings=rulings
    )
    if whole:
        home = table.children["home"][1]
        given = values.tolist() if isinstance(values, Ragged) else values
        raws = zip(table.cols["kind"].tolist(), given, home.texts["raw"].tolist(), strict=True)
        home.texts["raw"] = Ragged.of(
            [value or b"" if kind == p.SIMPLE else raw for kind, value, raw in raws]
        )
    last = last_reads(partitions, offsets, append_ms, values)
    for shard, block in enumerate(records_blocks(table, _homes(table, shards), last)):
        yield Routed(shard, block)


def _homes(table: Table, shards: int) -> Iterator[tuple[Array, Table]]:
    """Per shard: which records have their home there, and their payloads."""
    counts, payloads = table.children["home"]
    if shards == 1:
        yield counts, payloads
        return
    homes = table.cols["id0"] % np.uint64(shards)
    for shard in range(shards):
        mine = homes == np.uint64(shard)
        yield mine.astype(np.int64), payloads.take(np.flatnonzero(mine))


_TOKENS = {"feedback": token_block, "released": parts_block}
_TOLD = {"role", "audit", "sizes"}


def parse_feedback(
    values: Iterable[bytes | None], config: ShardConfig, offsets: Iterable[int] | None = None
) -> Iterator[Routed]:
    """Feedback goes to its shard, a completion token to the others; foreign blocks are dropped.

    Roles and audits go to all, with their ``offsets`` in the topic, by which they are in order.
    """
    for value, offset in zip(values, repeat(0) if offsets is None else offsets, strict=False):
        try:
            header, _ = unpack(value or b"")
        except RecordError:
            continue
        if header.get("incarnation") != config.incarnation:
            continue  # of any format: a rebuild with another release passes what the old one wrote
        require_format(header)
        kind = header.get("kind")
        if kind in _TOLD:
            told = pack({}, **header, at=offset)
            yield from (Routed(shard, told) for shard in range(config.shards))
            continue
        if kind not in _TOKENS:
            continue
        token = _TOKENS[kind](header) if config.shards > 1 else b""
        for shard in range(config.shards):
            yield Routed(shard, value if shard == header["shard"] and value else token)


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
        grant = Table.unflatten(arrays, "txns."), Table.unflatten(arrays, "slots.")
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
    """The feedback of a partition that has stopped, because its plan makes too much."""
    for shard in range(shards):
        told = {**header, "shard": shard, "chunk": 0, "chunks": 1, "deltas": []}
        block = feedback_block(told, empty_writes(), empty_verdicts())
        yield o.Records(o.FEEDBACK, Ragged.empty(1), Ragged.of([block]), 0, shard)


@dataclass(slots=True)
class _Grants:
    """What one partition was granted of a plan: by shard and number, transactions and slots.

    ``over``: the plan is one transaction, whose keys hold too many bytes. Then their values are not
    kept, whoever sent them.
    """

    parts: dict[tuple[int, int], tuple[Table, Table]] = field(default_factory=dict)
    over: bool = False
    met: int = 0

    def add(self, header: dict[str, Any], txns: Table, slots: Table) -> None:
        """Take one block."""
        self.parts[header["shard"], header.get("chunk", 0)] = txns, slots
        if header.get("alone") and header.get("bounded", True):
            self.met += text_bytes(slots)
            self.over |= header["over"] or self.met > limits.TRANSACTION_VALUES_BYTES_MAX
        if self.over:
            self.parts = {at: (txns, _emptied(rows)) for at, (txns, rows) in self.parts.items()}

    def in_order(self) -> list[tuple[int, Table, Table]]:
        """(shard, transactions, slots), the same whatever order they came in."""
        return [(shard, *grant) for (shard, _), grant in sorted(self.parts.items(), key=_first)]


def _told(writes: Table) -> bytes:
    """What all shards must know of written values: which have grown into a larger class."""
    grown = writes.cols.pop("grown", None)
    if grown is None or not grown.any():
        return b""
    rows = np.flatnonzero(grown)
    return tells(writes.texts["key"].take(rows), grown[rows])


def _first(item: tuple[Any, Any]) -> Any:
    return item[0]


def _emptied(slots: Table) -> Table:
    """Slots of which only the system's own have values."""
    left = only_system(slots.texts["key"], slots.take)
    left.cols["slot"], left.texts["key"] = slots.cols["slot"], slots.texts["key"]
    return left


_PASSED = {"resolved", "digests"}


def passed_on(
    header: dict[str, Any], arrays: dict[str, Array], changes_partitions: int
) -> Iterator[o.Records]:
    """The records of a block that has nothing to execute: resolved records, digests."""
    if header["kind"] == "digests":
        texts = Table.unflatten(arrays).texts
        yield o.Records(o.DIGESTS, texts["key"], texts["value"])
    elif not header["silent"]:
        value = Ragged.of([arrays["value"].tobytes()])
        for partition in range(changes_partitions):
            yield o.Records(o.CHANGES, Ragged.empty(1), value, 0, partition)


def _deltas(
    outcome: Outcome, grants: list[tuple[int, Table, Table]], config: ShardConfig
) -> list[list[tuple[int, int, int]]]:
    """Per shard, what the writes change in its digest: (interval, low, high)."""
    met = np.concatenate([slots.cols["version"] for _, _, slots in grants]).astype(np.int64)
    first, sums = write_deltas(
        outcome.writes, outcome.txns.cols["seq"], outcome.slot_keys, met, outcome.slot_home,
        outcome.pool, config.digest_interval, config.shards,
    )
    return [
        [(first + i, low, high) for i, (low, high) in enumerate(rows) if low or high]
        for rows in sums.tolist()
    ]

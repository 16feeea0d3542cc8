"""The stateless stages around the shards, as plain functions over columns: parse and execute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamydb.columns import Array, Ragged, Table
from streamydb.errors import RecordError
from streamydb.pipeline.blocks import (
    feedback_block,
    open_block,
    parts_block,
    records_blocks,
    token_block,
)
from streamydb.pipeline.shard import ShardConfig
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor import program as p
from streamydb.txn_processor.compile import compile_records
from streamydb.txn_processor.execution import execute_grants

__all__ = ["Routed", "execute", "parse_feedback", "parse_transactions"]


@dataclass(slots=True, frozen=True)
class Routed:
    """A block for a shard."""

    shard: int
    block: bytes


def parse_transactions(
    partitions: Array, offsets: Array, append_ms: Array,
    values: Sequence[bytes | None] | Ragged, shards: int, *, whole: bool = False,
    constraints: bool = False,
) -> Iterator[Routed]:
    """Compile log records; keys and positions go to every shard, the payload to its home shard.

    ``whole``: payloads travel as they are, even if they compile to steps (`grouping=single`).
    ``constraints``: whether the database has constraints.
    """
    table = compile_records(partitions, offsets, append_ms, values, constraints=constraints)
    if whole:
        home = table.children["home"][1]
        given = values.tolist() if isinstance(values, Ragged) else values
        raws = zip(table.cols["kind"].tolist(), given, home.texts["raw"].tolist(), strict=True)
        home.texts["raw"] = Ragged.of(
            [value or b"" if kind == p.SIMPLE else raw for kind, value, raw in raws]
        )
    for shard, block in enumerate(records_blocks(table, _homes(table, shards))):
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


def parse_feedback(values: Iterable[bytes | None], config: ShardConfig) -> Iterator[Routed]:
    """Feedback goes to its shard, a completion token to the others; foreign blocks are dropped."""
    for value in values:
        try:
            header, _ = open_block(value or b"")
        except RecordError:
            continue
        kind = header.get("kind")
        if kind not in _TOKENS or header.get("incarnation") != config.incarnation:
            continue
        token = _TOKENS[kind](header) if config.shards > 1 else b""
        for shard in range(config.shards):
            yield Routed(shard, value if shard == header["shard"] and value else token)


def execute(
    blocks: Iterable[bytes], config: ShardConfig, spreads: int, changes_partitions: int,
    modules: Modules = NO_MODULES,
) -> Iterator[o.Rows | o.Records]:
    """Execute what one partition was granted; yields outputs to be formatted, feedback last.

    ``modules``: where the code of procedures is.
    """
    parts: dict[tuple[int, int], list[tuple[int, Table, Table]]] = {}
    for block in blocks:
        header, arrays = open_block(block)
        if header["kind"] == "resolved":
            value = Ragged.of([arrays["value"].tobytes()])
            for partition in range(changes_partitions):
                yield o.Records(o.CHANGES, Ragged.empty(1), value, 0, partition)
            continue
        grant = Table.unflatten(arrays, "txns."), Table.unflatten(arrays, "slots.")
        parts.setdefault((header["plan"], header["proc"]), []).append((header["shard"], *grant))
    for (plan, proc), grants in sorted(parts.items(), key=lambda item: item[0]):
        outcome = execute_grants(sorted(grants, key=lambda grant: grant[0]), modules)
        yield from o.outputs_of(outcome, spreads)
        for shard, chunk, chunks, writes, verdicts in o.feedback_chunks(outcome, config.shards):
            header = {
                "incarnation": config.incarnation, "shard": shard, "plan": plan, "proc": proc,
                "chunk": chunk, "chunks": chunks,
            }
            block = feedback_block(header, writes, verdicts)
            yield o.Records(o.FEEDBACK, Ragged.empty(1), Ragged.of([block]), 0, shard)

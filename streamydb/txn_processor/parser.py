"""Parse records of the log and of the feedback topic into blocks for the shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from msgspec.structs import replace

from streamydb.columns import program as p
from streamydb.columns.encoding import Part, peel
from streamydb.columns.lock_messages import FinishedParts, ReleasedLocks, Swept
from streamydb.columns.messages import Audit, Feedback, Role, Token, ValueSizes
from streamydb.columns.protocol import Message, require_format
from streamydb.columns.record_messages import records_for
from streamydb.columns.record_rows import CompiledRecords, LastRead
from streamydb.columns.shards import ShardConfig
from streamydb.columns.table import Array, ChildRows, Ragged
from streamydb.errors import RecordError
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.sorter.log_end import last_reads
from streamydb.txn_processor import checks
from streamydb.txn_processor.compile import compile_records

__all__ = ["Routed", "parse_feedback", "parse_transactions", "route"]


@dataclass(slots=True, frozen=True)
class Routed:
    """A block for a shard, in parts; what blocks of several shards share is the same object."""

    shard: int
    parts: Sequence[Part]

    @property
    def block(self) -> bytes:
        """The block as a whole."""
        return b"".join(self.parts)


def parse_transactions(
    partitions: Array, offsets: Array, append_ms: Array,
    values: Sequence[bytes | None] | Ragged, shards: int, *, whole: bool = False,
    constraints: bool = False, rulings: Rulings = NO_RULINGS, hashes: bool = False,
) -> Iterator[Routed]:
    """Compile log records; keys and positions go to every shard, the payload to its home shard.

    ``whole``: payloads travel as they are, even if they compile to steps (`grouping=single`).
    ``constraints``: whether it was created for constraints. ``rulings``: as they are given.
    ``hashes``: as `LogRecords` has them.

    Raises:
        UnruledFaults: our own code failed on records that nobody has ruled on.

    """
    table = compile_records(
        partitions, offsets, append_ms, values, constraints=constraints, rulings=rulings
    )
    if whole:
        counts, home = table.home
        given = values.tolist() if isinstance(values, Ragged) else values
        raws = zip(table.kind.tolist(), given, home.raw.tolist(), strict=True)
        payloads = Ragged.of(
            [value or b"" if kind == p.SIMPLE else raw for kind, value, raw in raws]
        )
        whole_home = ChildRows(counts, replace(home, raw=payloads))
        table = replace(table, home=whole_home)
    last = last_reads(partitions, offsets, append_ms, values)
    yield from route(table, shards, last, hashes=hashes)


def route(
    table: CompiledRecords, shards: int, last: Sequence[LastRead], *, hashes: bool = False
) -> Iterator[Routed]:
    """Yield the block of each shard from compiled records.

    ``last``: the last record of each partition among them. ``hashes``: as `LogRecords` has them.
    """
    checks.parsed(table)
    for shard, told in enumerate(records_for(table, shards, last, hashes=hashes)):
        yield Routed(shard, told.pieces())


_TOLD: Final[Mapping[str, type[Message]]] = {
    kind.KIND: kind for kind in (Role, Audit, ValueSizes, Swept)
}
"""Messages that go to all shards, with their offset in the topic."""


def parse_feedback(
    values: Iterable[bytes | None], config: ShardConfig, offsets: Iterable[int] | None = None
) -> Iterator[Routed]:
    """Feedback goes to its shard, a completion token to the others; foreign blocks are dropped.

    Roles and audits go to all, with their ``offsets`` in the topic, by which they are in order.
    """
    for value, offset in zip(values, repeat(0) if offsets is None else offsets, strict=False):
        try:
            header, stored = peel(value or b"")
            stored.arrays()
        except RecordError:
            continue
        if header.get("incarnation") != config.incarnation:
            continue  # of any format: a rebuild with another release passes what the old one wrote
        require_format(header)
        kind = header.get("kind", "")
        if kind in _TOLD:
            told = _TOLD[kind].opened({**header, "at": offset}, stored).block()
            yield from (Routed(shard, [told]) for shard in range(config.shards))
            continue
        if kind == Feedback.KIND:
            token = b""
            if config.shards > 1:
                token = Token.of(Feedback.opened(header, stored)).block()
        elif kind == ReleasedLocks.KIND:
            token = b""
            if config.shards > 1:
                token = FinishedParts.of(ReleasedLocks.opened(header, stored)).block()
        else:
            continue
        for shard in range(config.shards):
            yield Routed(shard, [value if shard == header["shard"] and value else token])

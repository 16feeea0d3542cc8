"""Parse records of the log and of the feedback topic into messages for the shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, TypeVar

from msgspec.structs import replace

from streamydb.errors import RecordError
from streamydb.frames import program as p
from streamydb.frames.encoding import Part, peel
from streamydb.frames.lock_messages import FinishedParts, ReleasedLocks
from streamydb.frames.messages import Feedback, Token
from streamydb.frames.protocol import Message, require_format
from streamydb.frames.readers import FEEDBACK, FeedbackMessage, ToShard, ToSingleShard
from streamydb.frames.record_messages import LogRecords, records_for
from streamydb.frames.record_rows import CompiledRecords, LastRead
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Array, ChildRows, Ragged
from streamydb.parser import checks
from streamydb.parser.compile import compile_records
from streamydb.parser.last_reads import last_reads
from streamydb.records.rulings import NO_RULINGS, Rulings

_Message_co = TypeVar("_Message_co", bound=Message, covariant=True)


@dataclass(slots=True, frozen=True)
class Routed(Generic[_Message_co]):
    """A message for a shard; ``raw``: its block, if it has come as one."""

    shard: int
    message: _Message_co
    raw: bytes | None = None

    def pieces(self) -> Sequence[Part]:
        """The message as bytes in pieces; what messages of several shards share is one object."""
        return self.message.pieces() if self.raw is None else [self.raw]

    @property
    def block(self) -> bytes:
        """The message as bytes."""
        return b"".join(self.pieces())


def parse_transactions(
    partitions: Array,
    offsets: Array,
    append_ms: Array,
    values: Sequence[bytes | None] | Ragged,
    shards: int,
    *,
    whole: bool = False,
    rulings: Rulings = NO_RULINGS,
    hashes: bool = False,
) -> Iterator[Routed[LogRecords]]:
    """Compile log records; keys and positions go to every shard, the payload to its home shard.

    ``whole``: payloads travel as they are, even if they compile to steps (`grouping=single`).
    ``rulings``: as they are given. ``hashes``: as `LogRecords` has them.
    Raises UnruledFaults: our own code failed on records that nobody has ruled on.
    """
    table = compile_records(partitions, offsets, append_ms, values, rulings=rulings)
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
) -> Iterator[Routed[LogRecords]]:
    """Yield the message for each shard from compiled records.

    ``last``: the last record of each partition among them. ``hashes``: as `LogRecords` has them.
    """
    for shard, message in enumerate(messages_for(table, shards, last, hashes=hashes)):
        yield Routed(shard, message)


def messages_for(
    table: CompiledRecords, shards: int, last: Sequence[LastRead], *, hashes: bool = False
) -> Iterator[LogRecords]:
    """Return the message for each shard, in order; as `route`."""
    checks.parsed(table)
    return records_for(table, shards, last, hashes=hashes)


def parse_feedback(
    values: Iterable[bytes | None], config: ShardConfig, offsets: Iterable[int] | None = None
) -> Iterator[Routed[ToShard | ToSingleShard]]:
    """Route what was read from the feedback topic; foreign blocks are dropped.

    ``offsets``: in the topic.
    """
    for value, offset in zip(values, repeat(0) if offsets is None else offsets, strict=False):
        try:
            header, stored = peel(value or b"")
        except RecordError:
            continue
        if header.get("incarnation") != config.incarnation:
            continue  # of any format: a rebuild with another release passes what the old one wrote
        require_format(header)
        try:
            message = FEEDBACK.opened(header, stored)
        except RecordError:
            continue
        if message is not None:
            yield from route_feedback(message, config.shards, offset, value)


def route_feedback(
    message: FeedbackMessage, shards: int, offset: int, raw: bytes | None = None
) -> Iterator[Routed[ToShard | ToSingleShard]]:
    """Yield the message for each shard from one of the feedback topic.

    Feedback goes to its shard, a token of it to the others. Any other message goes to all shards,
    with its ``offset`` in the topic, which orders them. ``raw``: its block, if it has come as one.
    """
    if not isinstance(message, Feedback | ReleasedLocks):
        numbered = replace(message, at=offset)
        yield from (Routed(shard, numbered) for shard in range(shards))
        return
    token: Token | FinishedParts | None = None
    for shard in range(shards):
        if shard == message.shard:
            yield Routed(shard, message, raw)
            continue
        if token is None:
            token = (
                Token.of(message) if isinstance(message, Feedback) else FinishedParts.of(message)
            )
        yield Routed(shard, token)

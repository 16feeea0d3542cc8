"""The messages that travel between the rooms of the engine.

| message | from | to |
|---|---|---|
| `Role`, `Audit` | the driver, through the feedback topic | all shards |
| `ValueSizes` | a shard, through the feedback topic | all shards |
| `ResolvedRecord`, `DigestRecords`, `KnownResults` | a shard | an executing partition |
| `KeyRemovals` | a shard | an executing partition |
| `Grant` | a shard | an executing partition |
| `Feedback` | an executing partition, through the feedback topic | a shard |
| `Token` | the same | all other shards |
| `Notice` | a shard | the driver |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from streamydb.frames.encoding import peel
from streamydb.frames.grant_rows import GrantedTransactions, RangeRows, SlotRows
from streamydb.frames.plans import PlanName, Timeline
from streamydb.frames.protocol import Message
from streamydb.frames.table import Bytes, ColumnTable, Ragged
from streamydb.frames.value_rows import ChangeRows, Verdicts, WrittenValues
from streamydb.records.change import Resolved, encode_resolved


class Role(Message, frozen=True):
    """The driver tells the shards of a pipeline whether they lead or follow.

    ``incarnation``: of the pipeline. ``leads``: it does. ``covered``: everything up to this seq has
    been written by some pipeline. One that follows executes that far, silently; one that leads
    does, too, and writes what comes after. ``at``: the offset of the message in the feedback topic;
    -1: it was not read from there.
    """

    KIND: ClassVar[str] = "role"
    LAST: ClassVar[tuple[str, ...]] = ("at",)

    incarnation: str
    leads: bool
    covered: int
    at: int = -1


class Audit(Message, frozen=True):
    """The driver has all shards of a pipeline hold their states against their digests.

    ``reason``: a sentence for people. ``incarnation``, ``at``: as in `Role`.
    """

    KIND: ClassVar[str] = "audit"
    LAST: ClassVar[tuple[str, ...]] = ("at",)

    incarnation: str
    reason: str
    at: int = -1


class ValueSizes(Message, frozen=True):
    """A shard tells all shards the sizes of a part of its values; see `frames.sizes`.

    ``chunk``: the number of the part, of ``chunks``. ``sizes``: see `frames.sizes.tells`.
    ``incarnation``, ``at``: as in `Role`.
    """

    KIND: ClassVar[str] = "sizes"
    LAST: ClassVar[tuple[str, ...]] = ("at",)

    incarnation: str
    shard: int
    chunk: int
    chunks: int
    sizes: bytes
    at: int = -1


class Notice(Message, frozen=True):
    """A shard has nothing to be executed: the row that carries this tells the driver something."""

    KIND: ClassVar[str] = "notice"


class ByteColumn(ColumnTable, frozen=True):
    """One text: its bytes are the rows of ``value``."""

    value: Bytes


class ResolvedRecord(Message, frozen=True):
    """A shard tells that everything up to a seq has been written.

    ``text``: the value of the resolved record that is written to every partition of the changes,
    unless ``silent``.
    """

    KIND: ClassVar[str] = "resolved"
    LAST: ClassVar[tuple[str, ...]] = ("silent",)

    text: ByteColumn
    silent: bool

    @classmethod
    def of(cls, value: bytes, *, silent: bool) -> ResolvedRecord:
        return cls(ByteColumn(np.frombuffer(value, np.uint8)), silent)

    @property
    def value(self) -> bytes:
        return self.text.value.tobytes()


def resolved_value(seq: int, ts_ms: int, offsets: Mapping[int, int]) -> bytes:
    """The value of a resolved record; ``offsets``: first ones of the log that are not covered."""
    texts = {str(number): offset for number, offset in sorted(offsets.items())}
    return encode_resolved(Resolved(seq, ts_ms, texts))


class RecordTexts(ColumnTable, frozen=True):
    """Records that are to be written: ``key`` and ``value`` of each."""

    key: Ragged
    value: Ragged


class DigestRecords(Message, frozen=True):
    """A shard gives digests of its state to be written, as ``records``."""

    KIND: ClassVar[str] = "digests"

    records: RecordTexts

    @classmethod
    def of(cls, rows: Sequence[tuple[bytes, bytes]]) -> DigestRecords:
        keys, values = ([row[at] for row in rows] for at in (0, 1))
        return cls(RecordTexts(Ragged.of(keys), Ragged.of(values)))


class KnownResults(Message, frozen=True):
    """A shard gives results of transactions that are not executed, to be written.

    ``records``: the results, by the ids.
    """

    KIND: ClassVar[str] = "results"

    records: RecordTexts


class KeyRemovals(Message, frozen=True):
    """A shard gives changes that tell of keys that have ended, still to be formatted."""

    KIND: ClassVar[str] = "removals"

    changes: ChangeRows


class Grant(Message, frozen=True, kw_only=True):
    """A shard grants an executing partition what it has of a plan, or a chunk of it.

    Attributes:
        plan: of which this is.
        shard: that grants.
        silent: only feedback comes of it.
        feedback_bytes_max: of a block of feedback.
        alone: the plan is one transaction.
        over: the keys of that transaction hold too many bytes: values are left out.
        makes_max: bytes that the partition may make; 0: any number.
        times: the plan's `Timeline`, packed, where keys may end: in the first chunk, if ``alone``
            in each; else empty.
        more: one more partition whose feedback belongs to the plan (`key_processor.duplicates`).
        left_out: the seq from which on ranges did not fit into the plan, 0: all do; None: there are
            no ranges.
        proc: the partition.
        members: how many transactions of the plan the partition executes.
        chunk: the number of this part of the grant.
        txns: transactions whose ids live in the shard.
        slots: values of keys that live in the shard.
        ranges: as the shard holds them; None: this part has none.
    """

    KIND: ClassVar[str] = "grant"

    plan: PlanName
    shard: int
    silent: bool
    feedback_bytes_max: int
    alone: bool
    over: bool
    makes_max: int
    times: bytes = b""
    more: int | None = None
    left_out: int | None = None
    proc: int
    members: int
    chunk: int
    txns: GrantedTransactions
    slots: SlotRows
    ranges: RangeRows | None = None

    @property
    def timeline(self) -> Timeline | None:
        """The commit times of the plan; None: no key can end, or another chunk says them."""
        return Timeline.unpacked(self.times) if self.times else None


def plan_of(block: bytes, kind: type[Grant | Feedback]) -> PlanName | None:
    """Return the plan that a block of this kind names; None if it is of another kind.

    Only its header is read.
    Raises RecordError: it is no block, or it is damaged.
    """
    header, _ = peel(block)
    return PlanName.of(header) if header.get("kind") == kind.KIND else None


Deltas: TypeAlias = list[tuple[int, int, int]]
"""Changes of a shard's digest: (interval, low, high); see `frames.digest`."""


class Feedback(Message, frozen=True, kw_only=True):
    """An executing partition tells a shard what it has written of a plan, or a chunk of it.

    Attributes:
        plan: of which this is.
        incarnation: of the pipeline.
        proc: the partition.
        more: partitions of the plan beside those that execute (`key_processor.duplicates`).
        made: bytes that the partition has made; None: the plan does not bound them.
        fits: how many of the plan's first records are not too much; 0: all.
        shard: to which it goes.
        chunk: the number of this part, of ``chunks`` for the shard.
        deltas: of the shard's digest.
        ends: something was written that ends.
        sizes: what all shards must know of the values that have grown (`frames.sizes`).
        writes: the last values of keys of the shard.
        verdicts: results that the shard cannot make up itself.
    """

    KIND: ClassVar[str] = "feedback"

    plan: PlanName
    incarnation: str
    proc: int
    more: tuple[int, ...] = ()
    made: int | None = None
    fits: int = 0
    shard: int
    chunk: int
    chunks: int
    deltas: Deltas
    ends: bool = False
    sizes: bytes = b""
    writes: WrittenValues
    verdicts: Verdicts


class Token(Message, frozen=True, kw_only=True):
    """The other shards are told that a chunk of `Feedback` has come; fields as there."""

    KIND: ClassVar[str] = "token"

    plan: PlanName
    incarnation: str
    shard: int
    proc: int
    chunk: int
    chunks: int
    sizes: bytes = b""
    made: int = 0
    fits: int = 0
    more: tuple[int, ...] = ()
    ends: bool = False

    @classmethod
    def of(cls, feedback: Feedback) -> Token:
        fields = {name: getattr(feedback, name) for name in cls.__struct_fields__}
        return cls(**{**fields, "made": feedback.made or 0})

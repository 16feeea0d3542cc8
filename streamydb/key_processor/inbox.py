"""The messages that come to a shard: sorted by kind, records opened, feedback gathered.

`ShardInbox` has the messages of one micro-batch. `PlanFeedback` gathers the feedback of the plan in
flight, until all of it has come.

`LastRecords` opens the records. All shards get the same records, each with a part that only the
home of an id needs. Where there are more shards than cores, one process runs the tasks of several
shards one after the other, and the first of them opens what they share for all. What is kept is
only spared work: it is used if all bytes are equal, and opened anew otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from streamydb.errors import InvariantViolation
from streamydb.frames.blobs import BlobStore
from streamydb.frames.encoding import StoredArrays
from streamydb.frames.messages import Audit, Feedback, Role, Token, ValueSizes
from streamydb.frames.plans import OpenPlan
from streamydb.frames.protocol import BlockReader
from streamydb.frames.readers import ToShard
from streamydb.frames.record_messages import LogRecords
from streamydb.frames.record_rows import CompiledRecords, HomeRows, SharedRows
from streamydb.frames.table import ChildRows
from streamydb.frames.value_rows import Verdicts, WrittenValues
from streamydb.key_processor import checks
from streamydb.key_processor.sizes import ShardSizes
from streamydb.key_processor.state import ShardState

_KEPT: Final = BlockReader(Feedback)

_WAITS_MAX: Final = 50
"""Micro-batches; normally all feedback of a plan comes in the next one."""


@dataclass(slots=True)
class ShardInbox:
    """The messages of one micro-batch; each kind in the order in which they have come."""

    records: list[LogRecords] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    sizes: list[ValueSizes] = field(default_factory=list)
    feedback: list[Feedback | Token] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Iterable[ToShard], incarnation: str) -> ShardInbox:
        """Sort messages by kind; feedback of another ``incarnation`` is dropped."""
        inbox = cls()
        for message in messages:
            if isinstance(message, LogRecords):
                inbox.records.append(message)
            elif isinstance(message, Role):
                inbox.roles.append(message)
            elif isinstance(message, Audit):
                inbox.audits.append(message)
            elif isinstance(message, ValueSizes):
                inbox.sizes.append(message)
            elif message.incarnation == incarnation:
                inbox.feedback.append(message)
        return inbox


class _Kept(NamedTuple):
    """The records that all shards were told: as they lay in the blocks, and as tables."""

    given: list[StoredArrays]
    opened: _Opened


_Opened: TypeAlias = list[tuple[list[int], SharedRows]]
"""Tables of records, and which messages each is of."""


class LastRecords:
    """The records of one micro-batch, as all shards know them."""

    def __init__(self) -> None:
        self._kept: _Kept | None = None

    def forget(self) -> None:
        """Free the memory of what is kept: some 100 bytes a transaction."""
        self._kept = None

    def of(self, messages: Sequence[LogRecords], shards: int) -> list[CompiledRecords]:
        """Open the records that a shard got; nobody may change an array of them.

        Records of one partition of the log are one table, in the order of their offsets, if there
        is no other partition; the order in which they are given does not matter. With one shard
        nothing is kept, as no other one asks for it.
        """
        blocks = [each.shared.stored for each in messages]
        stored = [block for block in blocks if block is not None]
        if shards == 1 or len(stored) < len(messages):
            opened = _opened([each.shared.rows() for each in messages])
        else:
            own = [StoredArrays(names, bytes(data)) for names, data in stored]
            order = sorted(range(len(own)), key=own.__getitem__)
            messages, given = (
                [messages[number] for number in order],
                [own[number] for number in order],
            )
            kept = self._kept
            if kept is None or kept.given != given:
                rows = [SharedRows.unflatten(block.arrays()) for block in given]
                kept = self._kept = _Kept(given, _opened(rows))
            opened = kept.opened
        return [_completed(table, [messages[number] for number in of]) for of, table in opened]


def _opened(tables: Sequence[SharedRows]) -> _Opened:
    there = [number for number, table in enumerate(tables) if len(table)]
    if len({part for number in there for part in _partitions(tables[number])}) > 1:
        return [([number], tables[number]) for number in there]
    order = sorted(there, key=lambda number: int(tables[number].offset.min()))
    return [(order, SharedRows.concat([tables[number] for number in order]))] if order else []


def _partitions(table: SharedRows) -> tuple[int, int]:
    return int(table.partition.min()), int(table.partition.max())


def _completed(shared: SharedRows, messages: Sequence[LogRecords]) -> CompiledRecords:
    known = [each.known() for each in messages]
    if len(known) == 1:
        return CompiledRecords.of(shared, *known[0])
    home = ChildRows(
        np.concatenate([own.counts for _, own in known]),
        HomeRows.concat([own.rows for _, own in known]),
    )
    return CompiledRecords.of(shared, np.concatenate([id1 for id1, _ in known]), home)


class CompleteFeedback(NamedTuple):
    """All feedback of a plan for one shard.

    ``parts``: by partition and chunk. ``writes``: the last value of each written key that lives
    here. ``verdicts``: the results that this shard cannot make up.
    """

    parts: list[Feedback]
    writes: WrittenValues
    verdicts: Verdicts


class PlanFeedback:
    """The feedback that has come for one shard; the tokens in its state are those of all shards."""

    def __init__(self, meta: ShardState, blobs: BlobStore, shard: int, sizes: ShardSizes) -> None:
        """Note tokens in ``meta``, and in ``sizes`` what they say of them; blocks in ``blobs``."""
        self._meta = meta
        self._blobs = blobs
        self._shard = shard
        self._sizes = sizes
        self._fresh: list[Feedback] = []

    def collect(self, messages: Iterable[Feedback | Token]) -> None:
        """Take in the feedback and the tokens of one micro-batch.
        Raises InvariantViolation: none has come for so long that no more will come; or as `add`.
        """
        meta = self._meta
        before = len(meta.tokens)
        for message in messages:
            self.add(message)
        waits = meta.open is not None and len(meta.tokens) == before
        meta.waits = meta.waits + 1 if waits else 0
        refuse_to_wait(meta.waits, meta.applied())

    def add(self, message: Feedback | Token) -> None:
        """Note feedback of the plan in flight, or a token of it; count any other.

        Any other is a repetition, or belongs to an attempt that was given up, perhaps long ago.
        Raises InvariantViolation: one start of the query made two plans of one number.
        """
        meta, plan, name = self._meta, self._meta.open, message.plan
        if plan is None or name[:2] != plan.name()[:2]:
            meta.ignored += 1
            return
        if name != plan.name():
            what = f"feedback is of {name}, but the plan in flight is {plan.name()}"
            raise InvariantViolation(what)
        checks.addressed(message, plan, self._shard, meta.config.shards)
        token = f"{message.shard}/{message.proc}/{message.chunk}"
        if token in meta.tokens:
            meta.ignored += 1
            return
        meta.tokens[token] = message.chunks
        plan.procs = sorted({*plan.procs, *message.more})
        meta.made = max(meta.made, message.made or 0)
        meta.ends = meta.ends or message.ends
        if message.fits:
            meta.fits = min(meta.fits or message.fits, message.fits)
        self._sizes.hear(message.sizes)
        if isinstance(message, Feedback) and message.shard == self._shard:
            self._fresh.append(message)

    def is_complete(self, plan: OpenPlan) -> bool:
        """Tell whether every chunk for every shard from every partition of the plan has come."""
        tokens = self._meta.tokens
        for shard in range(self._meta.config.shards):
            for proc in plan.procs:
                chunks = tokens.get(f"{shard}/{proc}/0")
                if chunks is None:
                    return False
                if any(f"{shard}/{proc}/{chunk}" not in tokens for chunk in range(1, chunks)):
                    return False
        return True

    def keep(self) -> None:
        """Keep the feedback of this batch until the rest has come."""
        for part in self._fresh:
            name = f"feedback/{part.proc}/{part.chunk}"
            self._meta.feedback.append(name)
            self._blobs.put(name, part.block())
        self._fresh = []

    def take(self) -> CompleteFeedback:
        """Return all feedback of the plan in flight, which is in flight no more."""
        meta = self._meta
        parts = [*(self._kept(name) for name in meta.feedback), *self._fresh]
        for name in meta.feedback:
            self._blobs.delete(name)
        meta.open, meta.tokens, meta.feedback = None, {}, []
        parts.sort(key=attrgetter("proc", "chunk"))
        return CompleteFeedback(
            parts,
            WrittenValues.concat([part.writes for part in parts] or [WrittenValues.none()]),
            Verdicts.concat([part.verdicts for part in parts] or [Verdicts.none()]),
        )

    def _kept(self, name: str) -> Feedback:
        block = self._blobs.get(name)
        if block is None:
            raise InvariantViolation(f"the feedback block {name} is missing from the state")
        return _KEPT.read(block)


def refuse_to_wait(waits: int, seq: int) -> None:
    """Refuse to wait for ever: when a micro-batch has ended, its feedback is in Kafka.

    Args:
        waits: micro-batches in a row in which none came though some is missing.
        seq: the last one whose feedback is there.

    Raises InvariantViolation: it will not come any more.
    """
    if waits > _WAITS_MAX:
        raise InvariantViolation(
            f"the feedback of what comes after seq {seq} has not come in {_WAITS_MAX} "
            "micro-batches: it was lost, say with a broker's power. The log has everything; run "
            "`streamydb rebuild` (docs/operations.md, 'A damaged checkpoint')"
        )

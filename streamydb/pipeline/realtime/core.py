"""The real-time gear executes records as they come, with the classes of the micro-batch gear.

A *group* is what has come while the last group was executed (group commit). It passes the sorter,
the planner, the key processor and the transaction processor as a micro-batch does, but its feedback
goes from hand to hand instead of through Kafka, so everything of a group is written at once.

State: blobs in memory, ids in memory, and values in an overlay over the base. All of it follows
from the base and the *tail*, the records behind the base's position. When the base has moved on, a
second shard begins with the newer one and executes the shorter tail once more (`rebase`). So memory
is bounded by how far the base lags, and a state that does not follow from base and log is found.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from streamydb.errors import InvariantViolation, StreamyError
from streamydb.frames import program as p
from streamydb.frames.digest import DigestState
from streamydb.frames.messages import Feedback, ResolvedRecord, Role
from streamydb.frames.plans import Life
from streamydb.frames.readers import ToExecutor, ToShard
from streamydb.frames.record_rows import CompiledRecords, LastRead
from streamydb.frames.shards import ShardConfig
from streamydb.frames.table import Ragged
from streamydb.key_processor.base import Base
from streamydb.key_processor.core import KeyTransactionProcessor
from streamydb.key_processor.memory import HeldBlobs, MemoryIdTables, put_state
from streamydb.key_processor.state import ShardState, load_or_begin
from streamydb.parser.compile import compile_records
from streamydb.parser.core import messages_for
from streamydb.parser.last_reads import last_reads
from streamydb.pipeline.realtime.overlay import OverlayValues, ValuesSnapshot
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.txn_processor.core import TransactionProcessor
from streamydb.txn_processor.outputs import CHANGES, OutputRecords, ShardMessage, formatted

__all__ = [
    "TAIL_BYTES_MAX", "Group", "KnownIds", "LogTail", "NotForThisGear", "OpenBase", "RealTimeShard",
    "Surroundings", "TailRecord",
]  # fmt: skip

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]

TAIL_BYTES_MAX: Final = 64 << 20  # payloads of the records behind the base's position, at most
_STEPS_MAX: Final = 100_000
"""Steps until a group is done: a plan each, and a turn each of what takes turns."""

REPEATED_ID: Final = "repeated-id"
LAGGING_BASE: Final = "lagging-base"
MORE_PARTITIONS: Final = "more-partitions"


class NotForThisGear(StreamyError):  # noqa: N818 - a decision, not a fault
    """The other gear has to execute the next records; nothing of them has been begun.

    Attributes:
        reason: a word for metrics: `repeated-id`, `lagging-base` or `more-partitions`.
    """

    def __init__(self, reason: str, what: str) -> None:
        """``what``: a sentence for people."""
        super().__init__(what)
        self.reason = reason


class KnownIds(Protocol):
    """The ids that were used before the base."""

    def used(self, id0: Ids, id1: Ids, upto: int) -> Ints:
        """Return at which seq, at most ``upto``, each id was used last; 0: it was not; (n,)."""


@dataclass(frozen=True, slots=True)
class OpenBase:
    """A base that can be read: its record, its values and its ids."""

    base: Base
    values: ValuesSnapshot
    ids: KnownIds


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The configuration, code and rulings with which a start of the gear executes.

    ``life``: this start of the query. ``changes_partitions``: each gets the resolved records.
    """

    config: ShardConfig
    life: Life
    changes_partitions: int
    modules: Modules = NO_MODULES
    rulings: Rulings = NO_RULINGS


@dataclass(frozen=True, slots=True)
class Group:
    """The outcome of a group.

    ``outputs``: all but what is resolved, in order. ``resolved``: the value of the resolved record
    that is true as soon as all outputs up to ``seq`` are in Kafka; None: it is not this gear that
    says so.
    """

    outputs: list[OutputRecords]
    resolved: bytes | None
    seq: int

    def resolved_records(self, partitions: int) -> list[OutputRecords]:
        """Return the resolved record for each partition of the changes."""
        if self.resolved is None:
            return []
        value = Ragged.of([self.resolved])
        return [OutputRecords(CHANGES, Ragged.empty(1), value, 0, q) for q in range(partitions)]


class TailRecord(NamedTuple):
    """A record of partition 0 of the log; ``append_ms`` is its LogAppendTime."""

    offset: int
    append_ms: int
    value: bytes | None


@dataclass(slots=True)
class LogTail:
    """The records behind the base's position, in order.

    ``bytes``: of their payloads.
    """

    records: list[TailRecord] = field(default_factory=list)
    bytes: int = 0

    def add(self, records: Iterable[TailRecord]) -> None:
        """Add the next records.
        Raises NotForThisGear: they are too many: the base does not follow.
        """
        for record in records:
            self.records.append(record)
            self.bytes += len(record.value or b"")
        if self.bytes > TAIL_BYTES_MAX:
            what = f"{len(self.records):,} records lie behind the base, with {self.bytes:,} bytes"
            raise NotForThisGear(LAGGING_BASE, f"{what}; at most {TAIL_BYTES_MAX:,} are kept")

    def behind(self, position: int, records_max: int) -> list[TailRecord]:
        """Return the first records from ``position`` on."""
        first = bisect_left(self.records, position, key=attrgetter("offset"))
        return self.records[first : first + records_max]


class RealTimeShard:
    """The one shard of a database, in the real-time gear.

    Attributes:
        tail: what the state follows from, beside the base.
    """

    def __init__(self, around: Surroundings, opened: OpenBase) -> None:
        """Begin with a base, following: what nobody has resolved waits.

        ``around.config``: of this gear, with its own incarnation.
        """
        self._around = around
        self._told = -1
        self.tail = LogTail()
        self._processor = TransactionProcessor(
            around.config, 1, around.changes_partitions, around.modules, around.rulings
        )
        base = opened.base
        state = msgspec.structs.replace(base.state, config=around.config, shape=around.life.shape)
        self._opened = opened
        state = _decode(msgspec.msgpack.encode(state))  # a copy, because a step changes it
        self._values = OverlayValues(opened.values, (state.values.applied, state.values.digest))
        self._tables = MemoryIdTables(shared=False)
        self._blobs = HeldBlobs()
        put_state(self._blobs, state)
        self._position = base.position

    @property
    def base_seq(self) -> int:
        """The seq at which the base stands."""
        return self._opened.base.state.seq

    @property
    def position(self) -> int:
        """The next offset of the log that it takes."""
        return self._position

    @property
    def seq(self) -> int:
        """The last seq that is executed."""
        return self._state().seq

    def play(self, *, leads: bool, covered: int) -> Group:
        """Take a role: lead or follow, and up to which seq all outputs are written by others.

        Return what the records that waited for it have led to.
        """
        self._told += 1
        return self._run(self._role(leads=leads, covered=covered))

    def _role(self, *, leads: bool, covered: int) -> list[ToShard]:
        return [Role(self._around.config.incarnation, leads, covered, at=self._told)]

    def take(self, records: Sequence[TailRecord]) -> Group:
        """Execute a group of records, the next ones of the log.

        Offsets may have gaps (of control records); what lies before `position` is passed over.

        Raises:
            NotForThisGear: the other gear has to go on, with the first of these records.
            UnruledFaults: our own code failed on a transaction that nobody has ruled on.
            InvariantViolation: this gear is wrong, and must end.
        """
        new = [record for record in records if record.offset >= self._position]
        if not new:
            return Group([], None, self.seq)
        messages = self._parsed(new)
        self.tail.add(new)
        self._position = new[-1].offset + 1
        return self._run(messages)

    def _parsed(self, records: Sequence[TailRecord]) -> list[ToShard]:
        table, last = self._compiled(records)
        self._require_new_ids(table)
        self._require_one_partition(table)
        return [*messages_for(table, 1, last)]

    def _compiled(self, records: Sequence[TailRecord]) -> tuple[CompiledRecords, list[LastRead]]:
        n, around = len(records), self._around
        partitions = np.zeros(n, np.int32)
        offsets = np.fromiter((record.offset for record in records), np.int64, n)
        append_ms = np.fromiter((record.append_ms for record in records), np.int64, n)
        values = [record.value for record in records]
        table = compile_records(partitions, offsets, append_ms, values, rulings=around.rulings)
        return table, last_reads(partitions, offsets, append_ms, values)

    def _require_new_ids(self, table: CompiledRecords) -> None:
        """Leave to the other gear a record whose id was used before the base:
        it has the verdict.
        """
        used = np.flatnonzero(_used(table, self._opened))
        if len(used):
            at = int(table.offset[used[0]])
            what = f"the id of the record at offset {at} was used before the base"
            raise NotForThisGear(REPEATED_ID, what)

    def _require_one_partition(self, table: CompiledRecords) -> None:
        if int(table.marker.rows.partitions.max(initial=0)) > 1:
            what = "a marker names several partitions of the log"
            raise NotForThisGear(MORE_PARTITIONS, what)

    def _run(self, messages: Sequence[ToShard]) -> Group:
        """Take steps until nothing is in flight."""
        outputs: list[OutputRecords] = []
        resolved: bytes | None = None
        for _ in range(_STEPS_MAX):
            granted, found = self._step(messages)
            resolved = found or resolved
            feedback: list[ToShard] = []
            for item in self._processor.step(granted):
                if isinstance(item, ShardMessage) and isinstance(item.message, Feedback):
                    feedback.append(item.message)
                else:
                    outputs.append(formatted(item, self._around.config.database))
            if not feedback:
                return Group(outputs, resolved, self.seq)
            messages = feedback
        raise InvariantViolation(f"a group is not done after {_STEPS_MAX:,} steps")

    def _step(self, messages: Sequence[ToShard]) -> tuple[list[ToExecutor], bytes | None]:
        """Take a step of the shard; return what is to be executed, and what is resolved."""
        shard = KeyTransactionProcessor(
            self._around.config, 0, self._blobs, self._values, self._tables, self._around.life
        )
        granted: list[ToExecutor] = []
        resolved: bytes | None = None
        for emitted in shard.step(messages):
            told = emitted.message
            if isinstance(told, ResolvedRecord):
                resolved = None if told.silent else told.value
            else:
                granted.append(told)
        return granted, resolved

    def is_newer(self, opened: OpenBase) -> bool:
        """Return True if a base can take the place of the one with which this gear has begun."""
        return self.base_seq < opened.base.state.seq <= self.seq

    def successor(self, opened: OpenBase) -> RealTimeShard:
        """Return a shard that begins with a newer base, to catch up with this one."""
        return RealTimeShard(self._around, opened)

    def catch_up(self, first: RealTimeShard, records_max: int) -> bool:
        """Execute the next records of another shard's tail, silently, in that shard's role.

        Return True if this shard has executed as much as the other one.

        Raises:
            NotForThisGear: the tail repeats an id that only the other shard's base does not know.
            InvariantViolation: this shard has come to another state than the other one.
        """
        records = first.tail.behind(self._position, records_max)
        messages = self._parsed(records) if records else []
        state = first._state()
        self._told += 1
        role = self._role(leads=state.role.leads, covered=max(state.seq, state.role.covered))
        self.tail.add(records)
        if records:
            self._position = records[-1].offset + 1
        self._run(role + messages)
        if self._position < first.position:
            return False
        _require_same(first._state(), self._state())
        return True

    def close(self) -> None:
        """Give the base up; nothing is executed any more."""
        self._opened.values.close()

    def _state(self) -> ShardState:
        return load_or_begin(ShardState, self._blobs, self._around.config, self._around.life.shape)


def _used(table: CompiledRecords, opened: OpenBase) -> Ints:
    """Return at which seq up to a base the id of each record was used; 0: it was not; (n,)."""
    valid = table.kind != p.REJECTED
    id0, id1 = (np.where(valid, half, 0) for half in (table.id0, table.id1))
    return opened.ids.used(id0, id1, opened.base.state.seq)


_decode: Final[Callable[[bytes], ShardState]] = msgspec.msgpack.Decoder(ShardState).decode


def _require_same(before: ShardState, after: ShardState) -> None:
    """Require that base and tail have led to the same state once more."""
    same = (before.seq, before.ts, _sums(before.digests))
    if same != (after.seq, after.ts, _sums(after.digests)):
        raise InvariantViolation(
            f"the real-time gear is at seq {before.seq:,}, ts {before.ts}; a newer base and the "
            f"log lead to seq {after.seq:,}, ts {after.ts}, or to other values"
        )


def _sums(digests: DigestState | None) -> object:
    return None if digests is None else msgspec.to_builtins(digests)

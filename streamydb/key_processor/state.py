"""The state of a shard between micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from streamydb.errors import ConfigurationError
from streamydb.frames.blobs import BlobStore
from streamydb.frames.digest import DigestState
from streamydb.frames.messages import Role
from streamydb.frames.plans import OpenPlan, PlanShape
from streamydb.frames.protocol import Message
from streamydb.frames.record_rows import ReleasedRecords
from streamydb.frames.shards import ShardConfig, mismatch, unreadable
from streamydb.frames.sizes import SizesState
from streamydb.key_processor.idwindow import IdWindowState
from streamydb.key_processor.memory import META, HeldBlobs
from streamydb.key_processor.values import ValuesState
from streamydb.planner.plan import Plan
from streamydb.records.formats import UNREADABLE
from streamydb.sorter.state import SorterState

NOT_YET = "~"
"""Greater than any JSON object: outputs of the plan come in later micro-batches, too."""


_State = TypeVar("_State", bound="CommonState")
_Message = TypeVar("_Message", bound=Message)
_Message_co = TypeVar("_Message_co", bound=Message, covariant=True)


class ShardRole(msgspec.Struct):
    """The role of the pipeline, lead or follow, that a shard was given last.

    It comes through the pipeline's own feedback topic, so all shards learn of it in the same
    micro-batch, and a batch that is repeated learns the same. Correctness does not depend on it,
    because any two pipelines write the same bytes.

    ``at``: the offset of that record. ``leads``: execute everything and write. ``covered``: up to
    this seq all outputs have been written by some pipeline, so there is nothing to write.
    """

    at: int = -1
    leads: bool = True
    covered: int = 0

    def hear(self, roles: Iterable[Role]) -> bool:
        """Take over the newest of some roles; return True if there was one.

        Then it has to be said anew what is resolved: whoever led before may have died between two
        partitions, and the driver wants to know how far its shards are.
        """
        before = self.at
        for role in roles:
            self.covered = max(self.covered, role.covered)
            if role.at > self.at:
                self.at, self.leads = role.at, role.leads
        return self.at > before

    def may_release(self, seq: int, limit: int) -> int:
        """Return how many records may be released after ``seq``, of at most ``limit``.

        What is covered is released apart from the rest, so that a plan is silent as a whole or not
        at all.
        """
        if seq < self.covered:
            return min(limit, self.covered - seq)
        return limit if self.leads else 0

    def is_silent(self, seq: int) -> bool:
        """Return True if what is released after ``seq`` has been written already."""
        return seq < self.covered


class CommonState(msgspec.Struct):
    """The part of a shard's state that both groupings have."""

    config: ShardConfig
    sorter: SorterState
    values: ValuesState
    ids: IdWindowState


class ShardState(CommonState):
    """Everything small that a shard remembers.

    ``shape``: of the next plan. ``ignored``: how many blocks of
    feedback and tokens belonged to no plan in flight. ``waits``: micro-batches in a row in which no
    feedback of the plan in flight has come. ``pace``: how many records to release at most, since a
    plan was cut by the values that it touches; 0: as the shape says. ``sizes``: of all shards'
    values; None with one shard. ``fits``: how many records of the plan
    in flight are not too much, 0: all; ``made``: bytes that a partition made at most of it, or of
    the last one. ``turn``: how many turns of it are over. ``expires``: something that ends was
    written, by a plan so far; ``ends``: the feedback of the plan in flight says so.
    """

    seq: int = 0
    ts: int = 0
    plan: int = 0
    open: OpenPlan | None = None
    tokens: dict[str, int] = {}
    feedback: list[str] = []
    resolved_offsets: dict[int, int] = {}
    role: ShardRole = msgspec.field(default_factory=ShardRole)
    digests: DigestState | None = None
    shape: PlanShape = PlanShape()
    ignored: int = 0
    waits: int = 0
    pace: int = 0
    sizes: SizesState | None = None
    fits: int = 0
    made: int = 0
    turn: int = 0
    expires: bool = False
    ends: bool = False

    def applied(self) -> int:
        """The last seq whose writes are in the values."""
        return self.seq if self.open is None else self.open.after

    def open_plan(
        self,
        released: ReleasedRecords,
        plan: Plan,
        covered: dict[int, int],
        life: str,
        *,
        kept: bool,
    ) -> OpenPlan:
        """Put the plan of some records in flight; the fields of the same names: see `OpenPlan`.

        ``covered``: per partition of the log, the first offset that was not released.
        """
        shape, before = self.shape, (self.seq, self.ts)
        interval = self.config.digest_interval
        self.seq, self.ts = self.seq + len(released), int(released.ts_ms[-1])
        self.plan += 1
        one_partition = self.config.partitions == 1 and not released.partition.any()
        self.open = OpenPlan(
            self.plan,
            plan.procs(),
            self.seq,
            self.ts,
            covered,
            before[0],
            life,
            plan.layout(shape.feedback_bytes_max),
            before[1],
            kept,
            times=released.ts_ms[-int(released.seq[0]) % interval :: interval].tolist(),
            position=int(released.offset[-1]) + 1 if one_partition else -1,
        )
        self.fits, self.made, self.turn, self.ends = 0, 0, 0, False
        return self.open

    def emit(self, proc: int, message: _Message, resolves: str = "") -> ShardOutput[_Message]:
        """Return a message of this shard for partition ``proc``; as `ShardOutput`."""
        return ShardOutput(proc, message, self.seq, self.ignored, resolves)


@dataclass(slots=True, frozen=True)
class ShardOutput(Generic[_Message_co]):
    """A message for executing partition ``proc``.

    ``seq``: the last one that is released; negative: this tells that it is resolved.

    ``ignored``: how much feedback the shard has ignored so far. ``resolves``: the value of a
    resolved record that is true as soon as this micro-batch has ended, or `NOT_YET`: of two texts
    in one micro-batch the greater one counts. Empty: nothing is said.
    """

    proc: int
    message: _Message_co
    seq: int
    ignored: int = 0
    resolves: str = ""


def load(kind: type[_State], data: bytes) -> _State:
    """Load the state of a shard from its blob "meta".
    Raises ConfigurationError: it was written by a newer release, or is damaged.
    """
    try:
        meta = msgspec.msgpack.decode(data, type=kind)
    except UNREADABLE as error:
        raise ConfigurationError(unreadable(data, error)) from error
    return meta


def load_or_begin(
    kind: type[_State], blobs: BlobStore, config: ShardConfig, shape: PlanShape
) -> _State:
    """Load the state of a shard from its blobs, or that of a new database.
    Raises ConfigurationError: as `load`; or it was made with another configuration.
    """
    held = blobs.held.get(META) if isinstance(blobs, HeldBlobs) else None
    if isinstance(held, kind):
        return held
    data = blobs.get(META)
    if data is None:
        sorter, ids = SorterState(config.partitions), IdWindowState(config.id_window)
        begin: Callable[..., _State] = kind
        meta = begin(config, sorter, ValuesState(), ids, shape=shape)
    else:
        meta = load(kind, data)
        if meta.config != config:
            raise ConfigurationError(mismatch(meta.config, config))
    return meta

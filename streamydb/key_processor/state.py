"""The state of a shard between micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from streamydb.columns.digest import DigestState
from streamydb.columns.plans import OpenPlan, PlanShape
from streamydb.columns.shards import ShardConfig, taken_over, unreadable
from streamydb.columns.sizes import SizesState
from streamydb.errors import ConfigurationError
from streamydb.key_processor.idwindow import IdWindowState
from streamydb.key_processor.role import ShardRole
from streamydb.key_processor.values import ValuesState
from streamydb.records.formats import UNREADABLE
from streamydb.sorter.core import SorterState

__all__ = ["EmittedBlock", "ShardState", "load"]


class ShardState(msgspec.Struct):
    """Everything small that a shard remembers.

    ``shape``: of the next plan; None in states of format 1. ``ignored``: how many blocks of
    feedback and tokens belonged to no plan in flight. ``waits``: micro-batches in a row in which no
    feedback of the plan in flight has come. ``pace``: how many records to release at most, since a
    plan was cut by the values that it touches; 0: as the shape says. ``sizes``: of all shards'
    values; None with one shard, and in states of format 1. ``fits``: how many records of the plan
    in flight are not too much, 0: all; ``made``: bytes that a partition made at most of it, or of
    the last one.
    """

    config: ShardConfig
    sorter: SorterState
    values: ValuesState
    ids: IdWindowState
    seq: int = 0
    ts: int = 0
    plan: int = 0
    open: OpenPlan | None = None
    tokens: dict[str, int] = {}
    feedback: list[str] = []
    resolved_offsets: dict[int, int] = {}
    role: ShardRole = msgspec.field(default_factory=ShardRole)
    digests: DigestState | None = None
    shape: PlanShape | None = None
    ignored: int = 0
    waits: int = 0
    pace: int = 0
    sizes: SizesState | None = None
    fits: int = 0
    made: int = 0

    def applied(self) -> int:
        """The last seq whose writes are in the values."""
        return self.seq if self.open is None else self.open.after


_decode_meta = msgspec.msgpack.Decoder(ShardState).decode


@dataclass(slots=True, frozen=True)
class EmittedBlock:
    """A block for executing partition ``proc``; ``seq`` is the last released, negative: resolved.

    ``ignored``: how much feedback the shard has ignored so far.
    """

    proc: int
    block: bytes
    seq: int
    ignored: int = 0


def load(data: bytes) -> ShardState:
    """Load the shard's state from its blob "meta".

    Raises:
        ConfigurationError: it was written by a newer release, or is damaged.
    """
    try:
        meta = _decode_meta(data)
    except UNREADABLE as error:
        raise ConfigurationError(unreadable(data, error)) from error
    meta.config = taken_over(meta.config)
    return meta

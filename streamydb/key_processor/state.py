"""The state of a shard between micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from streamydb.columns.digest import DigestState
from streamydb.columns.plans import OpenPlan, PlanShape
from streamydb.columns.protocol import Message
from streamydb.columns.shards import ShardConfig, mismatch, unreadable
from streamydb.columns.sizes import SizesState
from streamydb.errors import ConfigurationError
from streamydb.key_processor.idwindow import IdWindowState
from streamydb.key_processor.role import ShardRole
from streamydb.key_processor.values import ValuesState
from streamydb.records.formats import UNREADABLE
from streamydb.sorter.state import SorterState

__all__ = ["NOT_YET", "CommonState", "Emitted", "ShardState", "load", "load_or_begin"]

NOT_YET = "~"
"""Greater than any JSON object: outputs of the plan come in later micro-batches, too."""


_State = TypeVar("_State", bound="CommonState")
_Message_co = TypeVar("_Message_co", bound=Message, covariant=True)


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


@dataclass(slots=True, frozen=True)
class Emitted(Generic[_Message_co]):
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

    Raises:
        ConfigurationError: it was written by a newer release, or is damaged.
    """
    try:
        meta = msgspec.msgpack.decode(data, type=kind)
    except UNREADABLE as error:
        raise ConfigurationError(unreadable(data, error)) from error
    return meta


def load_or_begin(
    kind: type[_State], data: bytes | None, config: ShardConfig, shape: PlanShape
) -> _State:
    """Load the state of a shard, or that of a new database.

    Raises:
        ConfigurationError: as `load`; or it was made with another configuration.
    """
    if data is None:
        sorter, ids = SorterState(config.partitions), IdWindowState(config.id_window)
        begin: Callable[..., _State] = kind
        meta = begin(config, sorter, ValuesState(), ids, shape=shape)
    else:
        meta = load(kind, data)
        if meta.config != config:
            raise ConfigurationError(mismatch(meta.config, config))
    return meta

"""The state of a shard with `grouping=single`."""

from __future__ import annotations

import msgspec

from streamydb.columns.digest import DigestState
from streamydb.columns.plans import PlanShape
from streamydb.columns.shards import ShardConfig, taken_over, unreadable
from streamydb.errors import ConfigurationError
from streamydb.key_processor.idwindow import IdWindowState
from streamydb.key_processor.locking.history import StepHistory
from streamydb.key_processor.locking.locks import Lock
from streamydb.key_processor.role import ShardRole
from streamydb.key_processor.values import ValuesState
from streamydb.records.formats import UNREADABLE
from streamydb.sorter.core import SorterState

__all__ = ["SingleMeta", "Unresolved", "decode_meta"]


class Unresolved(msgspec.Struct, array_like=True, gc=False):
    """A released transaction after the last resolved one.

    ``home``: its home shard and executing partition. ``missing``: a bit per shard whose feedback
    has not come; ``chunks``: (shard, chunk) that have come of those in several chunks.
    """

    ts: int
    part: int
    off: int
    home: int
    missing: int
    chunks: list[tuple[int, int]] = []


class SingleMeta(msgspec.Struct):
    """Everything small that a shard remembers.

    ``shape``, ``ignored``, ``waits``: as in the planner's `Meta`. ``history``: whose feedback
    counts. ``unresolved``: transactions ``resolved`` + 1 to ``seq``. ``repeats``:
    waiting repetitions, by seq, of which seq. ``behind``: see `LockTable`.
    """

    config: ShardConfig
    sorter: SorterState
    values: ValuesState
    ids: IdWindowState
    seq: int = 0
    resolved: int = 0
    resolved_ts: int = 0
    shown: tuple[int, dict[int, int]] = (0, {})
    unresolved: list[Unresolved] = []
    locks: dict[bytes, Lock] = {}
    repeats: dict[int, int] = {}
    role: ShardRole = msgspec.field(default_factory=ShardRole)
    digests: DigestState | None = None
    shape: PlanShape | None = None
    history: StepHistory = msgspec.field(default_factory=StepHistory)
    ignored: int = 0
    waits: int = 0
    behind: list[bytes] = []


def decode_meta(data: bytes) -> SingleMeta:
    """Decode the shard's state from its blob "meta".

    Raises:
        ConfigurationError: it was written by a newer release, or is damaged.
    """
    try:
        meta = _decode(data)
    except UNREADABLE as error:
        raise ConfigurationError(unreadable(data, error)) from error
    meta.config = taken_over(meta.config)
    return meta


_decode = msgspec.msgpack.Decoder(SingleMeta).decode

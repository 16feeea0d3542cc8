"""The state of a shard with `grouping=single`."""

from __future__ import annotations

import msgspec

from streamydb.frames.digest import DigestState
from streamydb.frames.plans import PlanShape
from streamydb.key_processor.locking.history import StepHistory
from streamydb.key_processor.locking.locks import Lock, RangeLock
from streamydb.key_processor.state import CommonState, ShardRole


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


class SingleMeta(CommonState):
    """Everything small that a shard remembers.

    ``shape``, ``ignored``, ``waits``: as in the planner's `ShardState`. ``history``: whose feedback
    counts. ``unresolved``: transactions ``resolved`` + 1 to ``seq``. ``repeats``:
    waiting repetitions, by seq, of which seq. ``behind``, ``ranges``: see `LockTable`. ``expires``:
    something that ends was written. ``swept``: by shard, up to which seq it has told removals;
    ``told``: what this one has said. ``removing``: keys whose removal was told in the last step,
    and at which seq.
    """

    seq: int = 0
    resolved: int = 0
    resolved_ts: int = 0
    shown: tuple[int, dict[int, int]] = (0, {})
    unresolved: list[Unresolved] = msgspec.field(default_factory=list)
    locks: dict[bytes, Lock] = msgspec.field(default_factory=dict)
    repeats: dict[int, int] = msgspec.field(default_factory=dict)
    role: ShardRole = msgspec.field(default_factory=ShardRole)
    digests: DigestState | None = None
    shape: PlanShape = PlanShape()
    history: StepHistory = msgspec.field(default_factory=StepHistory)
    ignored: int = 0
    waits: int = 0
    behind: list[bytes] = msgspec.field(default_factory=list)
    ranges: list[RangeLock] = msgspec.field(default_factory=list)
    expires: bool = False
    swept: dict[int, int] = msgspec.field(default_factory=dict)
    told: int = 0
    removing: list[tuple[bytes, int]] = msgspec.field(default_factory=list)

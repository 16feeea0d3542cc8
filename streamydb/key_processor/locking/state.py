"""The state of a shard with `grouping=single`, and the messages that it gets in a micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from streamydb.frames import program as p
from streamydb.frames.digest import DigestState
from streamydb.frames.json_tokens import parse_ints
from streamydb.frames.lock_messages import (
    FinishedParts,
    MessagePart,
    Released,
    ReleasedLocks,
    Swept,
)
from streamydb.frames.messages import Audit, Role
from streamydb.frames.plans import PlanShape
from streamydb.frames.readers import ToSingleShard
from streamydb.frames.record_messages import LogRecords
from streamydb.frames.table import Ragged
from streamydb.frames.value_rows import ValueRows, WrittenValues
from streamydb.key_processor.locking.locks import Lock, RangeLock
from streamydb.key_processor.locking.messages import locked_name, unpacked
from streamydb.key_processor.state import CommonState, ShardRole
from streamydb.records.expiry import Expiring


class StepHistory(msgspec.Struct):
    """The committed steps of a shard, by the life that took them.

    ``lives``: (life, its first step), the oldest first.
    """

    steps: int = 0
    lives: list[tuple[str, int]] = msgspec.field(default_factory=lambda: [("", 0)])

    def begin(self, life: str) -> None:
        """A step of ``life`` begins."""
        self.steps += 1
        if self.lives[-1][0] != life:
            self.lives = [*self.lives[1 - _LIVES_MAX :], (life, self.steps)]

    def holds(self, life: str, step: int) -> bool:
        """Return True if ``step`` was committed before this one, and was of ``life``.

        It was not when its batch was repeated, or when a copy of the checkpoint was put back.
        """
        if step >= self.steps:
            return False
        return next((name for name, first in reversed(self.lives) if first <= step), None) == life


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


_LIVES_MAX: Final = 100
"""How many starts a shard remembers: feedback is read one step after it was written."""


def canonical_values(values: ValueRows) -> Iterator[tuple[bytes | None, int]]:
    """Canonical values and versions."""
    columns = values.tag.tolist(), values.number.tolist(), values.version.tolist()
    rows = zip(*columns, values.text.tolist(), strict=True)
    for tag, number, version, text in rows:
        if tag == p.EXPIRING:
            yield Expiring(text, number), version
        else:
            yield None if tag == p.ABSENT else b"%d" % number if tag == p.INT else text, version


def writes_table(writes: list[Released]) -> WrittenValues:
    """Return writes as a table."""
    values = [unpacked(row.value)[0] for row in writes]
    texts = Ragged.of([value or b"" for value in values])
    tags, numbers = parse_ints(texts.data, texts.offsets)
    for row, value in enumerate(values):
        if isinstance(value, Expiring):
            tags[row], numbers[row] = p.EXPIRING, value.expires_ms
    absent = tags == p.ABSENT
    version = np.array([row.seq for row in writes], np.int64)
    opaque = [b"" if tag == p.INT else text for tag, text in zip(tags, texts.tolist(), strict=True)]
    keys = Ragged.of([locked_name(row.lock) for row in writes])
    return WrittenValues(tags, numbers, np.where(absent, 0, version), keys, Ragged.of(opaque))


@dataclass(slots=True)
class LockInbox:
    """The messages for a shard, and what its feedback holds.

    ``parts``: (shard, what is finished there). ``going_on``: partitions that shall go on.
    ``swept``: some shard has told how far it has swept.
    """

    records: list[LogRecords] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    parts: list[tuple[int, MessagePart]] = field(default_factory=list)
    going_on: list[int] = field(default_factory=list)
    swept: bool = False

    @classmethod
    def of(cls, messages: Iterable[ToSingleShard], meta: SingleMeta) -> LockInbox:
        """Sort messages; note in ``meta`` what feedback tells, and how much does not count."""
        inbox = cls()
        for message in messages:
            if isinstance(message, LogRecords):
                inbox.records.append(message)
            elif isinstance(message, Role):
                inbox.roles.append(message)
            elif isinstance(message, Audit):
                inbox.audits.append(message)
            else:
                inbox.take_feedback(message, meta)
        return inbox

    def take_feedback(
        self, message: ReleasedLocks | FinishedParts | Swept, meta: SingleMeta
    ) -> None:
        """Take feedback, if it belongs to a step that was committed; else count it."""
        if message.incarnation != meta.config.incarnation:
            return
        if not meta.history.holds(message.life, message.step):
            meta.ignored += 1
            return
        if isinstance(message, Swept):
            meta.swept[message.shard] = max(meta.swept.get(message.shard, 0), message.swept)
            self.swept = True
            return
        meta.expires |= message.ends
        self.parts += [(message.shard, part) for part in message.parts]
        if isinstance(message, ReleasedLocks):
            self.released += message.rows
            if message.more:
                self.going_on.append(message.shard)

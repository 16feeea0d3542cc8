"""Sort what has come for a shard of `grouping=single` in a micro-batch by what it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from streamydb.frames.lock_messages import (
    FinishedParts,
    MessagePart,
    Released,
    ReleasedLocks,
    Swept,
)
from streamydb.frames.messages import Audit, Role
from streamydb.frames.readers import ToSingleShard
from streamydb.frames.record_messages import LogRecords
from streamydb.key_processor.locking.state import SingleMeta


@dataclass(slots=True)
class Inbox:
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
    def of(cls, messages: Iterable[ToSingleShard], meta: SingleMeta) -> Inbox:
        """Sort messages; note in ``meta`` what feedback tells, and how much does not count."""
        found = cls()
        for message in messages:
            if isinstance(message, LogRecords):
                found.records.append(message)
            elif isinstance(message, Role):
                found.roles.append(message)
            elif isinstance(message, Audit):
                found.audits.append(message)
            else:
                found.take_feedback(message, meta)
        return found

    def take_feedback(self, told: ReleasedLocks | FinishedParts | Swept, meta: SingleMeta) -> None:
        """Take feedback, if it belongs to a step that was committed; else count it."""
        if told.incarnation != meta.config.incarnation:
            return
        if not meta.history.holds(told.life, told.step):
            meta.ignored += 1
            return
        if isinstance(told, Swept):
            meta.swept[told.shard] = max(meta.swept.get(told.shard, 0), told.swept)
            self.swept = True
            return
        meta.expires |= told.ends
        self.parts += [(told.shard, part) for part in told.parts]
        if isinstance(told, ReleasedLocks):
            self.released += told.rows
            if told.more:
                self.going_on.append(told.shard)

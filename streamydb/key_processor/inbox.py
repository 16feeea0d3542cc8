"""The messages that a shard gets in one micro-batch, by kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from streamydb.frames.messages import Audit, Feedback, Role, Token, ValueSizes
from streamydb.frames.readers import ToShard
from streamydb.frames.record_messages import LogRecords


@dataclass(slots=True)
class Inbox:
    """The messages of one micro-batch; each kind in the order in which they have come."""

    records: list[LogRecords] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    sizes: list[ValueSizes] = field(default_factory=list)
    feedback: list[Feedback | Token] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Iterable[ToShard], incarnation: str) -> Inbox:
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

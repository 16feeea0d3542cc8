"""The waits of the protocol by which one of several pipelines leads, and a member's actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from streamydb.records.control import Message


@dataclass(frozen=True, slots=True)
class Times:
    """The waits of the protocol, in ms.

    A leader with followers beats every ``beat``. It is replaced after ``silence`` without a beat,
    after ``stall`` of beats without reading waiting records, or after ``behind`` of lacking what
    was resolved before it. A follower sends a message every ``follow``. It counts as present for
    ``present`` after one, or for ``near`` while a leader is wanted. It is ready if it lacks nothing
    older than ``ready``, and an own message that came back is no older than ``fresh``. Better
    candidates have ``window`` to answer a wish for the lead, which is left to them for ``defer``;
    twice as long if one of them wants it, because it may leave it to another one first. A follower
    that is not ready claims after ``alone`` of silence. A pipeline that starts listens to others
    for ``start``. A leader that has read records and resolved nothing for ``stuck`` tells its
    shards their role again. One that stands down writes on for ``overlap`` at most.
    """

    beat: int = 250
    silence: int = 1_000
    stall: int = 30_000
    behind: int = 10_000
    follow: int = 1_000
    present: int = 5_000
    near: int = 2_500
    ready: int = 5_000
    fresh: int = 3_000
    window: int = 300
    defer: int = 10_000
    alone: int = 30_000
    start: int = 2_000
    stuck: int = 5_000
    overlap: int = 2_000


USUAL_TIMES: Final = Times()


@dataclass(frozen=True, slots=True)
class Say:
    """Append a message to the control topic."""

    message: Message


@dataclass(frozen=True, slots=True)
class Play:
    """Tell the own shards their role."""

    leads: bool
    covered: int


Action: TypeAlias = Say | Play

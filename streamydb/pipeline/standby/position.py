"""The positions of this pipeline and of the others, and how well they are known (pure).

A pipeline knows how far the leader is by what it reads in the control topic, and it may read that
late. So it looks for its own messages: when one comes back, everything before it has been read. A
pipeline that has seen no message of its own lately does not know its position, so it is not ready.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

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
class SendMessage:
    """Append a message to the control topic."""

    message: Message


@dataclass(frozen=True, slots=True)
class SetRole:
    """Tell the own shards their role."""

    leads: bool
    covered: int


Action: TypeAlias = SendMessage | SetRole

_WAITING_MAX: Final = 1_000
_SAID_MAX: Final = 1_000


@dataclass(slots=True)
class Leader:
    """The leader, as a pipeline knows it.

    ``behind_ms``: since when it says that it lacks what was resolved before; None if it does not.
    """

    epoch: int = 0
    pipeline: str = ""
    name: str = ""
    heard_ms: int = 0
    read: int = -1
    moved_ms: int = 0
    behind_ms: int | None = None


@dataclass(slots=True)
class OwnPosition:
    """The position of this pipeline.

    Attributes:
        resolved: the last seq that its committed batches have resolved.
        reported: whether a batch of this life has said so.
        read: the sum of the log's offsets that it has read.
        read_then: how much had been read when something was resolved last.
        stuck_ms: since when more than that has been read, and nothing was resolved; None: it is not
            so.
        mark: the leader's resolved seq when this one first knew it, or knew it again after it had
            not listened; None while it does not know. The age of later news means nothing until
            the mark is executed.
        seen_ms: when the newest of the own messages that came back was said; None: none has.
    """

    resolved: int = 0
    reported: bool = False
    read: int = 0
    read_then: int = 0
    stuck_ms: int | None = None
    mark: int | None = None
    seen_ms: int | None = None
    _last_said: int = 0
    _said: deque[int] = field(default_factory=lambda: deque(maxlen=_SAID_MAX))
    _waiting: deque[tuple[int, int]] = field(default_factory=deque)

    def say(self, now_ms: int) -> int:
        """Return a stamp for an own message, by which `see` recognises it."""
        self._last_said = max(now_ms, self._last_said + 1)
        self._said.append(self._last_said)
        return self._last_said

    def see(self, said_ms: int, now_ms: int, fresh_ms: int) -> bool:
        """Take in that an own message has come back; False if it is of an earlier life."""
        if said_ms not in self._said:
            return False
        while self._said[0] != said_ms:
            self._said.popleft()
        self._said.popleft()
        if not self.knows(now_ms, fresh_ms):
            self.mark = None
        self.seen_ms = said_ms
        return True

    def knows(self, now_ms: int, fresh_ms: int) -> bool:
        """Return True if all has been read that was said up to ``fresh_ms`` ago."""
        return self.seen_ms is not None and now_ms - self.seen_ms <= fresh_ms

    def lag_ms(self, now_ms: int) -> int:
        """Return for how long it has known of something that its state lacks."""
        return now_ms - self._waiting[0][0] if self._waiting else 0

    def progress(self, resolved: int, read: int, now_ms: int) -> None:
        """Take in what a batch has said."""
        if resolved > self.resolved:
            self.resolved, self.read_then, self.stuck_ms = resolved, read, None
        elif self.stuck_ms is None and read > self.read_then:
            self.stuck_ms = now_ms
        self.read = read
        self._catch_up()

    def expect(self, resolved: int, now_ms: int) -> None:
        """Note since when it is known that there is more than the own state has."""
        if len(self._waiting) >= _WAITING_MAX:
            now_ms = self._waiting.pop()[0]
        self._waiting.append((now_ms, resolved))
        self._catch_up()

    def _catch_up(self) -> None:
        while self._waiting and self._waiting[0][1] <= self.resolved:
            self._waiting.popleft()


@dataclass(slots=True)
class LeadRequest:
    """A pipeline's wish for the lead.

    Attributes:
        since_ms: when it began.
        said: the stamp of the first message that tells of it.
        seen_ms: when this message, or a later one, came back; None: none has.
    """

    since_ms: int
    said: int
    seen_ms: int | None = None


class Rank(NamedTuple):
    """The order of the candidates for the lead: ready first, then the furthest, then by name.

    ``wants``: it has said that it wants the lead; that changes no order.
    """

    ready: bool
    resolved: int
    name: str
    pipeline: str
    wants: bool = False

    def before(self, other: Rank) -> bool:
        """Return True if this one is to lead rather than the other one."""
        if self[:2] != other[:2]:
            return self[:2] > other[:2]
        return (self.name, self.pipeline) < (other.name, other.pipeline)


class OtherPipelines:
    """Those that were heard lately and do not lead."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, Rank]] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def take(self, rank: Rank, now_ms: int) -> bool:
        """Note how far one says it is; return True if that is new."""
        new = rank.pipeline not in self._heard
        self._heard[rank.pipeline] = now_ms, rank
        return new

    def drop(self, pipeline: str) -> None:
        """Forget one: it leads now."""
        self._heard.pop(pipeline, None)

    def forget(self, before_ms: int) -> None:
        gone = [name for name, (heard_ms, _) in self._heard.items() if heard_ms < before_ms]
        for pipeline in gone:
            del self._heard[pipeline]

    def since(self, heard_ms: int) -> list[Rank]:
        """Those that were heard since then."""
        return [rank for heard, rank in self._heard.values() if heard >= heard_ms]


@dataclass(frozen=True, slots=True)
class PipelinePosition:
    """The position of the query: last resolved seq, offsets read of the log (their sum), feedback
    read.

    ``feedback``: the offset up to which partition 0 of the own feedback has been read. ``seq``: the
    last released seq. Both seqs are 0 until a batch of this life has said them.
    """

    resolved: int
    read: int
    feedback: int
    seq: int = 0

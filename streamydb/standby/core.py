"""One pipeline among those over a log: a state machine that is told what happens and the time.

The pipeline with the highest epoch leads; epochs are claimed in the control topic, where the first
claim of an epoch holds (a lease in the sense of Gray and Cheriton, 1989, with the topic as arbiter
and the epoch as fencing token). A leader says now and then how far all outputs are written; the
others follow up to there. When it falls silent, or does not move though there is something to do,
one that is ready claims the next epoch. A leader that hears of a higher epoch stands down.

Times are milliseconds of a clock that never goes back; a wrong decision costs work, never an
output.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from streamydb.standby.messages import Audited, Beat, Claim, Following, Handover, Message

__all__ = ["Action", "Member", "Play", "Role", "Say", "Times"]

_WAITING_MAX: Final = 1_000

Role = Literal["starting", "claiming", "leading", "following"]


@dataclass(frozen=True, slots=True)
class Times:
    """How long things take, in ms.

    ``beat``: between two beats of a leader with followers. ``silence``: after which a leader is
    taken for dead. ``stall``: after which one that beats but does not read what there is, is, too.
    ``follow``: between two messages of a follower. ``present``: how long a follower counts as there
    after such a message. ``ready``: how far behind one may be that takes over. ``stuck``: after
    which a leader that reads and resolves nothing tells its shards again that it leads.
    """

    beat: int = 250
    silence: int = 1_000
    stall: int = 30_000
    follow: int = 1_000
    present: int = 5_000
    ready: int = 5_000
    stuck: int = 5_000


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


@dataclass(slots=True)
class _Leader:
    """What is known of the pipeline that leads."""

    epoch: int = 0
    pipeline: str = ""
    name: str = ""
    heard_ms: int = 0
    read: int = -1
    moved_ms: int = 0


@dataclass(slots=True)
class _Own:
    """How far this pipeline is.

    ``read_then``: how much had been read when something was resolved last. ``stuck_ms``: since when
    more has been read.
    """

    resolved: int = 0
    read: int = 0
    read_then: int = 0
    stuck_ms: int | None = None
    waiting: deque[tuple[int, int]] = field(default_factory=deque)


class Member:
    """One pipeline's view, and what it does.

    Args:
        log: Kafka's id of the log.
        pipeline: the incarnation of its checkpoint.
        name: its name.
        terms: the settings that its outputs follow from.
        standby: do not claim the lead at the start.
        times: how long to wait for what.

    Attributes:
        role: what it does now.
        covered: all outputs up to this seq are written. One that leads from the start does not
            rely on what others said: a rebuild from the log writes everything again.
        leader: the pipeline that leads, as far as is known.

    """

    def __init__(
        self, log: str, pipeline: str, name: str, *, standby: bool, terms: str = "",
        times: Times = Times(),
    ) -> None:
        """Know nothing yet."""
        self.role: Role = "starting"
        self.covered = 0
        self.leader = _Leader()
        self._log, self._me = log, pipeline
        self._sender: dict[str, Any] = {
            "log": log, "pipeline": pipeline, "name": name, "terms": terms
        }
        self._standby = standby
        self._times = times
        self._own = _Own()
        self._others: dict[str, int] = {}
        self._said_ms = self._tick_ms = 0
        self._beaten = -1
        self._followed = False

    @property
    def epoch(self) -> int:
        """The highest epoch that was heard of."""
        return self.leader.epoch

    @property
    def followed(self) -> bool:
        """Whether somebody was heard lately who follows."""
        return bool(self._others)

    def lag_ms(self, now_ms: int) -> int:
        """For how long the oldest news has been known that is not in the own state."""
        return now_ms - self._own.waiting[0][0] if self._own.waiting else 0

    def is_ready(self, now_ms: int) -> bool:
        """Whether it could take over at once."""
        return self.role == "following" and self.lag_ms(now_ms) <= self._times.ready

    def disagreement(self, message: Message) -> str | None:
        """Why this one cannot stand beside the leader that sent a message; None if it can."""
        mine, theirs = self._sender["terms"], message.terms
        leads = isinstance(message, Beat) and message.pipeline == self.leader.pipeline
        if message.log != self._log or message.pipeline == self._me or not leads:
            return None
        if mine == theirs or not theirs:
            return None
        who = message.name or message.pipeline
        return f"pipeline {who} leads with {theirs}, this one has {mine}: outputs would differ"

    def audited(self) -> Message:
        """What to say after an audit has found nothing."""
        return Audited(**self._sender)

    def replay(self, message: Message) -> None:
        """Take in what was said before the start."""
        if message.log != self._log or not isinstance(message, Claim | Beat):
            return
        if isinstance(message, Beat):
            self.covered = max(self.covered, message.resolved)
        if message.epoch > self.leader.epoch:
            self.leader = _Leader(message.epoch, message.pipeline, message.name)

    def begin(self, now_ms: int) -> list[Action]:
        """Start, after the history has been replayed."""
        self._tick_ms = self.leader.heard_ms = self.leader.moved_ms = now_ms
        self._await(self.covered, now_ms)
        if self._standby:
            return self._follow(now_ms)
        if self.leader.pipeline in ("", self._me):
            return self._claim(now_ms)
        return [self._following(now_ms)]

    def hear(self, message: Message, now_ms: int) -> list[Action]:
        """Take in a message of the control topic, in order."""
        if message.log != self._log or isinstance(message, Audited):
            return []
        if isinstance(message, Handover):
            wanted = message.to in ("", self._sender["name"]) and self.is_ready(now_ms)
            return self._claim(now_ms) if wanted and self.leader.pipeline != self._me else []
        if isinstance(message, Following):
            return self._hear_follower(message, now_ms)
        actions = self._hear_epoch(message, now_ms)
        if isinstance(message, Beat):
            actions += self._hear_beat(message, now_ms)
        return actions

    def _hear_follower(self, message: Following, now_ms: int) -> list[Action]:
        if message.pipeline == self._me:
            return []
        new = message.pipeline not in self._others
        self._others[message.pipeline] = now_ms
        return [self._beat(now_ms)] if new and self.role == "leading" else []

    def _hear_epoch(self, message: Claim | Beat, now_ms: int) -> list[Action]:
        """Whoever has the highest epoch leads."""
        lost = self.role == "claiming" and message.pipeline == self._me
        if message.epoch < self.leader.epoch and self.role == "leading":
            if message.pipeline == self._me:
                return []
            self._others[message.pipeline] = now_ms  # it will follow, once it knows
            return [self._beat(now_ms)]
        if message.epoch <= self.leader.epoch:
            return self._follow(now_ms) if lost and self.leader.pipeline != self._me else []
        self.leader = _Leader(
            message.epoch, message.pipeline, message.name, now_ms, -1, now_ms
        )
        if message.pipeline == self._me:
            return self._lead(now_ms)
        return self._follow(now_ms) if self.role != "following" else []

    def _hear_beat(self, message: Beat, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        if message.resolved > self.covered and message.pipeline != self._me:
            self.covered = message.resolved
            self._await(message.resolved, now_ms)
            if self.role == "following":
                actions = [Play(leads=False, covered=self.covered)]
        leader = self.leader
        if message.pipeline == leader.pipeline and message.epoch == leader.epoch:
            leader.heard_ms = now_ms
            if self.role == "starting":
                actions = self._follow(now_ms)
            if message.read > leader.read or message.read >= self._own.read:
                leader.moved_ms = now_ms
            leader.read = message.read
        return actions

    def progress(self, resolved: int, read: int, now_ms: int) -> list[Action]:
        """Take in how far the own query is: last resolved seq, sum of the log's offsets read."""
        own = self._own
        if resolved > own.resolved:
            own.resolved, own.read_then, own.stuck_ms = resolved, read, None
        elif own.stuck_ms is None and read > own.read_then:
            own.stuck_ms = now_ms
        own.read = read
        self._catch_up()
        if self.role != "leading":
            return []
        self.covered = max(self.covered, self._own.resolved)
        due = self.followed and self._own.resolved > self._beaten
        return [self._beat(now_ms)] if due else []

    def excuse(self, now_ms: int) -> None:
        """Nobody is to blame for the silence: we did not listen, or Kafka did not answer."""
        self.leader.heard_ms = self.leader.moved_ms = now_ms

    def tick(self, now_ms: int) -> list[Action]:
        """Do what is due; to be called several times in ``Times.silence``."""
        times, slept_ms = self._times, now_ms - self._tick_ms
        self._tick_ms = now_ms
        if slept_ms > times.silence // 2:
            self.excuse(now_ms)
        for pipeline, heard_ms in list(self._others.items()):
            if now_ms - heard_ms > times.present:
                del self._others[pipeline]
        if self.role == "leading":
            due = self.followed and now_ms - self._said_ms >= times.beat
            return [*self._remind(now_ms), *([self._beat(now_ms)] if due else [])]
        if self._has_fallen_silent(now_ms):
            return self._claim(now_ms)
        if now_ms - self._said_ms >= times.follow:
            return [self._following(now_ms)]
        return []

    def _remind(self, now_ms: int) -> list[Action]:
        """Tell the shards again what they are to do, if it looks as if they had lost it.

        An old record of the feedback that comes once more, or late, may have told them to follow.
        """
        since = self._own.stuck_ms
        if since is None or now_ms - since < self._times.stuck:
            return []
        self._own.stuck_ms = now_ms
        return [Play(leads=True, covered=self.covered)]

    def _has_fallen_silent(self, now_ms: int) -> bool:
        """Whether it is time to claim, again or for the first time."""
        if self.role == "claiming":
            return now_ms - self._said_ms > self._times.silence
        silent = now_ms - self.leader.heard_ms > self._times.silence
        if self.role == "starting":
            return silent
        if not self.leader.pipeline or not self.is_ready(now_ms):
            return False
        return silent or now_ms - self.leader.moved_ms > self._times.stall

    def _await(self, resolved: int, now_ms: int) -> None:
        """Note since when it is known that there is more than the own state has."""
        waiting = self._own.waiting
        if len(waiting) >= _WAITING_MAX:
            now_ms = waiting.pop()[0]
        waiting.append((now_ms, resolved))
        self._catch_up()

    def _catch_up(self) -> None:
        waiting = self._own.waiting
        while waiting and waiting[0][1] <= self._own.resolved:
            waiting.popleft()

    def _lead(self, now_ms: int) -> list[Action]:
        if not self._followed:
            self.covered = 0
        self.role = "leading"
        return [Play(leads=True, covered=self.covered), self._beat(now_ms)]

    def _follow(self, now_ms: int) -> list[Action]:
        """Say so at once: a leader that knows of nobody who follows does not beat."""
        self.role, self._followed = "following", True
        return [Play(leads=False, covered=self.covered), self._following(now_ms)]

    def _claim(self, now_ms: int) -> list[Action]:
        self.role, self._said_ms = "claiming", now_ms
        epoch = self.leader.epoch + 1
        return [Say(Claim(**self._sender, epoch=epoch))]

    def _beat(self, now_ms: int) -> Say:
        self._said_ms, self._beaten = now_ms, self._own.resolved
        return Say(
            Beat(
                **self._sender, epoch=self.leader.epoch, resolved=self.covered,
                read=self._own.read,
            )
        )

    def _following(self, now_ms: int) -> Say:
        self._said_ms = now_ms
        return Say(
            Following(
                **self._sender, epoch=self.leader.epoch, resolved=self._own.resolved,
                lag_ms=self.lag_ms(now_ms), ready=self.is_ready(now_ms),
            )
        )

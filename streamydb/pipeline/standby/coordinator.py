"""Run a pipeline's part of the election, in a thread of the driver."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from streamydb.frames.messages import Role
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import ReadingError
from streamydb.kafka.rulings import RulingsError, RulingTopic
from streamydb.kafka.shared_topics import MESSAGES_MAX, SharedTopics, SharedTopicsError
from streamydb.pipeline.background import Background
from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.digest_watch import DigestWatch
from streamydb.pipeline.standby.position import Action, PipelinePosition, SetRole
from streamydb.records.control import Audited, Beat, Message
from streamydb.records.gears import GearStatus
from streamydb.records.rulings import Rulings

log = logging.getLogger("streamydb.standby")

_TURN_S: Final = 0.1
# A leader without followers has nobody to hurry for.
_ALONE_TURN_S: Final = 0.5
# A message ends the wait at once. The leader's beats are due 50 ms earlier, as with short turns.
_REST_TURN_S: Final = 0.3
_REST_MS: Final = 2_000
"""A query that has gone no further for so long rests."""
_HEARD_MS: Final = 500
"""Whoever has not heard the leader for so long may have to take its place."""
# But people who look for a pipeline see one that runs elsewhere by its beats (`kafka.presence`).
_ALONE_BEAT_MS: Final = 10_000
_HISTORY_S_MAX: Final = 60.0
"""The start is given up when no record of the history has come for so long."""
_WRITES_ON_MS: Final = 30_000
"""For so long, one that led before is thought to write what it has begun."""
_SHOWN_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class StandbyReport:
    """The state of a standby, for people."""

    role: str
    epoch: int
    leader: str
    ready: bool
    lag_ms: int
    behind: int | None
    alarm: str | None


class StandbyReporter:
    """Tells of a member when something has changed; of how far it is behind, once a second."""

    def __init__(self, member: ElectionMember, show: Callable[[StandbyReport], None]) -> None:
        self._member = member
        self._show = show
        self._shown: StandbyReport | None = None
        self._due_ms = 0

    def tell(self, alarm: str | None, now_ms: int) -> None:
        """Tell how the member is; ``alarm``: a difference of digests."""
        member = self._member
        lag_ms, behind = member.lag_ms(now_ms) // 1000 * 1000, member.behind
        view = StandbyReport(
            member.role,
            member.epoch,
            member.leader.name or member.leader.pipeline,
            member.is_ready(now_ms),
            lag_ms,
            behind,
            alarm,
        )
        if view == self._shown or (now_ms < self._due_ms and self._is_alike(view)):
            return
        self._due_ms = now_ms + _SHOWN_MS
        if self._shown is None or view.role != self._shown.role:
            log.info("%s, epoch %d, covered %d", member.role, member.epoch, member.covered)
        self._shown = view
        self._show(view)

    def _is_alike(self, view: StandbyReport) -> bool:
        """Return True if only how far behind it is has changed, as it does with every batch."""
        before = self._shown
        return before is not None and replace(view, behind=before.behind) == before


class QueryRulings:
    """The rulings that the running query has, and the epoch in which this pipeline may add some.

    Attributes:
        epoch: in which this pipeline has begun to lead; its rulings are of that one.
        fenced_ms: when it began.
        stale: the query must be started again: it lacks rulings on what it is to execute next.
    """

    def __init__(self, topic: RulingTopic, pipeline: str) -> None:
        self._topic = topic
        self._pipeline = pipeline
        self._count: int | None = None
        self.epoch = self.fenced_ms = 0
        self.stale = False

    @property
    def highest_epoch(self) -> int:
        """The highest epoch in which any pipeline has led, as it was read last."""
        return self._topic.epoch

    def load(self) -> Rulings:
        """Return the rulings with which the query is to be started, and note their number."""
        self._topic.refresh()
        rulings = self._topic.rulings()
        self._count, self.stale = len(rulings), False
        return rulings

    def cover(self, action: SetRole, epoch: int) -> bool:
        """Return True if the query runs with all rulings on what it is to execute next.

        A leader writes its rulings before what they cover. A fence ends the rulings of earlier
        leaders, so this pipeline writes one before it leads.
        """
        if action.leads and epoch > self.epoch:
            count = self._topic.fence(epoch, self._pipeline)
            self.epoch, self.fenced_ms = epoch, _now_ms()
        else:
            count = self._topic.refresh()
        self.stale = self._count is not None and count > self._count
        return not self.stale


class ShardRoles:
    """Tells the shards of this pipeline their role, by its feedback.

    Attributes:
        unsent: the role that the shards have not been told yet.
    """

    def __init__(self, topics: SharedTopics, config: ShardConfig, rulings: QueryRulings) -> None:
        self._topics = topics
        self._feedback = TopicNames(config.database).feedback_of(config.name)
        self._pipeline = config.incarnation
        self._rulings = rulings
        self._first_offset: int | None = None
        self.unsent: SetRole | None = None

    def send(self, action: SetRole, epoch: int) -> None:
        """Append a role, unless the query lacks rulings: then the role stays `unsent`.
        Raises SharedTopicsError: Kafka took no record; the role stays `unsent`.
        """
        self.unsent = action
        if not self._rulings.cover(action, epoch):
            return
        role = Role(self._pipeline, action.leads, action.covered)
        offset = self._topics.tell(self._feedback, role.block())
        if self._first_offset is None:
            self._first_offset = offset
        self.unsent = None

    def have_reported(self, position: PipelinePosition) -> bool:
        """Return True if a batch of this start has said what is resolved.

        The shards say so when they have read their role; an empty database says nothing.
        """
        if position.resolved > 0:
            return True
        read = self._first_offset is not None and position.feedback > self._first_offset
        return read and position.seq == 0


class Coordinator(Background):
    """One pipeline among those over a log.

    ``show``: is told when something changes. ``rulings``: what the query must know before it
    executes.

    Attributes:
        failure: why the pipeline must stop; None while it need not.
    """

    def __init__(
        self,
        topics: SharedTopics,
        config: ShardConfig,
        member: ElectionMember,
        show: Callable[[StandbyReport], None],
        rulings: RulingTopic,
    ) -> None:
        super().__init__("streamydb-standby")
        self._topics = topics
        self._member = member
        self._is_alive: Callable[[], bool] = lambda: False
        self._reporter = StandbyReporter(member, show)
        self._rulings = QueryRulings(rulings, config.incarnation)
        self._shards = ShardRoles(topics, config, self._rulings)
        self._digests = DigestWatch(topics, config, member)
        self._appeared_ms = 0
        self._unhandled: deque[Message] = deque()  # a turn failed before it handled these
        self._noted: deque[PipelinePosition] = deque(maxlen=1)
        self._position = PipelinePosition(0, 0, 0)
        self._moved_ms = _now_ms()
        self.failure: str | None = None
        self.written = 0

    def begin(self, written: int | None = None) -> None:
        """Find out the role and tell the shards; the query may start afterwards.

        ``written``: up to this seq the changes have everything; None: not known. Earlier messages
        about later outputs do not count: they are about a topic that was made anew since, or about
        transactions that the log has lost.
        Raises SharedTopicsError: Kafka does not answer, or took no record.
        """
        self.written = written or 0
        led = self._rulings.highest_epoch  # a claim in it, if kept, lies before the end read here
        end, digests_end = self._topics.ends()
        self._replay(max(0, end - MESSAGES_MAX), end, written)
        if end > MESSAGES_MAX and not self._member.leader.pipeline:
            self._replay(0, end, written)
        self._member.led = led
        self._digests.begin(digests_end)
        self._act(self._member.begin(_now_ms()))
        while self._member.role not in ("leading", "following"):
            self._turn()
            if self.failure is not None:
                raise SharedTopicsError(self.failure)

    def _replay(self, first: int, end: int, written: int | None) -> None:
        """Take in the messages between two offsets, as long as they come."""
        self._topics.begin_at(first)
        deadline_s = time.monotonic() + _HISTORY_S_MAX
        position = self._topics.position()
        while position < end:
            for message in self._topics.poll(_TURN_S):
                if isinstance(message, Beat) and written is not None:
                    resolved = min(message.resolved, written)
                    self._member.replay(msgspec.structs.replace(message, resolved=resolved))
                else:
                    self._member.replay(message)
            before, position = position, self._topics.position()
            if position > before:
                deadline_s = time.monotonic() + _HISTORY_S_MAX
            elif time.monotonic() > deadline_s:
                what = "the control topic cannot be read to its end"
                raise SharedTopicsError(what) from TimeoutError()

    def start(self, is_alive: Callable[[], bool]) -> None:
        """Go on in a thread of its own.

        ``is_alive``: whether the query runs; it asks the JVM, so it hangs when that hangs, and a
        leader that hangs does not beat.
        """
        self._is_alive, self._appeared_ms = is_alive, 0
        self._thread.start()

    @property
    def stale(self) -> bool:
        """True if the query must be started again, for rulings on what it is to execute next."""
        return self._rulings.stale

    @property
    def epoch(self) -> int:
        """The epoch in which this pipeline has begun to lead."""
        return self._rulings.epoch

    @property
    def settled(self) -> bool:
        """True unless another pipeline led a moment ago, which may still write what it began."""
        return not self._member.before or _now_ms() - self._rulings.fenced_ms >= _WRITES_ON_MS

    @property
    def leads(self) -> bool:
        return self._member.role == "leading"

    @property
    def writes_on(self) -> bool:
        """True if this pipeline led a moment ago, and writes until the new leader does."""
        return self._member.writes_on

    def load_rulings(self) -> Rulings:
        return self._rulings.load()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        if not self._thread.is_alive():
            self._topics.close()

    def note(self, position: PipelinePosition) -> None:
        """Take in how far the query is; called by any thread."""
        self._noted.append(position)

    def note_gear(self, gear: GearStatus) -> None:
        """Have our messages tell which gear of this pipeline leads; called by any thread."""
        self._member.gear = gear

    def _run(self) -> None:
        while not self._stop.is_set() and self.failure is None:
            try:
                self._turn()
            except (SharedTopicsError, ReadingError, RulingsError) as error:
                log.warning("%s; trying again", error)
            except Exception as error:
                log.exception("the part among other pipelines ended")
                self.failure = f"the part among other pipelines ended: {type(error).__name__}"

    def _turn(self) -> None:
        member = self._member
        alone = member.role == "leading" and not member.followed
        self._hear(_ALONE_TURN_S if alone else self._turn_s())
        if self.failure is not None:
            return
        if self._shards.unsent is not None:
            self._act([self._shards.unsent])
        if self._noted:
            position = self._noted.pop()
            if position != self._position:
                self._position, self._moved_ms = position, _now_ms()
            known = self._shards.have_reported(position)
            self._act(member.progress(position.resolved, position.read, _now_ms(), known=known))
        self.failure = self._digests.judge(self._position.feedback)
        self._act(member.reclaim(self._rulings.highest_epoch, _now_ms()))
        if self._topics.silent:
            member.excuse(_now_ms())
        self._act(member.tick(_now_ms()))
        if alone and member.role == "leading" and _now_ms() - self._appeared_ms >= _ALONE_BEAT_MS:
            self._appeared_ms = _now_ms()
            self._act([member.beat(self._appeared_ms)])
        self._reporter.tell(self._digests.alarm, _now_ms())

    def _turn_s(self) -> float:
        """Return how long a turn waits for a message: longer while nothing happens."""
        now_ms = _now_ms()
        heard = now_ms - self._member.leader.heard_ms < _HEARD_MS
        return _REST_TURN_S if heard and now_ms - self._moved_ms >= _REST_MS else _TURN_S

    def _hear(self, timeout_s: float) -> None:
        """Handle the digests and messages that have come; wait for a message if there is none."""
        digests_came = self._digests.read()
        if not self._unhandled:
            self._unhandled.extend(self._topics.poll(0 if digests_came else timeout_s))
        while self._unhandled:
            message = self._unhandled.popleft()
            if isinstance(message, Audited):
                self._digests.sound.add(message.pipeline)
            disagreement = self._member.disagreement(message)
            if disagreement is not None:
                self.failure = f"{disagreement}; start it with the same, on a new checkpoint folder"
                return
            self._act(self._member.hear(message, _now_ms()))

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, SetRole):
                self._shards.send(action, self._member.epoch)
            elif self._member.role != "leading" or self._is_alive():
                self._topics.say(action.message)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000

"""Run a pipeline's part of the election, in a thread of the driver."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from streamydb.columns.messages import Role
from streamydb.columns.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import ReadingError
from streamydb.kafka.rulings import RulingsError, RulingTopic
from streamydb.kafka.shared_topics import MESSAGES_MAX, SharedTopics, SharedTopicsError
from streamydb.pipeline.standby.core import Member
from streamydb.pipeline.standby.digest_watch import DigestWatch
from streamydb.pipeline.standby.position import Action, PipelinePosition, Play, Say
from streamydb.pipeline.standby.report import StandbyReport, StandbyReporter
from streamydb.records.control import Audited, Beat, Message
from streamydb.records.gears import GearStatus
from streamydb.records.rulings import Rulings

log = logging.getLogger("streamydb.standby")

_TURN_S: Final = 0.1
# A leader without followers has nobody to hurry for.
_ALONE_TURN_S: Final = 0.5
# But people who look for a pipeline see one that runs elsewhere by its beats (`kafka.presence`).
_ALONE_BEAT_MS: Final = 10_000
_HISTORY_S_MAX: Final = 60.0
"""The start is given up when no record of the history has come for so long."""
_WRITES_ON_MS: Final = 30_000
"""For so long, one that led before is thought to write what it has begun."""


class Coordinator:
    """One pipeline among those over a log.

    Args:
        topics: the shared topics.
        config: the pipeline's configuration.
        member: its part.
        show: is told when something changes.
        rulings: what the query must know before it executes.

    Attributes:
        failure: why the pipeline must stop; None while it need not.
        stale: the query must be started again: it lacks rulings on what it is to execute next.
        written: up to this seq the changes had everything at the start; None: not known. What was
            said of later outputs before does not count: it was said of a topic that was made anew
            since, or of transactions that the log has lost.

    """

    def __init__(
        self,
        topics: SharedTopics,
        config: ShardConfig,
        member: Member,
        show: Callable[[StandbyReport], None],
        rulings: RulingTopic,
    ) -> None:
        self._topics = topics
        self._config = config
        self._member = member
        self._is_alive: Callable[[], bool] = lambda: False
        self._reporter = StandbyReporter(member, show)
        self._rulings = rulings
        self._given: int | None = None
        self._fenced = self._fenced_ms = 0
        self.stale = False
        self.written: int | None = None
        self._feedback = TopicNames(config.database).feedback_of(config.name)
        self._digests = DigestWatch(topics, config, member)
        self._appeared_ms = 0
        self._role_at: int | None = None
        self._untold: Play | None = None
        self._heard: deque[Message] = deque()  # what was not handled yet when a turn failed
        self._position = PipelinePosition(0, 0, 0)
        self._fresh = False
        self._came_back = 0  # the mark of the own message that was read last
        self._overtaken: int | None = None
        self._news = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamydb-standby", daemon=True)
        self.failure: str | None = None

    def begin(self) -> None:
        """Find out the role and tell the shards; the query may start afterwards.

        Raises:
            SharedTopicsError: Kafka does not answer, or took no record.

        """
        led = self._rulings.epoch  # its claim, if it is kept, lies before the end asked for here
        end, digests_end = self._topics.ends()
        self._replay(max(0, end - MESSAGES_MAX), end)
        if end > MESSAGES_MAX and not self._member.leader.pipeline:
            self._replay(0, end)
        self._member.led = led
        self._digests.begin(digests_end)
        self._act(self._member.begin(_now_ms()))
        while self._member.role not in ("leading", "following"):
            self._turn()
            if self.failure is not None:
                raise SharedTopicsError(self.failure)

    def _replay(self, first: int, end: int) -> None:
        """Take in what was said between two offsets, as long as it comes."""
        self._topics.begin_at(first)
        ends_s = time.monotonic() + _HISTORY_S_MAX
        at = self._topics.position()
        while at < end:
            for message in self._topics.poll(_TURN_S):
                self._member.replay(self._as_written(message))
            before, at = at, self._topics.position()
            if at > before:
                ends_s = time.monotonic() + _HISTORY_S_MAX
            elif time.monotonic() > ends_s:
                what = "the control topic cannot be read to its end"
                raise SharedTopicsError(what) from TimeoutError()

    def _as_written(self, message: Message) -> Message:
        """Return what was said, as far as the changes are there."""
        if self.written is None or not isinstance(message, Beat):
            return message
        return msgspec.structs.replace(message, resolved=min(message.resolved, self.written))

    def start(self, is_alive: Callable[[], bool]) -> None:
        """Go on in a thread of its own.

        ``is_alive``: whether the query runs; it asks the JVM, so it hangs when that hangs, and a
        leader that hangs does not beat.
        """
        self._is_alive, self._appeared_ms = is_alive, 0
        self._thread.start()

    @property
    def epoch(self) -> int:
        """The epoch in which this pipeline has begun to lead; its rulings are of that one."""
        return self._fenced

    @property
    def settled(self) -> bool:
        """True unless another pipeline led a moment ago, which may still write what it began."""
        return not self._member.before or _now_ms() - self._fenced_ms >= _WRITES_ON_MS

    @property
    def leads(self) -> bool:
        """True if it leads."""
        return self._member.role == "leading"

    def give(self) -> Rulings:
        """Return the rulings with which the query is to be started, and note them."""
        self._rulings.refresh()
        given = self._rulings.rulings()
        self._given, self.stale = len(given), False
        return given

    def _is_current(self, action: Play) -> bool:
        """Return True if the query runs with all rulings on what it is told to execute.

        Whoever led before has written its rulings before what is covered; and from a fence on it
        can add none.
        """
        epoch = self._member.epoch
        if action.leads and epoch > self._fenced:
            known = self._rulings.fence(epoch, self._config.incarnation)
            self._fenced, self._fenced_ms = epoch, _now_ms()
        else:
            known = self._rulings.refresh()
        self.stale = self._given is not None and known > self._given
        return not self.stale

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
        if not self._thread.is_alive():
            self._topics.close()

    def note(self, position: PipelinePosition) -> None:
        """Take in how far the query is; called by any thread."""
        with self._news:
            self._position, self._fresh = position, True

    def note_gear(self, gear: GearStatus) -> None:
        """Have the messages of this pipeline tell which of its gears leads;
        called by any thread.
        """
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
        digests_came = self._digests.read()
        if not self._heard:
            wait_s = _ALONE_TURN_S if alone else _TURN_S
            self._heard.extend(self._topics.poll(0 if digests_came else wait_s))
        while self._heard:
            message = self._heard.popleft()
            if message.pipeline == self._config.incarnation:
                self._came_back = message.said_ms
            if isinstance(message, Audited):
                self._digests.sound.add(message.pipeline)
            wrong = member.disagreement(message)
            if wrong is not None:
                self.failure = f"{wrong}; start it with the same, on a new checkpoint folder"
                return
            self._act(member.hear(message, _now_ms()))
        if self._untold is not None:
            self._act([self._untold])
        with self._news:
            position, fresh, self._fresh = self._position, self._fresh, False
        if fresh:
            known = self._is_known(position)
            self._act(member.progress(position.resolved, position.read, _now_ms(), known=known))
        self.failure = self._digests.judge(position.feedback)
        self._rise()
        if self._topics.silent:
            member.excuse(_now_ms())
        self._act(member.tick(_now_ms()))
        if alone and member.role == "leading" and _now_ms() - self._appeared_ms >= _ALONE_BEAT_MS:
            self._appeared_ms = _now_ms()
            self._act([member.beat(self._appeared_ms)])
        self._reporter.tell(self._digests.alarm, _now_ms())

    def _is_known(self, position: PipelinePosition) -> bool:
        """Return True if a batch of this life has said what is resolved.

        The shards say so when they have read their role; a database that is empty says nothing.
        """
        if position.resolved > 0:
            return True
        read = self._role_at is not None and position.feedback > self._role_at
        return read and position.seq == 0

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Play):
                self._untold = action
                if not self._is_current(action):
                    continue
                role = Role(self._config.incarnation, action.leads, action.covered)
                told_at = self._topics.tell(self._feedback, role.block())
                self._role_at = told_at if self._role_at is None else self._role_at
                self._untold = None
            elif isinstance(action, Say) and (self._member.role != "leading" or self._is_alive()):
                self._topics.say(action.message)

    def _rise(self) -> None:
        """Claim the lead again if somebody has led since of whom the topic says nothing any more.

        A leader that stood still for a week does not hear of it, and its rulings would be void. It
        waits for a message of its own: if the other one leads now, it has heard that by then.
        """
        member, now_ms = self._member, _now_ms()
        if member.role != "leading" or self._rulings.epoch <= member.epoch:
            self._overtaken = None
        elif self._overtaken is None:
            said = member.beat(now_ms)
            self._overtaken = said.message.said_ms
            self._act([said])
        elif self._came_back >= self._overtaken:
            member.led = self._rulings.epoch
            self._act(member.claim(now_ms))


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000

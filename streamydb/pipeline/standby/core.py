"""One pipeline among those over a log: a state machine over messages and the time.

The pipeline with the highest epoch leads; epochs are claimed in the control topic, where the first
claim of an epoch holds (a lease in the sense of Gray and Cheriton, 1989, with the topic as arbiter
and the epoch as fencing token). A leader announces now and then up to which seq all
outputs are written; the others execute up to there. A ready follower wants the lead when the leader
falls silent, or does not move though there is something to do, or has been behind for long. It
announces its request and its position, waits until it reads its own message, and then for a moment
more. If another ready follower is further, it leaves the lead to that one. So the ready follower
that has executed most claims the next epoch. A follower that is not ready claims only after a long
silence, in which no ready one has claimed. A leader that hears of a higher epoch stands down; its
shards write on until the new leader's have, so that nobody waits for their first batch.

Times are milliseconds of a clock that never goes back. A wrong decision costs work, never an
output. `actions` has how long a member waits for what, and what it can do.
"""

from __future__ import annotations

from typing import Any, Literal

from streamydb.pipeline.standby.position import (
    USUAL_TIMES,
    Action,
    Leader,
    LeadRequest,
    OtherPipelines,
    OwnPosition,
    Rank,
    SendMessage,
    SetRole,
    Times,
)
from streamydb.records.control import (
    Audited,
    Beat,
    Following,
    Handover,
    LeaderClaim,
    Message,
    owner_of,
)
from streamydb.records.gears import GearStatus

Role = Literal["starting", "claiming", "leading", "following"]


class ElectionMember:
    """One pipeline's view, and what it does.

    ``terms``: the settings that its outputs follow from. ``standby``: do not claim the lead at the
    start.

    Attributes:
        covered: all outputs up to this seq are written. One that leads from the start does not
            rely on what others said: a rebuild from the log writes everything again.
        leader: the pipeline that leads, as far as is known.
        before: the pipeline that led before it; empty: none.
        gear: which gear of this pipeline leads; its messages tell it.
        led: claims are above this epoch, too: somebody has led in it, and the topic that says so
            may have been emptied since.
    """

    def __init__(
        self,
        log: str,
        pipeline: str,
        name: str,
        *,
        standby: bool,
        terms: str = "",
        times: Times = USUAL_TIMES,
    ) -> None:
        self.role: Role = "starting"
        self.covered = 0
        self.leader = Leader()
        self.before = ""
        self.gear: GearStatus | None = None
        self._log, self._me = log, pipeline
        self._sender: dict[str, Any] = {
            "log": log,
            "pipeline": pipeline,
            "name": name,
            "terms": terms,
        }
        self._standby = standby
        self._times = times
        self._own = OwnPosition()
        self._others = OtherPipelines()
        self._request: LeadRequest | None = None
        self._called_ms: int | None = None
        self._told = self.led = 0
        self._began_ms = self._said_ms = self._tick_ms = 0
        self._beaten = -1
        self._followed = False
        self._writes_until_ms: int | None = None
        self._overtaken_ms: int | None = None

    @property
    def epoch(self) -> int:
        """The highest epoch that was heard of."""
        return self.leader.epoch

    @property
    def writes_on(self) -> bool:
        """True if it led a moment ago, and writes until the new leader does."""
        return self._writes_until_ms is not None

    @property
    def followed(self) -> bool:
        """True if somebody was heard lately who follows."""
        return len(self._others) > 0

    @property
    def behind(self) -> int | None:
        """Return how many seqs it lacks of what the leader has resolved; None: it does not know."""
        if not self._own.reported or self._own.mark is None:
            return None
        return max(0, self._told - self._own.resolved)

    def lag_ms(self, now_ms: int) -> int:
        """Return for how long it has known of something that its state lacks."""
        return self._own.lag_ms(now_ms)

    def is_ready(self, now_ms: int) -> bool:
        """Return True if it could take over at once.

        Its own batches have said that it has executed all that the leader had told ``Times.ready``
        ago, and it knows what the leader tells: it has heard it, and itself, lately.
        """
        own, times = self._own, self._times
        if self.role != "following" or not own.reported or own.mark is None:
            return False
        level = own.resolved >= own.mark and own.lag_ms(now_ms) <= times.ready
        return level and own.knows(now_ms, times.fresh)

    def disagreement(self, message: Message) -> str | None:
        """Say why this pipeline cannot stand beside the sender of a message; None if it can."""
        mine, theirs = self._sender["terms"], message.terms
        leads = isinstance(message, Beat) and message.pipeline == self.leader.pipeline
        if message.log != self._log or message.pipeline == self._me or not leads:
            return None
        if mine == theirs or not theirs:
            return None
        who = message.name or message.pipeline
        return f"pipeline {who} leads with {theirs}, this one has {mine}: outputs would differ"

    def audited(self) -> Message:
        return Audited(**self._sender)

    def replay(self, message: Message) -> None:
        """Take in what was said before the start."""
        if message.log != self._log or not isinstance(message, LeaderClaim | Beat):
            return
        if isinstance(message, Beat):
            self.covered = self._told = max(self.covered, message.resolved)
        if message.epoch > self.leader.epoch:
            self._replace(message, 0)

    def _replace(self, by: LeaderClaim | Beat, now_ms: int) -> None:
        if by.pipeline != self.leader.pipeline:
            self.before = self.leader.pipeline
        self.leader = Leader(by.epoch, by.pipeline, by.name, now_ms, -1, now_ms)

    def begin(self, now_ms: int) -> list[Action]:
        """Start, after the history has been replayed.

        One that led last leads again if nobody has claimed since, even if it is called a standby;
        so does one whose real-time gear led last, which has gone with its driver.
        """
        self._began_ms = self._tick_ms = now_ms
        self.leader.heard_ms = self.leader.moved_ms = now_ms
        self._own.expect(self.covered, now_ms)
        led = owner_of(self.leader.pipeline) == self._me
        if led or (not self._standby and not self.leader.pipeline):
            return self.claim(now_ms)
        if self._standby:
            return self._follow(now_ms)
        return [self._following(now_ms)]

    def hear(self, message: Message, now_ms: int) -> list[Action]:
        if message.log != self._log or isinstance(message, Audited):
            return []
        if message.pipeline == self._me:
            self._see(message.said_ms, now_ms)
        if isinstance(message, Handover):
            # Handle an operator's request for another leader: the named one, or else the furthest.
            if message.to not in ("", self._sender["name"]) or message.target not in ("", self._me):
                return []
            if not self.is_ready(now_ms) or self.leader.pipeline == self._me:
                return []
            anyone = not message.to and not message.target
            return [] if anyone and self._ahead(now_ms) else self.claim(now_ms)
        if isinstance(message, Following):
            return self._hear_follower(message, now_ms)
        actions = self._hear_epoch(message, now_ms)
        if isinstance(message, Beat):
            actions += self._hear_beat(message, now_ms)
        return actions

    def _see(self, said_ms: int, now_ms: int) -> None:
        """Note that an own message has come back, so all before it has been read."""
        seen, request = self._own.see(said_ms, now_ms, self._times.fresh), self._request
        if seen and request is not None and request.seen_ms is None and said_ms >= request.said:
            request.seen_ms = now_ms

    def _hear_follower(self, message: Following, now_ms: int) -> list[Action]:
        if message.pipeline == self._me:
            return []
        rank = Rank(message.ready, message.resolved, message.name, message.pipeline, message.wants)
        new = self._others.take(rank, now_ms)
        if self.role == "leading":
            return [self.beat(now_ms)] if new or message.wants else []
        if self.role == "starting":
            return self._follow(now_ms)
        if not message.wants or self.role != "following" or not self._rank(now_ms).before(rank):
            return []
        self._called_ms = now_ms
        return [self._following(now_ms)]

    def _hear_epoch(self, message: LeaderClaim | Beat, now_ms: int) -> list[Action]:
        lost = self.role == "claiming" and message.pipeline == self._me
        if message.epoch < self.leader.epoch and self.role == "leading":
            if message.pipeline == self._me:
                return []
            # it will follow, once it knows
            self._others.take(Rank(False, -1, message.name, message.pipeline), now_ms)
            return [self.beat(now_ms)]
        if message.epoch <= self.leader.epoch:
            return self._follow(now_ms) if lost and self.leader.pipeline != self._me else []
        self._replace(message, now_ms)
        self._request = None
        self._others.drop(message.pipeline)
        if message.pipeline == self._me:
            if not self._followed:
                self.covered = 0
            self.role, self._writes_until_ms = "leading", None
            return [SetRole(leads=True, covered=self.covered), self.beat(now_ms)]
        if self.role == "leading":
            self._writes_until_ms = now_ms + self._times.overlap
        return self._follow(now_ms) if self.role != "following" else []

    def _hear_beat(self, message: Beat, now_ms: int) -> list[Action]:
        actions: list[Action] = []
        self._told = max(self._told, message.resolved)
        if message.resolved > self.covered and message.pipeline != self._me:
            if message.epoch == self.leader.epoch and message.executed > self.covered:
                self._writes_until_ms = None  # the new leader writes
            self.covered = message.resolved
            self._own.expect(message.resolved, now_ms)
            if self.role == "following":
                actions = self._only_execute()
        leader = self.leader
        if message.pipeline == leader.pipeline and message.epoch == leader.epoch:
            leader.heard_ms = now_ms
            if self.role == "starting":
                actions = self._follow(now_ms)
            if message.read > leader.read or message.read >= self._own.read:
                leader.moved_ms = now_ms
            leader.read = message.read
            # A leader that does not know how far it is may be anywhere. A real-time gear need not
            # wait until its own pipeline knows: both have begun with the same files. The most that
            # anybody ever told counts, as a leader may have begun with an older state.
            own, leader = self._own, self.leader
            knows = message.executed >= 0 or message.pipeline == owner_of(self._me) != self._me
            if knows and own.mark is None and own.knows(now_ms, self._times.fresh):
                own.mark = self._told
            if message.executed >= self._told:
                leader.behind_ms = None
            elif leader.behind_ms is None:
                leader.behind_ms = now_ms
        return actions

    def progress(
        self, resolved: int, read: int, now_ms: int, *, known: bool = True
    ) -> list[Action]:
        """Take in how far the own query is: last resolved seq, sum of the log's offsets read.

        ``known``: whether a batch has said what is resolved; at the start none has.
        """
        own = self._own
        first = known and not own.reported
        own.reported = own.reported or known
        own.progress(resolved, read, now_ms)
        if self.role != "leading":
            return []
        self.covered = max(self.covered, own.resolved)
        due = self.followed and (first or own.resolved > self._beaten)
        return [self.beat(now_ms)] if due else []

    def excuse(self, now_ms: int) -> None:
        """Restart all silences: we did not listen, or Kafka did not answer."""
        self.leader.heard_ms = self.leader.moved_ms = now_ms
        self.leader.behind_ms = self._request = None

    def tick(self, now_ms: int) -> list[Action]:
        """Do what is due; to be called several times in ``Times.silence``."""
        times, slept_ms = self._times, now_ms - self._tick_ms
        self._tick_ms = now_ms
        if slept_ms > times.silence // 2:
            self.excuse(now_ms)
        if self.role == "leading":
            return self._tick_leading(now_ms)
        self._others.forget(now_ms - times.present)
        if self._writes_until_ms is not None and now_ms >= self._writes_until_ms:
            self._writes_until_ms = None
            return self._only_execute()
        if self.role == "claiming":
            # A claim that does not come back is lost, or will be read late. Another pipeline may
            # lead well meanwhile: only the last leader repeats its claim.
            if now_ms - self._said_ms <= self._times.silence:
                return []
            if not self._followed and self.leader.pipeline in ("", self._me):
                return self.claim(now_ms)
            self.role, self._request = "following" if self._followed else "starting", None
            return self._tell(now_ms)
        if self.role == "starting":
            listened = now_ms - self._began_ms > times.start
            if listened and self._has_heard_silence(now_ms):
                return self.claim(now_ms)
        elif self._is_wanted(now_ms):
            return self._elect(now_ms)
        else:
            self._request = None
        return self._tell(now_ms)

    def _tick_leading(self, now_ms: int) -> list[Action]:
        """Beat while somebody follows; forget no follower while we are deaf ourselves."""
        times = self._times
        if self._own.knows(now_ms, times.fresh):
            self._others.forget(now_ms - times.present)
        due = self.followed and now_ms - self._said_ms >= times.beat
        return [*self._remind(now_ms), *([self.beat(now_ms)] if due else [])]

    def _has_heard_silence(self, now_ms: int) -> bool:
        """Return True if own messages have come back, and no beat of a leader between them.

        A pipeline whose link is cut hears no beat, either, and would take the lead from a leader
        that is well.
        """
        own, times = self._own, self._times
        silent_ms = 0 if own.seen_ms is None else own.seen_ms - self.leader.heard_ms
        return silent_ms >= times.silence and own.knows(now_ms, times.fresh)

    def _tell(self, now_ms: int) -> list[Action]:
        due = now_ms - self._said_ms >= self._times.follow
        return [self._following(now_ms)] if due else []

    def _remind(self, now_ms: int) -> list[Action]:
        """Tell the shards their role again if much was read and nothing resolved: it may be lost.

        An old record of the feedback that comes once more, or late, may have told them to follow.
        """
        since = self._own.stuck_ms
        if since is None or now_ms - since < self._times.stuck:
            return []
        self._own.stuck_ms = now_ms
        return [SetRole(leads=True, covered=self.covered)]

    def _is_wanted(self, now_ms: int) -> bool:
        """Return True if a new leader is needed, and this pipeline may claim the lead.

        A pipeline that is not ready waits long. If another one that is less far has waited that
        long, it claims at once.
        """
        leader, times = self.leader, self._times
        if not leader.pipeline:
            return False
        silent_ms = now_ms - leader.heard_ms
        if not self.is_ready(now_ms):
            called = self._called_ms is not None and now_ms - self._called_ms < times.near
            wait_ms = times.silence if called else times.alone
            return silent_ms > wait_ms and self._own.knows(now_ms, times.fresh)
        stalled = now_ms - leader.moved_ms > times.stall
        lags = leader.behind_ms is not None and now_ms - leader.behind_ms > times.behind
        return silent_ms > times.silence or stalled or lags

    def _elect(self, now_ms: int) -> list[Action]:
        """Announce that the lead is wanted; claim it if no better candidate answers."""
        times, request = self._times, self._request
        if request is None:
            said = self._following(now_ms, wants=True)
            self._request = LeadRequest(now_ms, said.message.said_ms)
            return [said]
        if request.seen_ms is None:
            return self._tell(now_ms)
        near = self._others.since(now_ms - times.near)
        if near and now_ms - request.seen_ms < times.window:
            return []
        ahead = self._ahead(now_ms)
        wait_ms = times.defer * (2 if any(other.wants for other in ahead) else 1)
        if ahead and now_ms - request.since_ms < wait_ms:
            return self._tell(now_ms)
        return self.claim(now_ms)

    def _rank(self, now_ms: int) -> Rank:
        return Rank(self.is_ready(now_ms), self._own.resolved, self._sender["name"], self._me)

    def _ahead(self, now_ms: int) -> list[Rank]:
        """Return the better candidates for the lead that were heard just now."""
        mine, near = self._rank(now_ms), self._others.since(now_ms - self._times.near)
        return [other for other in near if other.before(mine)]

    def _follow(self, now_ms: int) -> list[Action]:
        """Announce at once that this pipeline follows: a leader without followers does not beat.

        One that led knew only what it had executed itself, so it listens to the new leader first.
        """
        if self.role == "leading":
            self._own.mark = None
        self.role, self._followed, self._request = "following", True, None
        return [*self._only_execute(), self._following(now_ms)]

    def _only_execute(self) -> list[Action]:
        """Have the shards write nothing, unless they write on until the new leader's have."""
        return [SetRole(leads=False, covered=self.covered)] if self._writes_until_ms is None else []

    def claim(self, now_ms: int) -> list[Action]:
        """Say that it leads from now on; it does when it reads that."""
        self.role, self._said_ms, self._request = "claiming", now_ms, None
        said_ms, epoch = self._own.say(now_ms), max(self.leader.epoch, self.led) + 1
        return [SendMessage(LeaderClaim(**self._sender, epoch=epoch, said_ms=said_ms))]

    def reclaim(self, epoch: int, now_ms: int) -> list[Action]:
        """Claim the lead again if another pipeline has led in ``epoch``, of which the control topic
        says nothing any more.

        A leader that stood still for a week does not hear of it, and its rulings would be void. It
        waits for a message of its own: if the other one leads now, it has heard that by then.
        """
        seen_ms = self._own.seen_ms
        if self.role != "leading" or epoch <= self.epoch:
            self._overtaken_ms = None
        elif self._overtaken_ms is None:
            said = self.beat(now_ms)
            self._overtaken_ms = said.message.said_ms
            return [said]
        elif seen_ms is not None and seen_ms >= self._overtaken_ms:
            self.led = epoch
            return self.claim(now_ms)
        return []

    def beat(self, now_ms: int) -> SendMessage:
        """Say that it leads, and how far it is."""
        own, self._said_ms, self._beaten = self._own, now_ms, self._own.resolved
        executed = own.resolved if own.reported else -1
        return SendMessage(
            Beat(
                **self._sender,
                epoch=self.leader.epoch,
                resolved=self.covered,
                read=own.read,
                executed=executed,
                said_ms=own.say(now_ms),
                gear=self.gear,
            )
        )

    def _following(self, now_ms: int, *, wants: bool = False) -> SendMessage:
        self._said_ms, behind = now_ms, self.behind
        return SendMessage(
            Following(
                **self._sender,
                epoch=self.leader.epoch,
                resolved=self._own.resolved,
                lag_ms=self.lag_ms(now_ms),
                ready=self.is_ready(now_ms),
                behind=-1 if behind is None else behind,
                wants=wants or self._request is not None,
                said_ms=self._own.say(now_ms),
                gear=self.gear,
            )
        )

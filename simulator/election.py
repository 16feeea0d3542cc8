"""Simulate the election protocol of `standby`, by itself, under chance.

Two to five members of this release and the one before read and write one control topic; they are
killed, paused, cut off, slowed down, rolled back, begin with nothing, and are asked to hand over.
Then all is calm for a while, and then one more thing happens, by itself. `_Judge` looks on: it sees
the whole topic and how far everybody really is.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from simulator.judge import SeedOutcome
from simulator.members import STEP_MS, ControlEntry, Node, Room
from streamydb.pipeline.standby.position import Times
from streamydb.records.control import Beat, Following, Handover, LeaderClaim

__all__ = ["ELECTION", "run_election"]

ELECTION: Final = "election"
"""What stands for the grouping in an outcome."""

_QUICK: Final = Times(stall=6_000, behind=4_000, alone=8_000, defer=4_000)
"""Long waits are shortened in most seeds; their order stays."""

_DRIFT: Final = 0.02
_REACTION_MS: Final = 3_000
"""What hearing, saying, batches and a claim that is lost may cost in calm."""

_EPOCHS_IN_CALM: Final = 3

_TROUBLES: Final = (
    "kill",
    "kill",
    "kill",
    "paused",
    "deaf",
    "mute",
    "cut",
    "slow",
    "doubling",
    "stalled",
    "ask",
)


def run_election(seed: int) -> SeedOutcome:
    """Run one seed; the same seed always does the same."""
    rng = random.Random(f"election {seed}")  # noqa: S311 - a simulation wants to be repeatable
    outcome = SeedOutcome(seed, ELECTION)
    world = _World(rng)
    try:
        world.run()
    except _FaultError as broken:
        outcome.problems.append(f"after {world.room.t / 1000:.1f} s: {broken}")
    outcome.transactions, outcome.batches = len(world.room.log), world.judge.epoch
    outcome.config = world.about
    return outcome


class _FaultError(Exception):
    """An invariant of the election does not hold."""


@dataclass
class _Told:
    """The seqs that the leaders had announced as resolved, and when."""

    times: list[int] = field(default_factory=lambda: [0])
    seqs: list[int] = field(default_factory=lambda: [0])

    def add(self, t: int, seq: int) -> None:
        if seq > self.seqs[-1]:
            self.times.append(t)
            self.seqs.append(seq)

    def before(self, t: int) -> int:
        """The highest that had been said up to ``t``."""
        for at, seq in zip(reversed(self.times), reversed(self.seqs), strict=True):
            if at <= t:
                return seq
        return 0


class _Judge:
    """Looks at every record of the topic, and at everybody after every step."""

    def __init__(self, world: _World) -> None:
        """Nobody has led."""
        self._world = world
        self._told = _Told()
        self._beats: list[tuple[int, int, Beat]] = []
        self._said: defaultdict[int, list[tuple[int, int, Following]]] = defaultdict(list)
        self.epoch, self.leader = 0, ""
        self.epochs_in_calm = 0
        self.calm_t: int | None = None
        self._vacant_t: int | None = None
        self._ready_t: int | None = None

    def take(self, entry: ControlEntry) -> None:
        """Look at a record that the topic has taken."""
        message = entry.message
        if isinstance(message, LeaderClaim):
            if message.epoch > self.epoch:
                self._claimed(entry, message)
        elif isinstance(message, Beat):
            self._beaten(entry, message)
        elif isinstance(message, Following) and entry.why != "again":
            index = len(self._world.room.log) - 1
            self._said[entry.node].append((index, entry.taken_t, message))
            if message.ready:
                self._ready(entry, message)

    def _claimed(self, entry: ControlEntry, claim: LeaderClaim) -> None:
        node = self._world.room.nodes[entry.node]
        if entry.why in {"tick", "asked"}:
            self._fairly(entry, claim, node)
        self.epoch, self.leader = claim.epoch, claim.pipeline
        self.epochs_in_calm += self.calm_t is not None and self.calm_t < entry.said_t
        if self.epochs_in_calm > _EPOCHS_IN_CALM:
            raise _FaultError(f"epoch {self.epoch} is the fourth in one calm")

    def _fairly(self, entry: ControlEntry, claim: LeaderClaim, node: Node) -> None:
        """Require that a pipeline that claims, by itself or because it is asked to, may do so."""
        room, now = self._world.room, entry.said_t
        if entry.why == "asked":
            if not self._is_level(entry.executed, now):
                raise _FaultError(f"{claim.pipeline} took over when asked, and is not ready")
            return
        self._nobody_beats(entry, claim)
        if entry.taken_t != now:
            return  # what others did meanwhile is not its fault
        quiet_t = now - room.times.near - room.times.follow
        ready = node.is_ready(now) or self._is_level(node.executed, now)
        for other in room.nodes:
            if other is node or other.member is None:
                continue
            if max(node.trouble_t, other.trouble_t) > quiet_t:
                continue
            said = self._last_said(other, entry)
            told = said is None or said.ready  # else it has become ready just now
            if other.is_ready(now) and told and not ready:
                raise _FaultError(f"{node.pipeline} claims, not ready; {other.pipeline} is")
            further = said is not None and said.resolved > node.executed and not other.leading
            if said is not None and further and said.ready >= ready:
                what = f"{node.pipeline} with {node.executed} claims"
                raise _FaultError(f"{what}, {other.pipeline} told it of {said.resolved}")

    def _last_said(self, other: Node, entry: ControlEntry) -> Following | None:
        """Return a pipeline's last message that the sender of a claim has read a short while
        ago.
        """
        near_t = entry.said_t - (1 - _DRIFT) * self._world.room.times.near + 2 * STEP_MS
        for index, taken_t, message in reversed(self._said[other.index]):
            if index < entry.heard:
                return message if taken_t >= near_t else None
        return None

    def _nobody_beats(self, entry: ControlEntry, claim: LeaderClaim) -> None:
        """Require that the leader has been silent, as far as the pipeline that claims has read."""
        heard = [
            (taken_t, beat) for index, taken_t, beat in self._beats
            if index < entry.heard and beat.epoch >= self.epoch and beat.pipeline != claim.pipeline
        ]  # fmt: skip
        if not heard:
            return
        began_t = entry.said_t - (1 - _DRIFT) * self._world.room.times.silence
        taken_t, beat = heard[-1]
        lacks = beat.executed < max(beat.resolved, self._told.before(taken_t))
        if taken_t > began_t + STEP_MS and not lacks and not self._stands_still(entry, heard):
            what = f"{claim.pipeline} claims while {beat.pipeline}"
            raise _FaultError(f"{what} leads and beats")

    def _stands_still(self, entry: ControlEntry, heard: list[tuple[int, Beat]]) -> bool:
        """Return True if the beats that one has read show a leader that has read nothing for long.

        By what they say, not by what was done to the leader: beats of one that has been dead for
        long may come late, and show it as well.
        """
        began_t = entry.said_t - (1 - _DRIFT) * self._world.room.times.stall
        before = max((beat.read for taken_t, beat in heard if taken_t <= began_t), default=-1)
        return all(beat.read <= before for _, beat in heard)

    def _beaten(self, entry: ControlEntry, beat: Beat) -> None:
        if beat.epoch > self.epoch or (beat.epoch == self.epoch and beat.pipeline != self.leader):
            what = f"{beat.pipeline} beats in epoch {beat.epoch}"
            raise _FaultError(f"{what}, which it has not claimed")
        self._told.add(entry.taken_t, beat.resolved)
        if beat.epoch == self.epoch:
            self._beats.append((len(self._world.room.log) - 1, entry.taken_t, beat))

    def _ready(self, entry: ControlEntry, message: Following) -> None:
        node = self._world.room.nodes[entry.node]
        if message.said_ms > 0 and not self._is_level(message.resolved, entry.said_t):
            told = self._told.seqs[-1]
            raise _FaultError(f"{node.pipeline} says ready with {message.resolved} of {told}")

    def _is_level(self, executed: int, t: int) -> bool:
        """Return True if all has been executed that was told before the time that one may be
        behind.
        """
        times = self._world.room.times
        age_ms = (times.ready + times.fresh) * (1 + _DRIFT) + 2 * STEP_MS
        return executed >= self._told.before(t - int(age_ms))

    def look(self) -> None:
        """Look at everybody after a step."""
        leader = None
        for node in self._world.room.nodes:
            if not node.leading or node.member is None:
                continue
            if node.member.epoch == self.epoch:
                leader = node
                if node.pipeline != self.leader:
                    raise _FaultError(f"{node.pipeline} leads in an epoch of {self.leader}")
        if self.calm_t is not None:
            self._somebody_leads(leader)

    def _somebody_leads(self, leader: Node | None) -> None:
        """In calm nobody leads for a short time only, if one is ready, and for a bounded one."""
        room = self._world.room
        if leader is not None:
            self._vacant_t = self._ready_t = None
            return
        times = room.times
        if self._vacant_t is None:
            self._vacant_t = room.t
        ready = any(node.is_ready(room.t) for node in room.nodes)
        if not ready:
            self._ready_t = None
        elif self._ready_t is None:
            self._ready_t = room.t
        longest = (times.alone + times.defer) * (1 + _DRIFT) + _REACTION_MS
        if room.t - self._vacant_t > longest:
            raise _FaultError(f"nobody has led for {longest / 1000:.1f} s of calm")
        shortest = (times.silence + times.near + times.window) * (1 + _DRIFT) + _REACTION_MS
        if self._ready_t is not None and room.t - self._ready_t > shortest:
            raise _FaultError(f"nobody has led for {shortest / 1000:.1f} s, though one is ready")

    def calm(self, *, begins: bool) -> None:
        """All faults are over, or begin again."""
        self.calm_t = self._world.room.t if begins else None
        self.epochs_in_calm = 0
        self._vacant_t = self._ready_t = None


class _World:
    """A seed's members, and what happens to them."""

    def __init__(self, rng: random.Random) -> None:
        """Draw who is there."""
        self._random = rng
        count = rng.choice([2, 2, 3, 3, 4, 5])
        self.rate = rng.choice([0.01, 1.0, 20.0])
        nodes = [
            Node(
                index,
                batch_ms=rng.choice([200, 200, 1_000, 3_800]),
                speed=self.rate * rng.choice([1.5, 3.0, 10.0]),
                clock=(1 + rng.uniform(-_DRIFT, _DRIFT), rng.randint(1, 10**9)),
            )
            for index in range(count)
        ]
        nodes[0].standby = False
        times = Times() if rng.random() < 0.1 else _QUICK
        self.judge = _Judge(self)
        self.room = Room(rng, nodes, self.rate, times, self.judge.take)
        self._back: list[tuple[int, Node]] = []
        pace = "full" if times == Times() else "quick"
        self.about = f"members={count} times={pace}"

    def run(self) -> None:
        """From the start to the end."""
        rng, room = self._random, self.room
        room.start(room.nodes[0], level=True)
        self._pass(rng.choice([200, 1_500]))
        for node in room.nodes[1:]:
            room.start(node, cold=rng.random() < 0.4, level=True)
            if node.lives:
                node.executed = 0
            self._pass(rng.choice([0, 300, 1_500]))
        self._pass(3_000)
        ends_t = room.t + rng.choice([1_000, 5_000, 15_000])
        while room.t < ends_t:
            if rng.random() < 0.15:
                self._befall(rng.choice(room.nodes))
            self._step()
        self._heal()
        self._settle()
        self._drill()
        self._settle()

    def _pass(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self._step()

    def _step(self) -> None:
        due = [node for t, node in self._back if t <= self.room.t]
        self._back = [(t, node) for t, node in self._back if t > self.room.t]
        for node in due:
            self.room.start(node, cold=self._random.random() < 0.2)
        self.room.step()
        self.judge.look()

    def _befall(self, node: Node) -> None:
        """Something happens to one of them, or is asked of one."""
        rng, room = self._random, self.room
        what = rng.choice(_TROUBLES)
        for_ms = rng.choice([200, 900, 1_500, 4_000, 12_000])
        if what == "ask":
            named = rng.random() < 0.5
            target = node.pipeline if named else ""
            to = f"n{node.index}" if named else ""
            return room.request(Handover(log="log", pipeline="", to=to, target=target))
        node.trouble_t = room.t + for_ms
        if what == "kill":
            self._kill(node, for_ms)
        elif what == "cut":
            node.until["deaf"] = node.until["mute"] = room.t + for_ms
        else:
            node.until[what] = room.t + for_ms
        return None

    def _kill(self, node: Node, for_ms: int) -> None:
        if node.member is None:
            return
        node.member = None
        if self._random.random() < 0.3:
            node.executed = int(node.executed * self._random.random())  # an older copy comes back
        self._back.append((self.room.t + for_ms, node))

    def _heal(self) -> None:
        """All faults end; some of the dead stay dead."""
        rng, room = self._random, self.room
        dead = [node for _, node in self._back]
        rng.shuffle(dead)
        self._back = []
        for node in dead:
            running = any(other.member is not None for other in room.nodes)
            if rng.random() < 0.6 or not running:
                room.start(node)
        for node in room.nodes:
            for trouble, until in node.until.items():
                node.until[trouble] = min(until, room.t)
                node.trouble_t = min(node.trouble_t, room.t)

    def _settle(self) -> None:
        """Calm: before long one leads, and all know who."""
        rng, room, times = self._random, self.room, self.room.times
        while not room.at_rest:
            self._step()
        for node in room.nodes:
            node.until.clear()
        self.judge.calm(begins=True)
        self._pass(_REACTION_MS)
        for _ in range((times.alone + times.behind) * 2 // STEP_MS):
            if any(node.leading for node in room.nodes):
                break
            self._step()
        self._pass(_REACTION_MS + (times.behind * 2 if rng.random() < 0.2 else 0))
        ends_t = room.t + _REACTION_MS  # one that is behind may be relieved just now
        while not self._agreed() and room.t < ends_t:
            self._step()
        self.judge.calm(begins=False)
        if not self._agreed():
            leading = [node.pipeline for node in self._running() if node.leading]
            raise _FaultError(f"in calm {leading} lead, and they say {sorted(self._views())}")

    def _views(self) -> set[tuple[int, str]]:
        """Return the leader of each epoch, as each of them sees it."""
        return {(n.member.epoch, n.member.leader.pipeline) for n in self._running() if n.member}

    def _agreed(self) -> bool:
        """Return True if one leads, and all know."""
        return len(self._views()) == 1 and sum(node.leading for node in self._running()) == 1

    def _drill(self) -> None:
        """One thing alone: the leader dies, beside one that is cold; or roles are changed."""
        rng, room = self._random, self.room
        leader = next(node for node in room.nodes if node.leading)
        rest = [node for node in self._running() if node is not leader]
        for node in rest:
            if rng.random() < 0.25:
                node.member = None
                room.start(node, cold=True)
        self._pass(rng.choice([0, 300, 2_000, 6_000]))
        if not leader.leading:
            return
        what = rng.random()
        if rest and what < 0.2:
            room.request(Handover(log="log", pipeline=""))
        elif rest and what < 0.4:
            leader.executed = int(leader.executed * rng.random())  # an older copy comes back
            room.start(leader)
        elif rest:
            leader.member = None
        self.judge.calm(begins=False)

    def _running(self) -> Iterator[Node]:
        return (node for node in self.room.nodes if node.member is not None)

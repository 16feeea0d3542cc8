"""Simulate who asks for the lead, and who has it, where pipelines have two gears, under chance.

One or two pipelines over one log. Each is a micro-batch gear and, now and then, a real-time gear
beside it, both members of the election (`simulator.members`), and the decisions of its driver
(`realtime.lead`, `realtime.shifting`). The load rises and falls. Drivers are killed and begin
again, gears fail, links are slow, cut or double what is sent, requests are lost. Then all is calm.
A judge sees the whole topic, and what everybody believes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from simulator.judge import SeedOutcome
from simulator.members import STEP_MS, ControlEntry, Node, Room
from streamydb.pipeline.realtime.lead import FAULT, GearLead, GearRoles
from streamydb.pipeline.realtime.shifting import CALM_RATE_MAX, LogSample, Shifting
from streamydb.pipeline.standby.position import Times
from streamydb.records.control import Beat, Handover, LeaderClaim, gear_of, owner_of
from streamydb.records.gears import REAL_TIME

__all__ = ["GEAR_ELECTION", "run_gear_election"]

GEAR_ELECTION: Final = "gear election"
"""What stands for the grouping in an outcome."""

_TIMES: Final = Times(stall=6_000, behind=4_000, alone=8_000, defer=4_000)
_GEAR_BATCH_MS: Final = 100
_GEAR_SPEED: Final = 8.0  # records that a real-time gear executes in a ms
_READ_SPEED: Final = 20.0
"""Records that it reads in a ms: while it follows, the log up to its end, and executes it later."""

_REBASE_MS: Final = 1_000
"""So often it begins with a newer base, so it is not far behind the micro-batch gear for long."""

_AGAIN_MS: Final = (0, 1_000, 5_000)
_TROUBLES: Final = ("deaf", "mute", "cut", "slow", "doubling", "paused")
_RATES: Final = (0.0, 0.2, 1.0, CALM_RATE_MAX / 1_000 - 0.5, 12.0, 50.0)
"""Records that come in a ms; the last two are too many for a real-time gear."""

_VACANT_MS_MAX: Final = _TIMES.alone + _TIMES.defer + 4_000
_SETTLED_MS: Final = _VACANT_MS_MAX + 12_000
"""In calm a real-time gear leads after that: one that starts, ten seconds after the last shift."""

_WATCHED_MS: Final = 25_000


class _FaultError(Exception):
    """A promise does not hold."""


class _GearNode(Node):
    """A start of a real-time gear, as a member; each start is another pipeline in the topic."""

    owner: str = ""

    @property
    def pipeline(self) -> str:
        return gear_of(self.owner, f"{self.index}-{self.lives}")


class _LoadedRoom(Room):
    """A room whose log grows as fast as `rate` says."""

    appended = 0.0
    rate = 0.0

    def total(self) -> int:
        return int(self.appended)

    def step(self) -> None:
        self.appended += self.rate * STEP_MS
        super().step()


@dataclass
class _Driver:
    """A pipeline: its two gears, and what its driver knows.

    Attributes:
        micro: the micro-batch gear; it lives as long as the driver.
        gear: the real-time gear; its member is None while none runs.
        begins_t: when the real-time gear that is started will follow; None: none is started.
        base: how far its base is; it follows from there.
        position: how far it has read the log; one that follows does not execute all of that yet.
        rests_t: when the next one may be started.
    """

    micro: Node
    gear: _GearNode
    lead: GearLead
    shifting: Shifting
    begins_t: int | None = None
    base: int = 0
    position: int = 0
    rests_t: int = 0
    failures: int = 0
    at_once: bool = True
    back_t: int | None = None
    asks: list[tuple[int, str]] = field(default_factory=list)


class _World:
    """A seed's pipelines, and what happens to them."""

    def __init__(self, rng: random.Random, pipelines: int) -> None:
        self._rng = rng
        self.drivers = [self._driver(number) for number in range(pipelines)]
        nodes = [node for driver in self.drivers for node in (driver.micro, driver.gear)]
        self.room = _LoadedRoom(rng, nodes, 0.0, _TIMES, self._take)
        self.room.rate = rng.choice(_RATES[:4])
        self.epoch, self.leader = 0, ""
        self.shifts = 0
        self._vacant_t: int | None = None
        self._calm_t: int | None = None
        self._owner = ""

    def _driver(self, number: int) -> _Driver:
        rng = self._rng
        clock = (1 + rng.uniform(-0.02, 0.02), rng.randint(1, 10**9))
        micro = Node(
            2 * number, batch_ms=rng.choice([200, 400, 1_000]), speed=200.0, clock=clock,
            standby=number > 0 and rng.random() < 0.5,
        )  # fmt: skip
        gear = _GearNode(
            2 * number + 1, batch_ms=_GEAR_BATCH_MS, speed=_GEAR_SPEED, clock=clock, standby=True
        )
        gear.owner = micro.pipeline
        shifting = Shifting()
        return _Driver(micro, gear, GearLead(shifting), shifting)

    def run(self) -> None:
        rng, room = self._rng, self.room
        for driver in self.drivers:
            self._start(driver)
            self._pass(rng.choice([0, 100, 700, 3_000]))
        ends_t = room.t + rng.choice([5_000, 20_000, 40_000])
        while room.t < ends_t:
            if rng.random() < 0.04:
                self._befall(rng.choice(self.drivers))
            if rng.random() < 0.02:
                room.rate = rng.choice(_RATES)
            self._step()
        self._calm()

    def _pass(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self._step()

    def _calm(self) -> None:
        """All faults end, few records come: a real-time gear leads, and goes on leading."""
        room = self.room
        room.rate = self._rng.choice(_RATES[:4])
        for driver in self.drivers:
            if driver.back_t is not None:
                driver.back_t = room.t
            for node in (driver.micro, driver.gear):
                node.until.clear()
        while not room.at_rest:
            self._step()
        self._calm_t = room.t
        self._pass(_SETTLED_MS)
        self._require_gear("after the calm")
        before, self._owner = self.epoch, owner_of(self.leader)
        self._pass(_WATCHED_MS)
        if self.epoch != before:
            raise _FaultError(f"{self.epoch - before} claims in calm, the last by {self.leader}")
        room.rate = _RATES[-1]
        self._pass(6_000)
        if self._leading() is not self._of(self._owner).micro:
            raise _FaultError(f"{self.leader} leads where the log is too fast for it")
        room.rate = 0.2
        self._pass(self._rng.choice([0, 2_000, 8_000]) if len(self.drivers) > 1 else _SETTLED_MS)
        self._hand_over()
        self._pass(_SETTLED_MS)
        self._require_gear("after the load")

    def _hand_over(self) -> None:
        """A person hands the lead to the other pipeline, if there is one; that one keeps it."""
        owner = owner_of(self.leader)
        others = [each for each in self.drivers if each.micro.pipeline != owner]
        if not others:
            return
        self._owner, micro = "", others[0].micro
        for _ in range(100):
            if micro.leading:
                break
            self.room.request(Handover(log="log", pipeline="", target=micro.pipeline))
            self._pass(300)
        else:
            raise _FaultError(f"{micro.pipeline} does not take the lead when asked")
        self._owner = micro.pipeline

    def _of(self, owner: str) -> _Driver:
        return next(each for each in self.drivers if each.micro.pipeline == owner)

    def _leading(self) -> Node | None:
        """Return the member that leads in the highest epoch; None: it has gone."""
        for driver in self.drivers:
            for node in (driver.micro, driver.gear):
                member = node.member
                if member is not None and node.leading and member.epoch == self.epoch:
                    return node
        return None

    def _require_gear(self, when: str) -> None:
        leading = self._leading()
        if not isinstance(leading, _GearNode):
            raise _FaultError(f"no real-time gear leads {when}, but {self.leader}")

    def _step(self) -> None:
        for driver in self.drivers:
            if driver.back_t is not None and driver.back_t <= self.room.t:
                self._start(driver)
        self.room.step()
        drivers = self.drivers[:]
        self._rng.shuffle(drivers)
        for driver in drivers:
            if driver.micro.member is not None and not driver.micro.is_in("paused", self.room.t):
                self._drive(driver)
        self._look()

    def _start(self, driver: _Driver) -> None:
        """Start a driver, and the micro-batch gear with it."""
        driver.back_t = driver.begins_t = None
        driver.shifting = Shifting()
        driver.lead, driver.at_once = GearLead(driver.shifting), True
        driver.failures, driver.rests_t = 0, 0
        driver.asks.clear()
        self.room.start(driver.micro)

    def _befall(self, driver: _Driver) -> None:
        rng, room = self._rng, self.room
        for_ms = rng.choice([200, 900, 1_500, 4_000, 12_000])
        what = rng.choice(["kill", "fault", "leaves", *_TROUBLES])
        if what == "kill":
            driver.micro.member = driver.gear.member = None
            driver.back_t = room.t + for_ms
        elif what in {"fault", "leaves"}:
            if driver.gear.member is not None:
                self._end(driver, FAULT if what == "fault" else "repeated-id")
        else:
            for node in (driver.micro, driver.gear) if rng.random() < 0.7 else (driver.gear,):
                for each in ("deaf", "mute") if what == "cut" else (what,):
                    node.until[each] = room.t + for_ms

    def _drive(self, driver: _Driver) -> None:
        """Do what `RealTimeGear` does in a turn."""
        room, lead = self.room, driver.lead
        now_ms = driver.micro.now(room.t)
        self._send(driver)
        if driver.gear.member is not None:
            self._drive_gear(driver, now_ms)
        elif driver.begins_t is not None:
            if room.t >= driver.begins_t:
                self._begin(driver)
        elif room.t >= driver.rests_t:
            self._sample(driver, driver.micro.executed, overtaken=False)
            leads = driver.micro.leading
            begins = leads and driver.shifting.wants_up(now_ms)
            if driver.at_once:
                begins = lead.may_begin_at_once(now_ms, leads=leads)
            driver.at_once = False
            if begins:
                driver.begins_t = room.t + self._rng.choice([300, 1_500, 5_000])
                lag = self._rng.choice([0, 300, 3_000])
                driver.base = driver.position = max(0, driver.micro.executed - lag)

    def _begin(self, driver: _Driver) -> None:
        """The real-time gear has a worker, and joins the others."""
        room, gear = self.room, driver.gear
        driver.begins_t = None
        driver.lead.begin(driver.micro.now(room.t))
        gear.until = dict(driver.micro.until)
        room.start(gear, cold=True)
        gear.executed = driver.base

    def _drive_gear(self, driver: _Driver, now_ms: int) -> None:
        room, gear, micro = self.room, driver.gear, driver.micro
        leads = driver.lead.stage == "leading"
        if room.t % _REBASE_MS == 0:
            gear.executed = max(gear.executed, micro.executed - micro.batch_ms)
        read = driver.position + int(_READ_SPEED * STEP_MS)
        driver.position = gear.executed if leads else max(gear.executed, min(read, room.total()))
        overtaken = leads and micro.executed > gear.executed
        self._sample(driver, driver.position, overtaken=overtaken)
        decision = driver.lead.decide(self._roles(driver, now_ms))
        self.shifts += decision.led
        if decision.ask is not None:
            target = gear.pipeline if decision.ask == REAL_TIME else micro.pipeline
            self._ask(driver, target)
        if decision.ends:
            self._close(driver, failed=False)

    def _roles(self, driver: _Driver, now_ms: int) -> GearRoles:
        gear, member = driver.gear, driver.gear.member
        return GearRoles(
            now_ms, driver.micro.leading, gear.leading, gear.is_ready(self.room.t),
            writes_on=member is not None and member.writes_on,
        )  # fmt: skip

    def _sample(self, driver: _Driver, position: int, *, overtaken: bool) -> None:
        now_ms, end = driver.micro.now(self.room.t), self.room.total()
        driver.shifting.note(LogSample(now_ms, end, min(position, end), overtaken))

    def _end(self, driver: _Driver, reason: str) -> None:
        """The real-time gear has ended of itself."""
        failed = driver.lead.fail(reason, driver.micro.now(self.room.t))
        self._close(driver, failed=failed)

    def _close(self, driver: _Driver, *, failed: bool) -> None:
        """Give the lead back, as a gear does whatever ends it; then it has gone."""
        now_ms = driver.micro.now(self.room.t)
        if driver.lead.give_back(self._roles(driver, now_ms)) is not None:
            self._ask(driver, driver.micro.pipeline)
        driver.gear.member = None
        driver.failures = min(driver.failures + 1, len(_AGAIN_MS) - 1) if failed else 0
        driver.rests_t = self.room.t + _AGAIN_MS[driver.failures]

    def _ask(self, driver: _Driver, target: str) -> None:
        """Send a request; it may come late, twice or never, until all is calm."""
        rng, t = self._rng, self.room.t
        if self._calm_t is not None:
            driver.asks.append((t, target))
            return
        if not driver.micro.is_in("mute", t) and rng.random() < 0.9:
            late = rng.choice([0, 0, 0, 300, 1_500])
            driver.asks += [(t + late, target)] * rng.choice([1, 1, 1, 2])

    def _send(self, driver: _Driver) -> None:
        due = [target for t, target in driver.asks if t <= self.room.t]
        driver.asks = [each for each in driver.asks if each[0] > self.room.t]
        for target in due:
            self.room.request(Handover(log="log", pipeline="", target=target))

    def _take(self, entry: ControlEntry) -> None:
        """Look at a record that the topic has taken: who may lead, and say so."""
        message = entry.message
        if isinstance(message, LeaderClaim):
            if message.epoch > self.epoch:
                self.epoch, self.leader = message.epoch, message.pipeline
                self._keeps_the_lead(message)
        elif isinstance(message, Beat):
            other = message.epoch == self.epoch and message.pipeline != self.leader
            if message.epoch > self.epoch or other:
                what = f"{message.pipeline} beats in epoch {message.epoch}"
                raise _FaultError(f"{what}, which it has not claimed")

    def _keeps_the_lead(self, claim: LeaderClaim) -> None:
        if self._owner and owner_of(claim.pipeline) != self._owner:
            raise _FaultError(f"{claim.pipeline} takes the lead from a pipeline that is well")

    def _look(self) -> None:
        """Look at everybody after a step."""
        room, leading = self.room, 0
        for driver in self.drivers:
            for node in (driver.micro, driver.gear):
                member = node.member
                if member is None or not node.leading or member.epoch < self.epoch:
                    continue
                leading += 1
                if node.pipeline != self.leader:
                    raise _FaultError(f"{node.pipeline} leads in an epoch of {self.leader}")
        if leading > 1:
            raise _FaultError(f"{leading} lead in epoch {self.epoch}")
        if leading or self._calm_t is None:
            self._vacant_t = None
        elif self._vacant_t is None:
            self._vacant_t = room.t
        elif room.t - self._vacant_t > _VACANT_MS_MAX:
            raise _FaultError(f"nobody has led for {_VACANT_MS_MAX / 1000:.0f} s of calm")


def run_gear_election(seed: int, pipelines: int = 1) -> SeedOutcome:
    """Run one seed; the same seed always does the same."""
    rng = random.Random(f"gear election {seed}")  # noqa: S311 - a simulation must be repeatable
    outcome = SeedOutcome(seed, GEAR_ELECTION)
    world = _World(rng, pipelines)
    try:
        world.run()
    except _FaultError as broken:
        outcome.problems.append(f"after {world.room.t / 1000:.1f} s: {broken}")
    outcome.transactions, outcome.batches = len(world.room.log), world.shifts
    outcome.config = f"pipelines={pipelines}"
    return outcome

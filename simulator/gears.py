"""Two gears over one log in the simulator: shifts, kills, bases that lag, are lost or are old.

The micro-batch gear is a `Cluster`; the real-time gear begins with what that one's local files say,
keeps nothing, and is lost again and again, with outputs under way. One leads; who leads and how far
the outputs are known to be whole is told late, twice, out of order or never. What the real-time
gear cannot do it leaves to the other one. Everything must be as if there had been one pipeline.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeVar
from unittest import mock

import msgspec

from simulator.cluster import Cluster
from simulator.faults import Release, running
from simulator.gear_bases import copied_base
from simulator.gear_sink import GearDriver, GearSink
from simulator.log import SimulatedLog
from simulator.procedures import MODULES
from streamydb.frames.messages import Audit, Role
from streamydb.frames.plans import Life
from streamydb.frames.shards import ShardConfig
from streamydb.pipeline.realtime import core
from streamydb.pipeline.realtime.core import (
    Group,
    NotForThisGear,
    RealTimeShard,
    Surroundings,
    TailRecord,
)
from streamydb.pipeline.realtime.rebase import Rebase
from streamydb.records.rulings import ReadBefore, TooLate, UnruledFaults

__all__ = ["EVENTS", "Gears"]

_T = TypeVar("_T")

_MANY: Final = 1 << 30
_TAILS: Final = (*[core.TAIL_BYTES_MAX] * 5, 3_000)
"""Bytes of records behind the base, at most: production's, and so few that it often lags."""

_AGAIN: Final = (1, 5, _MANY)
"""Records of the tail that a step of a rebase executes at most, by turns."""

_DOWN: Final = 0.33
_UP: Final = 0.7
"""Draws below which the other gear is to lead: the real-time gear leads for half of the time."""

EVENTS: Final = (
    "announcement lost", "audit", "base behind", "base deleted", "base of an earlier time",
    "base older than the last", "begun", "both lead", "group confirmed", "hand-over doubled",
    "hand-over late", "hand-over lost", "killed with an end under way",
    "killed with outputs under way", "left: fault", "left: lagging-base", "left: more-partitions",
    "left: repeated-id", "no base", "nobody leads", "outputs that came late", "rebase goes on",
    "rebase put off", "rebased", "restart of the driver", "shift", "stale rulings", "unsaid group",
)  # fmt: skip
"""What can happen to two gears; over many seeds all of it does."""


class _Running(NamedTuple):
    """A start of the real-time gear, with the driver's knowledge of it."""

    shard: RealTimeShard
    sink: GearSink
    driver: GearDriver
    code: Release | None
    rulings: int
    owner: str
    rebase: Rebase | None = None


class _Message(NamedTuple):
    """A hand-over under way; ``leads``: its receiver is to lead."""

    to: Literal["cluster", "gear"]
    leads: bool


class Gears:
    """A cluster, and now and then a real-time gear beside it.

    Attributes:
        events: how often what has happened.
    """

    def __init__(
        self,
        config: ShardConfig,
        log: SimulatedLog,
        rng: random.Random,
        *,
        crashes: float,
        large: bool = False,
    ) -> None:
        """The cluster leads, alone."""
        self.cluster = Cluster(config, log, rng, crashes=crashes, large=large)
        self.members = [self.cluster]
        self.plan_limit = self.cluster.plan_limit
        self.log = log
        self.events = self.cluster.events
        self._random = rng
        self._gear: _Running | None = None
        self._gear_leads = self._gear_hears = False
        self._late: list[GearSink] = []
        self._messages: list[_Message] = []
        self._told: dict[str, tuple[bool, int]] = {"cluster": (True, 0), "gear": (False, -1)}
        self._written = self._covered = 0
        self._calm = False
        self._life = self.cluster.life
        self._tail_max = rng.choice(_TAILS)

    def behind(self) -> bool:
        """Return True if the cluster has not read or not been told something, or a gear waits."""
        if self.cluster.behind() or self._resolved() > self._covered or not self._is_told():
            return True
        gear = self._gear
        if gear is None:
            return bool(self._late)
        unread = self._gear_leads and bool(self._unread(gear.shard))
        return unread or len(gear.sink) > 0 or gear.driver.waits

    def news(self) -> bool:
        """Return True if the cluster has not read something that is not a marker."""
        return self.cluster.news()

    def batch(self, *, all_of_it: bool = False) -> None:
        """Some micro-batches and groups, and what else may happen between them."""
        if all_of_it:
            self._settle()
            return
        rng = self._random
        for _ in range(rng.randint(2, 7)):
            self._happens()
            if rng.random() < 0.5:
                self._group(rng.choice([1, 1, 2, 5, 40]))
            else:
                self._micro_batch()

    def _micro_batch(self, *, all_of_it: bool = False) -> None:
        cluster, gear = self.cluster, self._gear
        quiet = gear is None or not (self._gear_hears or len(gear.sink))
        cluster.settled = quiet and not self._late
        cluster.batch(all_of_it=all_of_it, gives_up=not all_of_it)

    def _happens(self) -> None:
        rng = self._random
        self._flow()
        if self._messages and rng.random() < 0.5:
            self._deliver(self._messages.pop(rng.randrange(len(self._messages))))
        if rng.random() < 0.4:
            self._tell()
        self._restarted()
        self._harm()
        if self._gear is None:
            if rng.random() < 0.5:
                self._begin()
            return
        draw = rng.random()
        if draw < 0.25:
            self._rebase(self._gear)
        elif draw < 0.28:
            self._lose()
        elif draw < (_DOWN if self._gear_leads else _UP):
            self._shift()

    def _harm(self) -> None:
        """Delete the files that the base is in, or put older ones there; or audit."""
        draw, caches = self._random.random(), self.cluster.nodes[0].caches
        if draw < 0.02:
            self.events["base deleted"] += 1
            caches.lose()
        elif draw < 0.05:
            self.events["base of an earlier time"] += 1
            caches.revert()
        elif draw < 0.1:
            caches.keep()
        elif draw < 0.13:
            self.events["audit"] += 1
            block = Audit(self.cluster.config.incarnation, "simulated").block()
            self.cluster.feedback[0].append(block)

    def _restarted(self) -> None:
        """A driver that was started again has no real-time gear, or a worker of ours died alone."""
        cluster, gear = self.cluster, self._gear
        if cluster.life is self._life:
            return
        self._life = cluster.life
        other = gear is not None and (
            gear.code is not cluster.code or gear.owner != cluster.config.incarnation
        )
        if gear is not None and (other or self._random.random() < 0.7):
            self.events["restart of the driver"] += 1
            self._lose()

    def _resolved(self) -> int:
        """Return up to which seq all outputs are known to be written."""
        driver = 0 if self._gear is None else self._gear.driver.written
        self._written = max(self._written, driver)
        return max(self.cluster.resolved, self._written)

    def _is_told(self) -> bool:
        said = self._told["cluster"] == (not self._gear_leads, self._covered)
        return said and (
            self._gear is None or self._told["gear"] == (self._gear_leads, self._covered)
        )

    def _tell(self) -> None:
        """Tell both what they are, and how far the outputs are."""
        self._covered = max(self._covered, self._resolved())
        if self._told["cluster"] != (not self._gear_leads, self._covered):
            self._tell_cluster(leads=not self._gear_leads)
        if self._gear is not None and self._told["gear"] != (self._gear_leads, self._covered):
            self._tell_gear(leads=self._gear_leads)

    def _deliver(self, message: _Message) -> None:
        if message.to == "cluster":
            self._tell_cluster(leads=message.leads)
        else:
            self._tell_gear(leads=message.leads)

    def _tell_cluster(self, *, leads: bool) -> None:
        cluster = self.cluster
        cluster.leads = leads
        if leads:
            cluster.epoch += 1
            cluster.topic.fence(cluster.epoch)
        cluster.take_rulings()
        self._told["cluster"] = leads, self._covered
        block = Role(cluster.config.incarnation, leads, self._covered).block()
        cluster.feedback[0].append(block)

    def _tell_gear(self, *, leads: bool) -> None:
        gear = self._gear
        if gear is None:
            return
        self._gear_hears = leads
        self._told["gear"] = leads, self._covered
        self.events["both lead"] += leads and self.cluster.leads
        self.events["nobody leads"] += not leads and not self.cluster.leads
        self._work(gear, lambda: gear.shard.play(leads=leads, covered=self._covered))

    def _shift(self) -> None:
        """Have the other gear lead; each hears of it now, later, twice or never."""
        self.events["shift"] += 1
        rng = self._random
        self._covered = max(self._covered, self._resolved())
        self._gear_leads = not self._gear_leads
        for message in (
            _Message("gear", self._gear_leads),
            _Message("cluster", not self._gear_leads),
        ):
            draw = rng.random()
            if draw < 0.1:
                self.events["hand-over lost"] += 1
            elif draw < 0.4:
                self.events["hand-over late"] += 1
                self._messages.append(message)
            else:
                self._deliver(message)
                if draw < 0.5:
                    self.events["hand-over doubled"] += 1
                    self._messages.append(message)

    def _begin(self) -> None:
        opened = copied_base(self.cluster)
        if opened is None:
            self.events["no base"] += 1
            return
        self.events["begun"] += 1
        cluster = self.cluster
        number = self.events["begun"]
        config = msgspec.structs.replace(
            opened.base.state.config, incarnation=f"{cluster.config.incarnation}-{number}"
        )
        life = Life(f"gear-{number}", cluster.life.shape)
        rulings = cluster.topic.rulings()
        shard = RealTimeShard(Surroundings(config, life, 2, MODULES, rulings), opened)
        self._gear = _Running(
            shard,
            GearSink(cluster),
            GearDriver(cluster, self.events),
            cluster.code,
            len(rulings),
            cluster.config.incarnation,
        )
        self.events["base behind"] += bool(self._unread(shard))
        self._gear_leads = self._gear_hears = False
        self._told["gear"] = False, -1
        self._messages.clear()

    def _rebase(self, gear: _Running) -> None:
        """Begin with a newer base, as the worker does, or go on with that; never with an older
        one.
        """
        rebase = gear.rebase or self._begun_rebase(gear)
        if rebase is None:
            return
        records_max = _AGAIN[self.events["rebase goes on"] % len(_AGAIN)]
        self.events["rebase goes on"] += 1
        with running(gear.code), mock.patch.object(core, "TAIL_BYTES_MAX", self._tail_max):
            found = self._guarded(lambda: _advanced(rebase, records_max))
        if found == "puts off":
            self.events["rebase put off"] += 1
            rebase.give_up()
            self._gear = gear._replace(rebase=None)
        elif found == "goes on":
            self._gear = gear._replace(rebase=rebase)
        elif found is not None:
            self.events["rebased"] += 1
            self._gear = gear._replace(shard=found, rebase=None)

    def _begun_rebase(self, gear: _Running) -> Rebase | None:
        """Begin with the newest base; None: there is none, or it is not newer."""
        opened = copied_base(self.cluster)
        if opened is None:
            self.events["no base"] += 1
            return None
        self.events["base older than the last"] += opened.base.state.seq < gear.shard.base_seq
        return Rebase(gear.shard, opened) if gear.shard.is_newer(opened) else None

    def _unread(self, shard: RealTimeShard) -> list[TailRecord]:
        records = self.log.partitions[0]
        at = len(records)
        while at and records[at - 1].offset >= shard.position:
            at -= 1
        return [TailRecord(*record) for record in records[at:]]

    def _group(self, count: int) -> None:
        gear = self._gear
        if gear is None:
            return
        records = self._unread(gear.shard)[:count]
        if records:
            self._work(gear, lambda: gear.shard.take(records))

    def _work(self, gear: _Running, work: Callable[[], Group]) -> None:
        """Do work of the gear, and send its outputs on their way; a kill may end it anywhere."""
        rng, crashes = self._random, 0.0 if self._calm else self.cluster.crashes
        if len(self.cluster.topic.rulings()) != gear.rulings:
            self.events["stale rulings"] += 1
            self._lose()
            return
        with running(gear.code), mock.patch.object(core, "TAIL_BYTES_MAX", self._tail_max):
            group = self._guarded(work)
        if group is None:
            return
        gear.sink.push(group.outputs)
        if rng.random() < crashes:
            self.events["unsaid group"] += 1
            self._lose()
            return
        gear.driver.say(group, gear.shard.position, gear.shard.base_seq)
        if rng.random() < crashes:
            self._lose()

    def _guarded(self, work: Callable[[], _T]) -> _T | None:
        """Return the outcome of work of the gear; None: it has left that to the other one."""
        try:
            return work()
        except NotForThisGear as error:
            self.events[f"left: {error.reason}"] += 1
        except (UnruledFaults, TooLate, ReadBefore, MemoryError, OSError):
            self.events["left: fault"] += 1
        self._lose()
        return None

    def _flow(self) -> None:
        """Some outputs come into Kafka, and the driver hears and reads some."""
        rng = self._random
        for sink in self._late:
            self.events["outputs that came late"] += len(sink) > 0
            sink.deliver(rng, rng.choice([0, 1, 5]))
        self._late = [sink for sink in self._late if len(sink) and rng.random() < 0.7]
        gear = self._gear
        if gear is None:
            return
        if len(gear.sink) and rng.random() < 0.2:
            self._lose_an_end(gear)
            return
        gear.sink.deliver(rng, rng.choice([0, 0, 1, 2, 10, 200]))
        gear.driver.hear(rng.choice([0, 1, 2, 50]))
        gear.driver.read(rng.choice([0, 1, 20, 1_000]))
        draw = rng.random()
        if draw < 0.05:
            self.events["announcement lost"] += 1
            gear.driver.announce(0)
        elif draw < 0.8:
            gear.driver.announce(1 if draw < 0.1 else 2)

    def _lose_an_end(self, gear: _Running) -> None:
        """Only the end of a partition is under way, the driver has read the rest; a kill comes."""
        gear.sink.deliver_all_but_an_end(self._random)
        gear.driver.hear(_MANY)
        gear.driver.read(_MANY)
        if len(gear.sink) and self._random.random() < 10 * self.cluster.crashes:
            self.events["killed with an end under way"] += 1
            self._lose()

    def _lose(self) -> None:
        """The real-time gear is gone; the cluster leads, with what is known to be written."""
        gear = self._gear
        if gear is None:
            return
        self._covered = max(self._covered, self._resolved())
        self._gear, self._gear_hears = None, False
        self._messages.clear()
        if len(gear.sink):
            self.events["killed with outputs under way"] += 1
            if self._random.random() < 0.5:
                self._late.append(gear.sink)
        if self._gear_leads:
            self._gear_leads = False
            if self._random.random() < 0.7:
                self._tell_cluster(leads=True)

    def _settle(self) -> None:
        """Let who leads go on to the end; that may be the real-time gear."""
        self._calm, rng = True, self._random
        self._messages.clear()
        for sink in self._late:
            sink.deliver(rng, _MANY)
        self._late.clear()
        self._restarted()
        self._group(_MANY)
        gear = self._gear
        if gear is not None:
            gear.sink.deliver(rng, _MANY)
            gear.driver.hear(_MANY)
            gear.driver.read(_MANY)
            gear.driver.announce()
            if self._gear_leads and gear.driver.unannounced:
                self._tell_gear(leads=True)
        self._tell()
        self._micro_batch(all_of_it=True)


def _advanced(rebase: Rebase, records_max: int) -> RealTimeShard | Literal["goes on", "puts off"]:
    """Take the next step of a rebase."""
    try:
        return rebase.advance(records_max) or "goes on"
    except NotForThisGear:
        return "puts off"

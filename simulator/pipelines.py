"""Two pipelines over one log in the simulator: kills, take-overs, two that lead at once.

Each has its own state, feedback and caches; they share the output topics. One leads; the other is
told now and then how far the outputs are known to be whole, follows silently, and may take over at
any moment, whatever the first is doing: it may be dead in the middle of a batch, it may be late and
go on writing, it may be told to stand down. Everything must be as if there had been one.
"""

from __future__ import annotations

import random
from itertools import count

import msgspec

from simulator.cluster import Cluster, WrittenRecord
from simulator.log import SimulatedLog
from streamydb.frames.messages import Role
from streamydb.frames.shards import ShardConfig

__all__ = ["Pair"]


class Pair:
    """Two clusters that take turns."""

    def __init__(
        self,
        config: ShardConfig,
        log: SimulatedLog,
        rng: random.Random,
        *,
        crashes: float,
        large: bool = False,
    ) -> None:
        """The first leads, the second follows."""
        written: list[WrittenRecord] = []
        clock = count()
        self.members = [
            Cluster(
                msgspec.structs.replace(config, incarnation=f"{config.incarnation}-{i}"),
                log,
                rng,
                crashes=crashes,
                written=written,
                clock=clock,
                large=large,
            )
            for i in range(2)
        ]
        self.plan_limit = [member.plan_limit for member in self.members]
        self.log = log
        self.takeovers = 0
        self._random = rng
        self._leader = 0
        self._zombie = False
        self.events = self.members[0].events
        self._down = [0, 0]
        self._told = [0, 0]
        self._covered = 0
        for member in self.members:
            member.topic = self.members[0].topic
        self._tell(1, leads=False)

    def behind(self) -> bool:
        """Return True if one of them has not read something, or not been told something."""
        return any(member.behind() for member in self.members) or self._news() > self._covered

    def news(self) -> bool:
        """Return True if one of them has not read something that is not a marker."""
        return any(member.news() for member in self.members)

    def batch(self, *, all_of_it: bool = False) -> None:
        """Some micro-batches of one or the other, and what else may happen between them."""
        if all_of_it:
            return self._settle()
        rng = self._random
        for _ in range(rng.randint(1, 3)):
            self._happens()
            number = rng.randrange(2)
            if self._down[number]:
                self._down[number] -= 1
                continue
            self._batch(number, gives_up=True)
        return None

    def _happens(self) -> None:
        """Let pipelines exchange messages, and let faults befall them."""
        rng = self._random
        if rng.random() < 0.6:
            self._covered = max(self._covered, self._news())
            self._tell(1 - self._leader, leads=False)
            self._zombie = False
        if rng.random() < 0.1:
            self._down[rng.randrange(2)] = rng.randint(1, 8)
        if rng.random() < 0.15:
            self._leader, self._zombie = 1 - self._leader, True
            self.takeovers += 1
            self._tell(self._leader, leads=True)

    def _news(self) -> int:
        """Return how far the outputs are known to be whole, by one who writes or wrote them."""
        known = self.members[self._leader].resolved
        return max(known, self.members[1 - self._leader].resolved) if self._zombie else known

    def _tell(self, number: int, *, leads: bool) -> None:
        member = self.members[number]
        member.leads = leads
        if leads:
            member.epoch = max(each.epoch for each in self.members) + 1
            member.topic.fence(member.epoch)
        member.take_rulings()  # all of them, before it is told what to execute
        block = Role(member.config.incarnation, leads, self._covered).block()
        member.feedback[0].append(block)
        self._told[number] = len(member.feedback[0])

    def _settle(self) -> None:
        news = self._news()
        if news > self._covered or self._zombie:
            self._covered = max(self._covered, news)
            self._tell(1 - self._leader, leads=False)
            self._zombie = False
        for number in range(2):
            self._batch(number, all_of_it=True)

    def _batch(self, number: int, *, all_of_it: bool = False, gives_up: bool = False) -> None:
        """A batch of one; with a new checkpoint it has to be told its role again."""
        member, other = self.members[number], self.members[1 - number]
        ended = not other.leads and other.has_read(self._told[1 - number])
        member.settled = number != self._leader or ended  # one that was overtaken does not know
        begun = member.begun
        member.batch(all_of_it=all_of_it, gives_up=gives_up)
        if member.begun > begun:
            self._tell(number, leads=member.leads)

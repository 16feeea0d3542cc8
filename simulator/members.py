"""Members over one control topic in the simulator: their clocks, links, queries, lives and deaths.

The topic is an ordered log. Each member reads it at its own pace and appends to it over a link that
may be slow, lose what is sent, or send it twice. Beside it runs a query: who leads executes what is
appended to the log, who follows what its shards were told is covered, in batches of its own length.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import Action, SendMessage, SetRole, Times
from streamydb.records.control import Handover, LeaderClaim, Message, decode_message, encode_message

__all__ = ["STEP_MS", "ControlEntry", "Node", "Room"]

STEP_MS: Final = 100
"""How long a step of the world takes; every member that runs has its turn in each."""


class ControlEntry(NamedTuple):
    """A record of the control topic: who appended what, and when that was said and taken.

    ``why``: of a claim, what it was said for. ``heard``, ``executed``: how much its sender had read
    of the topic and executed of the log when it said so; until the record is taken it may have
    been killed, and be back with an older state.
    """

    message: Message
    node: int
    said_t: int
    taken_t: int
    why: str
    heard: int
    executed: int


@dataclass
class Node:
    """A pipeline with its clock, its link to Kafka and its query.

    Attributes:
        index: its number.
        batch_ms: how long its batches take.
        speed: seqs that it executes in a ms.
        clock: how fast its clock runs, and from where.
        member: its part; None: it is not running.
        executed: what it has executed and resolved; it survives a kill.
        covered: what its shards were told is covered.
        leads: what its shards were told to do.
        heard: how many records of the topic it has read.
        lives: how many checkpoints it has begun with.
        known: whether a batch of this life has said what is resolved.
        trouble_t: when something last befell it.

    """

    index: int
    batch_ms: int
    speed: float
    clock: tuple[float, int]
    standby: bool = True
    member: ElectionMember | None = None
    executed: int = 0
    covered: int = 0
    leads: bool = False
    heard: int = 0
    lives: int = 0
    known: bool = False
    batch_t: int = 0
    until: dict[str, int] = field(default_factory=dict)
    trouble_t: int = 0

    def is_in(self, trouble: str, t: int) -> bool:
        """Return True if it is paused, deaf, mute, slow, doubling, stalled at ``t``."""
        return bool(self.until) and self.until.get(trouble, 0) > t

    def now(self, t: int) -> int:
        """Return the time of its own clock."""
        rate, start = self.clock
        return int(t * rate) + start

    @property
    def pipeline(self) -> str:
        """The incarnation of its checkpoint."""
        return f"id-{self.index}-{self.lives}"

    @property
    def leading(self) -> bool:
        """True if it runs and believes that it leads."""
        return self.member is not None and self.member.role == "leading"

    def is_ready(self, t: int) -> bool:
        """Return True if it runs and says that it could take over."""
        return self.member is not None and self.member.is_ready(self.now(t))


class Room:
    """The topic and those who use it.

    Args:
        rng: of the seed.
        nodes: who is there.
        rate: how many transactions are appended to the log in a ms.
        times: of the members.
        took: is told of each record that the topic takes.

    """

    def __init__(
        self,
        rng: random.Random,
        nodes: list[Node],
        rate: float,
        times: Times,
        took: Callable[[ControlEntry], None],
    ) -> None:
        """At the time 0, with some backlog in the log, and nobody running."""
        self.rng, self.nodes, self.times = rng, nodes, times
        self.t = 0
        self.log: list[ControlEntry] = []
        self.handovers = 0
        self._rate, self._took = rate, took
        self._backlog = int(rate * rng.choice([10_000, 60_000, 600_000]))
        self._underway: list[tuple[int, int, ControlEntry]] = []
        self._sent = 0

    def total(self) -> int:
        """Return how many transactions the log has."""
        return self._backlog + int(self._rate * self.t)

    def start(self, node: Node, *, cold: bool = False, level: bool = False) -> None:
        """Start one, on its checkpoint or on a new one (``cold``), or on one that is ``level``."""
        if cold:
            node.lives += 1
            node.executed = 0
        if level:
            node.executed = self.total()
        node.member = ElectionMember(
            "log", node.pipeline, f"n{node.index}", standby=node.standby, times=self.times
        )
        for entry in self.log:
            node.member.replay(entry.message)
        node.heard, node.known, node.leads = len(self.log), False, False
        node.batch_t, node.trouble_t = self.t + node.batch_ms, self.t
        self.act(node, node.member.begin(node.now(self.t)), "begin")

    def request(self, message: Handover) -> None:
        """Append a person's wish."""
        self.handovers += 1
        self._take(ControlEntry(message, -1, self.t, self.t, "", len(self.log), 0))

    @property
    def at_rest(self) -> bool:
        """True if nothing is on its way to the topic."""
        return not self._underway

    def act(self, node: Node, actions: list[Action], why: str) -> None:
        """Do what a member wants done, as far as its link allows."""
        for action in actions:
            if isinstance(action, SetRole):
                node.leads = action.leads
                node.covered = max(node.covered, action.covered)
            elif isinstance(action, SendMessage):
                self._send(
                    node, action.message, why if isinstance(action.message, LeaderClaim) else ""
                )

    def _send(self, node: Node, message: Message, why: str) -> None:
        if node.is_in("mute", self.t):
            if self.rng.random() < 0.8:
                return
            late = self.rng.randint(0, 5_000)
        else:
            late = self.rng.randint(0, 800) if node.is_in("slow", self.t) else 0
        entry = ControlEntry(
            message, node.index, self.t, self.t + late, why, node.heard, node.executed
        )
        if late == 0:
            self._take(entry)
        else:
            self._later(entry)
        if node.is_in("doubling", self.t):
            again = self.t + late + self.rng.randint(0, 500)
            self._later(entry._replace(taken_t=again, why="again"))

    def _later(self, entry: ControlEntry) -> None:
        self._sent += 1
        heappush(self._underway, (entry.taken_t, self._sent, entry))

    def _take(self, entry: ControlEntry) -> None:
        """Append a record: what is read of it went through the topic's bytes."""
        entry = entry._replace(message=decode_message(encode_message(entry.message)))
        self.log.append(entry)
        self._took(entry)

    def step(self) -> None:
        """Let some time pass: all that run hear, execute, and do what is due, in some order."""
        self.t += STEP_MS
        while self._underway and self._underway[0][0] <= self.t:
            self._take(heappop(self._underway)[2])
        nodes = self.nodes[:]
        self.rng.shuffle(nodes)
        for node in nodes:
            if node.member is not None and not node.is_in("paused", self.t):
                self._turn(node, node.member)

    def _turn(self, node: Node, member: ElectionMember) -> None:
        now = node.now(self.t)
        deaf = node.is_in("deaf", self.t)
        if not deaf:
            self._hear(node, member, now)
        elif node.is_in("mute", self.t) and node.index % 2:
            member.excuse(now)  # its client has noticed that Kafka does not answer
        if self.t >= node.batch_t:
            self._execute(node, member, now)
        self.act(node, member.tick(now), "tick")

    def _hear(self, node: Node, member: ElectionMember, now: int) -> None:
        end = len(self.log)
        if node.is_in("slow", self.t):
            end = node.heard + self.rng.randint(0, end - node.heard)
        for entry in self.log[node.heard : end]:
            node.heard += 1
            why = "asked" if isinstance(entry.message, Handover) else "heard"
            self.act(node, member.hear(entry.message, now), why)

    def _execute(self, node: Node, member: ElectionMember, now: int) -> None:
        """End a batch; one whose link is cut ends none, one that is stalled reads nothing."""
        if node.is_in("mute", self.t) or node.is_in("stalled", self.t):
            return
        node.batch_t = self.t + node.batch_ms
        reach = self.total() if node.leads else min(node.covered, self.total())
        most = node.executed + int(node.speed * node.batch_ms)
        node.executed = max(node.executed, min(reach, most))
        known, node.known = node.known or node.batch_ms > 1_000, True
        told = node.executed if known else 0
        self.act(node, member.progress(told, self.total(), now, known=known), "progress")

"""Who leads can rule, and nobody else, whatever the control topic has forgotten meanwhile.

Pipelines come, go, stand still and come back, on old checkpoints and new ones, for moments and for
more than a week, after which Kafka deletes what they said. Rulings are kept for good.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.kafka.rulings import RulingTopic
from streamydb.kafka.shared_topics import SharedTopics
from streamydb.pipeline.standby.coordinator import Coordinator
from streamydb.pipeline.standby.core import ElectionMember
from streamydb.pipeline.standby.position import PipelinePosition
from streamydb.records.begins import EVERYWHERE
from streamydb.records.rulings import Fault, Fence, decode_ruling
from tests.support.memory_kafka import CONNECTION, MemoryKafka
from tests.support.seeds import seeds

NAMES = TopicNames("bank")
WEEK_MS = 7 * 86_400_000


class Running:
    """A pipeline in one of its lives."""

    def __init__(self, name: str, pipeline: str) -> None:
        config = ShardConfig("bank", pipeline, 1, 1, 10, digest_interval=10, name=name)
        feedback = NAMES.feedback_of(name)
        self.pipeline = pipeline
        self.rulings = RulingTopic(CONNECTION, "bank", "log", EVERYWHERE)
        self.rulings.adopt(list)
        member = ElectionMember("log", pipeline, name, standby=bool(name))
        shared = SharedTopics(CONNECTION, "bank", feedback)
        self.coordinator = Coordinator(shared, config, member, lambda _: None, self.rulings)
        self.coordinator._is_alive = lambda: True
        self.coordinator.load_rulings()
        self.coordinator.begin()
        self.halted = False

    def turn(self, resolved: int) -> None:
        position = PipelinePosition(resolved, resolved, feedback=2**60, seq=resolved)
        self.coordinator.note(position)
        self.coordinator._turn()
        assert self.coordinator.failure is None
        if self.coordinator.stale:  # the query starts again
            self.coordinator.load_rulings()


class World:
    """A log with a pipeline and two standbys, which run or do not."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice = random.Random(f"epochs {seed}")
        self.kafka = MemoryKafka(self.dice)
        self.kafka.install(monkeypatch)
        self.names = ["", "b", "c"]
        for topic in (*NAMES.shared(), NAMES.rulings, *map(NAMES.feedback_of, self.names)):
            self.kafka.create(topic)
        clock = SimpleNamespace(monotonic=self._now_s, monotonic_ns=self._now_ns)
        monkeypatch.setattr("streamydb.pipeline.standby.coordinator.time", clock)
        self.checkpoints = {name: f"{name or 'a'} 0" for name in self.names}
        self.running: dict[str, Running] = {}
        self.resolved = self.ruled = self.void = 0

    def _now_ns(self) -> int:
        self.kafka.now_ms += 1
        return self.kafka.now_ms * 1_000_000

    def _now_s(self) -> float:
        return self._now_ns() / 1e9

    def start(self) -> None:
        """Start one, on its checkpoint or a new one."""
        absent = [name for name in self.names if name not in self.running]
        if not absent:
            return
        name = self.dice.choice(absent)
        if self.dice.random() < 0.3:
            self.checkpoints[name] = f"{name or 'a'} {self.kafka.now_ms}"
        self.running[name] = Running(name, self.checkpoints[name])

    def kill(self) -> None:
        if self.running:
            del self.running[self.dice.choice(list(self.running))]

    def halt(self) -> None:
        """One stands still, or goes on."""
        if self.running:
            one = self.running[self.dice.choice(list(self.running))]
            one.halted = not one.halted

    def rest(self) -> None:
        """For more than a week all stand still or are gone, and what was said is deleted."""
        while self.running and self.dice.random() < 0.7:
            self.kill()
        self.kafka.now_ms += self.dice.choice([WEEK_MS, 9 * WEEK_MS])
        self.forget()

    def strand(self) -> None:
        """One that leads stands still, and others lead; they are gone for long when it goes on."""
        leading = [one for one in self.running.values() if one.coordinator.leads]
        if leading:
            one = self.dice.choice(leading)
            one.halted = True
            self.live(100)
            self.running = {n: each for n, each in self.running.items() if each.halted}
            self.kafka.now_ms += WEEK_MS
            self.forget()
            one.halted = False

    def forget(self) -> None:
        """Kafka deletes what is older than a week."""
        part = self.kafka.topics[NAMES.control][0]
        old = self.kafka.now_ms - WEEK_MS
        kept = (record.at for record in part.records if record.append_ms > old)
        part.trim(next(kept, part.high))

    def live(self, turns: int) -> None:
        for _ in range(turns):
            self.resolved += self.dice.choice([0, 1])
            for one in self.dice.sample(list(self.running.values()), len(self.running)):
                if not one.halted:
                    one.turn(self.resolved)
            self.kafka.now_ms += 80

    def some(self) -> None:
        self.live(self.dice.choice([1, 5, 30, 100]))

    def rule(self) -> None:
        """Each that takes itself for the leader rules on a fault, when it comes again."""
        for one in self.running.values():
            if one.coordinator.leads:
                one.rulings.refresh()
        self.live(20)
        for one in self.running.values():
            coordinator = one.coordinator
            if not coordinator.leads:
                continue
            self.ruled += 1
            one.rulings.rule([Fault(0, self.ruled, "E")], coordinator.epoch)
            stands = one.rulings.rulings().get((0, self.ruled)) is not None
            assert stands == (self.leader() == one.pipeline), coordinator.epoch
            self.void += not stands

    def leader(self) -> str:
        """Whose fence counts: that of the highest epoch."""
        part = self.kafka.topics[NAMES.rulings][0]
        records = [decode_ruling(each.content) for each in part.records]
        fences = [record for record in records if isinstance(record, Fence)]
        return max(fences, key=lambda fence: fence.epoch).pipeline


@pytest.mark.parametrize("seed", range(seeds(40, 8)))
def test_who_leads_can_rule_and_nobody_else_whatever_was_forgotten(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(seed, monkeypatch)
    actions = [
        world.start, world.start, world.start, world.kill, world.halt, world.rest, world.strand,
        world.forget,
    ]  # fmt: skip
    for _ in range(world.dice.randint(3, 25)):
        world.dice.choice(actions)()
        world.some()
        world.rule()
    for one in world.running.values():
        one.halted = False
    if "" not in world.running:
        world.running[""] = Running("", world.checkpoints[""])
    world.live(500)
    (leader,) = [one for one in world.running.values() if one.coordinator.leads]
    before = world.void
    world.rule()
    assert world.void == before, f"{leader.pipeline} leads, and its rulings are void"

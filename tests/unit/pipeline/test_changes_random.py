"""Changes may be made anew at any time: what a pipeline writes to them goes on without a hole."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from streamydb.errors import ConfigurationError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.positions import written_until
from streamydb.pipeline.record import require_same_changes
from streamydb.records.change import Resolved, encode_resolved
from tests.support.memory_kafka import MemoryKafka
from tests.support.seeds import seeds

SEEDS = seeds(300)
NAME = TopicNames("sim").changes


class World:
    """A log, its changes, and checkpoints; whoever starts executes it, or a part of it.

    Attributes:
        end: the last seq of the log.
        topic: the number of the topic of the changes, which is made anew now and then.
        written: the last seq that is in it; there is none missing before.
        executed: the last seq that anybody has executed: states are of one of these.
        at: by checkpoint, the last seq that it has executed, or that of its state.
        wrote_to: by checkpoint, the topic that it has written to.
    """

    def __init__(self, seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dice = random.Random(f"changes {seed}")
        self.kafka = MemoryKafka(self.dice)
        self.kafka.install(monkeypatch)
        self.kafka.create(NAME, 2)
        self.folder = folder
        self.end = self.topic = self.written = self.executed = 0
        self.begun: dict[Path, int] = {}
        self.at: dict[Path, int] = {}
        self.wrote_to: dict[Path, int] = {}
        self.told: list[str] = []

    def step(self) -> None:
        """The log grows, the changes are made anew or trimmed, or a pipeline starts."""
        chance = self.dice.random()
        if chance < 0.3:
            self.end += self.dice.randint(1, 9)
        elif chance < 0.4:
            self.topic, self.written = self.topic + 1, 0
            del self.kafka.topics[NAME]
            self.kafka.create(NAME, 2)
        elif chance < 0.45:
            for part in self.kafka.topics[NAME]:
                part.trim(part.high)
        else:
            self.start(self.folder / str(self.dice.randrange(5)))

    def start(self, checkpoint: Path) -> None:
        """A checkpoint goes on, or begins, perhaps with a state of any seq that was executed."""
        checkpoint.mkdir(parents=True, exist_ok=True)
        states = [0, self.written, self.dice.randint(0, self.executed)]
        begun = self.begun.setdefault(checkpoint, self.dice.choice(states))
        at = self.at.setdefault(checkpoint, begun)
        other = self.wrote_to.get(checkpoint, self.topic) != self.topic
        trimmed = any(part.low for part in self.kafka.topics[NAME])
        written = partial(written_until, {"bootstrap.servers": "memory"}, "sim")
        try:
            require_same_changes(checkpoint, f"id {self.topic}", NAME, begun, written)
        except ConfigurationError as error:
            assert other or at > self.written, "nothing would be missing"
            self.told.append("made anew" if "made anew since" in str(error) else "lacks some")
            return
        assert not other, "it has written to another topic"
        assert trimmed or at <= self.written, f"from {self.written} to {at} all are missing"
        self.told.append("begins" if checkpoint not in self.wrote_to else "goes on")
        self.wrote_to[checkpoint] = self.topic
        self.execute(checkpoint, self.dice.randint(at, self.end))

    def execute(self, checkpoint: Path, seq: int) -> None:
        """Write up to a seq, and say so in one partition at least."""
        if seq == self.at[checkpoint]:
            return
        self.at[checkpoint] = seq
        self.written = max(self.written, seq)
        self.executed = max(self.executed, seq)
        for number in self.dice.choice([[0], [1], [0, 1]]):
            self.kafka.append(NAME, number, encode_resolved(Resolved(seq, 1, {})))


@pytest.mark.randomized
def test_whoever_starts_writes_on_where_the_changes_end_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    for seed in range(SEEDS):
        world = World(seed, tmp_path / str(seed), monkeypatch)
        for _ in range(world.dice.randint(5, 30)):
            world.step()
        told += world.told
    assert set(told) == {"begins", "goes on", "made anew", "lacks some"}

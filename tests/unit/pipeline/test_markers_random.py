"""Marker sessions that die, over clocks that jump: in the end every record can be executed."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

import pytest

from streamydb.kafka.names import TopicNames
from streamydb.pipeline import markers
from streamydb.pipeline.markers import MarkerSession, MarkerStatus
from streamydb.records.marker import Marker, decode_marker, encode_marker
from streamydb.settings import Settings
from streamydb.verify.oracle.order import LogRecord, released
from tests.support.memory_kafka import Died, MemoryKafka
from tests.support.seeds import seeds

TOPIC = TopicNames("bank").transactions
_HOUR_MS = 3_600_000
_CALM = 400


class World(threading.Event):
    """What happens while a session waits; it is set when the session is to end."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dice = random.Random(f"markers {seed}")
        self.kafka = MemoryKafka(self.dice)
        self.initial = self.dice.choice([1, 1, 2, 3])
        self.tail = self.dice.choice([None, 3])
        """How much of a partition is read first; with foreign markers, it is everything."""
        self.kafka.create(TOPIC, self.initial)
        self.clock_ms, self.left, self.records = self.kafka.now_ms, 0, 0

    def log(self) -> dict[int, list[LogRecord]]:
        return {
            number: [LogRecord(each.at, each.append_ms, each.content) for each in part.records]
            for number, part in enumerate(self.kafka.topics[TOPIC])
        }

    def markers(self) -> int:
        return sum(len(part) for part in self.log().values()) - self.records

    def wait(self, timeout: float | None = None) -> bool:
        self.clock_ms += round(1000 * (timeout or 0))
        return self.is_set()

    def is_set(self) -> bool:
        self.left -= 1
        self.clock_ms += 1
        if self.left > 0 and not self.calm and self.dice.random() < 0.5:
            self.befall()
        return self.left <= 0

    def befall(self) -> None:
        """Records come; clocks jump; a foreign sequencer writes half a round; a partition more."""
        dice, kafka = self.dice, self.kafka
        self.clock_ms += dice.choice([0, 1, 40])
        parts = kafka.topics[TOPIC]
        if dice.random() < 0.05:
            self.clock_ms += dice.choice([-_HOUR_MS, _HOUR_MS, -30, 900])
        for _ in range(dice.choice([0, 1, 1, 5])):
            number = dice.randrange(len(parts))
            kafka.now_ms = self.clock_ms + dice.choice([0, 0, -3, 800])
            parts[number].high += dice.choice([0, 0, 0, 2])  # control records
            kafka.append(TOPIC, number, dice.choice([b"{}", None, b'{"id":"a"}']))
            self.records += 1
        if self.tail is None and dice.random() < 0.1:
            marker = Marker(self.clock_ms + dice.choice([-99, 0, 5_000]), len(parts), "another")
            for number in range(len(parts)):
                if dice.random() < 0.7:
                    kafka.append(TOPIC, number, encode_marker(marker))
        if dice.random() < 0.02 and len(parts) < 5:
            kafka.create(TOPIC, len(parts) + 1)

    def session(self, turns: int, *, calm: bool) -> MarkerStatus:
        """Run one until it is told to end, or dies."""
        self.left, self.calm = turns, calm
        self.kafka.failing = 0.0 if calm else self.dice.choice([0.0, 0.02, 0.1])
        status = MarkerStatus("own")
        settings = Settings(database="bank", bootstrap="memory:9092")
        with suppress(Died):
            MarkerSession(status, settings, self, lambda: self.clock_ms).run()
        return status


@pytest.mark.parametrize("seed", range(seeds(60, 10)))
def test_every_record_is_released_and_then_no_marker_is_written(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(seed)
    world.kafka.install(monkeypatch)
    monkeypatch.setattr(markers, "REFRESH_S", 0.0)
    if world.tail is not None:
        monkeypatch.setattr(markers, "_TAIL", world.tail)
        monkeypatch.setattr(markers, "_TAIL_MAX", 50)
    while not world.records:
        world.befall()
    for _ in range(world.dice.randint(1, 5)):
        world.session(world.dice.randint(5, 150), calm=False)
    world.session(_CALM, calm=True)
    assert len(released(world.log(), world.initial)) == world.records
    before = world.markers()
    status = world.session(_CALM, calm=True)
    assert (status.state, status.last_error) == ("idle", None)
    assert world.markers() - before <= len(world.kafka.topics[TOPIC]), "one round, when it begins"
    numbers = [decode_marker(each.value or b"") for part in world.log().values() for each in part]
    assert sum(number is not None for number in numbers) == world.markers()

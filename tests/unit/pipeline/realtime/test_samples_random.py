"""The gear decides by the end of the log that Kafka tells now; where it tells none, by none."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import TopicEnds
from streamydb.pipeline.reads import Reads
from streamydb.pipeline.realtime import gear as gears
from streamydb.pipeline.realtime.gear import RealTimeGear
from streamydb.pipeline.realtime.shifting import LogSample
from tests.support.memory_kafka import MemoryKafka
from tests.support.micro_batches import CONFIG
from tests.support.seeds import seeds


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_a_sample_is_the_end_of_the_log_as_it_is_and_none_comes_too_soon(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dice = random.Random(f"samples {seed}")
    kafka = MemoryKafka(random.Random("samples"))
    kafka.install(monkeypatch)
    log = TopicNames(CONFIG.database).transactions
    kafka.create(log)
    now_ms = 100_000
    clock = SimpleNamespace(
        monotonic=lambda: now_ms / 1000, monotonic_ns=lambda: now_ms * 1_000_000
    )
    monkeypatch.setattr(gears, "time", clock)
    start: Any = SimpleNamespace(
        client={"bootstrap.servers": "x"}, shard=CONFIG, config=SimpleNamespace(local=tmp_path)
    )
    nobody: Any = SimpleNamespace(show=None, note=None, count=None)
    unused: Any = None
    gear = RealTimeGear(start, unused, unused, nobody, unused, Reads(100))
    look, is_away = TopicEnds.look, [False]

    def ask(ends: TopicEnds, *asked: Any) -> dict[int, int]:
        if is_away[0]:
            raise KafkaUnavailableError("it is away")
        return look(ends, *asked)

    monkeypatch.setattr(TopicEnds, "look", ask)
    samples: list[LogSample] = []
    monkeypatch.setattr(type(gear.shifting), "note", lambda _, sample: samples.append(sample))
    expected: list[LogSample] = []
    end, asked_ms = 0, 0
    for _ in range(60):
        now_ms += dice.choice([9, 47, 104, 699])  # no sum of some is 100: floats
        for _ in range(dice.choice([0, 0, 1, 5])):
            kafka.append(log, 0, b"{}")
            end += 1
        is_away[0] = dice.random() < 0.2
        position, overtaken = dice.randint(0, end), dice.random() < 0.3
        gear._sample(position, overtaken=overtaken)
        if now_ms - asked_ms >= 100:
            asked_ms = now_ms
            if not is_away[0]:
                expected.append(LogSample(now_ms, end, position, overtaken))
    assert samples == expected
    assert samples

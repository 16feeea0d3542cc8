"""Feedback is deleted when it is old and no batch on record will read it again, and not before."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamydb.kafka.names import TopicNames
from streamydb.pipeline import background
from streamydb.pipeline.background import KEPT_MS, FeedbackKeeper
from tests.support.checkpoints import SparkQuery, with_sums, written_to
from tests.support.memory_kafka import CONNECTION, MemoryKafka
from tests.support.seeds import seeds

TOPIC = TopicNames("bank").feedback


@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_what_is_old_and_was_read_is_deleted_and_nothing_else(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"feedback {seed}")
    kafka = MemoryKafka(dice)
    kafka.install(monkeypatch)
    parts = kafka.create(TOPIC, dice.randint(1, 3))
    for _ in range(dice.randrange(60)):
        kafka.now_ms += dice.choice([0, 1, KEPT_MS // 20])
        at = dice.randrange(len(parts))
        parts[at].high += dice.choice([0, 0, 2])
        kafka.append(TOPIC, at, b"block")
    now_ms = kafka.now_ms + dice.choice([0, KEPT_MS // 2, 2 * KEPT_MS])
    clock = SimpleNamespace(time_ns=lambda: now_ms * 10**6)
    monkeypatch.setattr(background, "time", clock)

    query = SparkQuery(dice, [])
    query.run(dice.randint(1, 6))
    files, read = dict(query.files), dict.fromkeys(range(len(parts)), 0)
    known = sorted(int(name[8:]) for name in files if name[:8] == "offsets/" and name[8:].isdigit())
    oldest: dict[int, int] = {}
    for number in known:
        read = {q: dice.randint(at, parts[q].high) for q, at in read.items()}
        oldest = oldest or read
        told = json.dumps({TOPIC: {str(q): at for q, at in read.items()}})
        files.update(with_sums(f"offsets/{number}", f"v1\n{{}}\n{told}".encode()))
    if known == [0]:
        oldest = {}  # the first batch may have to be read again
    written_to(tmp_path / "query", files)

    before = [list(part.records) for part in parts]
    FeedbackKeeper(CONNECTION, TOPIC, tmp_path)._drop()
    for number, part in enumerate(parts):
        old = [each for each in before[number] if each.append_ms < now_ms - KEPT_MS]
        done = {each.at for each in old if each.at < oldest.get(number, 0)}
        assert [each.at for each in part.records] == [
            each.at for each in before[number] if each.at not in done
        ]

"""Readers of results and of the changes' ends, over random topics with repetitions."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.kafka import admin, positions, results
from streamydb.kafka.changes import KafkaSource, TopicState
from streamydb.kafka.names import TopicNames
from streamydb.kafka.positions import look_at
from streamydb.kafka.reader import Span
from streamydb.kafka.results import ResultReader
from streamydb.records import Resolved, Result, encode_resolved
from streamydb.settings import Settings
from streamydb.verify.oracle.core import Oracle
from tests.support.memory_kafka import CONNECTION, MemoryKafka
from tests.support.seeds import seeds
from tests.support.strange import STRANGE

NAMES = TopicNames("bank")
SETTINGS = Settings(database="bank", bootstrap="memory:9092")


def own_seq(result: Result) -> int:
    """The place of a result itself, not of the one that it repeats."""
    return (result.duplicate or result).seq


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_every_result_is_handed_over_once_to_all_who_wait(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"results {seed}")
    kafka = MemoryKafka(dice)
    kafka.install(monkeypatch)
    count = len(kafka.create(NAMES.results, dice.randint(1, 3)))
    oracle, written = Oracle("bank"), list[tuple[int, bytes, bytes]]()
    ids = dice.choices(["a", "b", "c", *map(str, range(30))], k=dice.randint(1, 40))
    for offset, name in enumerate(ids):
        raw = b'{"id":"%s","updates":[{"op":"put","key":"k","value":1}]}' % name.encode()
        (result,) = [each for each in oracle.apply(raw, 0, offset, 1) if each.topic == "results"]
        assert result.key is not None
        assert result.value is not None
        written.append((len(name) % count, result.key, result.value))
    kafka.append(NAMES.results, 0, b"of an earlier time")
    with ResultReader(SETTINGS) as reader, ThreadPoolExecutor(len(ids)) as pool:
        places = [pool.submit(reader.wait_at, 0, offset, 30) for offset in range(len(ids))]
        appended = repeated = 0
        while appended < len(written):
            begins = max(0, appended - dice.choice([0, 0, 3]))
            repeated += appended - begins
            appended = min(len(written), appended + dice.randint(1, 9))
            for number, key, value in written[begins:appended]:
                kafka.append(NAMES.results, number, value, key)
        found = [place.result(30) for place in places]
        later = [reader.wait_at(0, offset) for offset in range(len(ids))]
    assert found == later
    assert [each.id for each in found] == ids
    assert sorted(map(own_seq, found)) == list(range(1, len(ids) + 1))
    assert reader.duplicates <= repeated
    assert reader.error is None


def test_who_waits_for_a_result_may_look_whether_one_can_still_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    kafka.create(NAMES.results, 1)
    looks = iter([None, None, RuntimeError("it has ended")])

    def look() -> None:
        found = next(looks)
        if found is not None:
            raise found

    monkeypatch.setattr(results, "_LOOK_S", 0.001)
    with ResultReader(SETTINGS, look=look) as reader, pytest.raises(RuntimeError, match="ended"):
        reader.wait_at(0, 0, 30)
    assert next(looks, "all") == "all"


@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_what_is_resolved_is_resolved_in_all_partitions(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"positions {seed}")
    kafka = MemoryKafka(dice)
    kafka.install(monkeypatch)
    window = dice.choice([1, 2, 7, 2_000])
    monkeypatch.setattr(positions, "_WINDOW_RECORDS", window)
    parts = kafka.create(NAMES.changes, dice.randint(1, 4))
    ends = [0] * len(parts)
    for seq in range(1, dice.choice([2, 5, 30])):
        reached = dice.choice([len(parts), len(parts), dice.randrange(len(parts) + 1)])
        for number, part in enumerate(parts):
            for _ in range(dice.choice([0, 0, 1, 12])):
                kafka.append(NAMES.changes, number, dice.choice([None, b"a change"]), b"key")
                if dice.random() < 0.2:
                    kafka.append(NAMES.changes, number, dice.choice(STRANGE))
            part.high += dice.choice([0, 0, 1])
            if number < reached:
                resolved = encode_resolved(Resolved(seq, seq + 7, {"0": 2 * seq}))
                kafka.append(NAMES.changes, number, resolved)
                ends[number] = seq
            if window == 2_000 and dice.random() < 0.1 and seq > 1:  # a batch is repeated
                kafka.append(NAMES.changes, number, encode_resolved(Resolved(1, 8, {"0": 2})))
                ends[number] = max(ends[number], 1)
    spans = {number: Span(part.low, part.high) for number, part in enumerate(parts)}
    described: Any = lambda _: TopicState("id", False, spans)  # noqa: E731 - as the broker says
    monkeypatch.setattr(KafkaSource, "describe", described)
    monkeypatch.setattr(admin, "cluster", lambda _: SimpleNamespace(cluster_id="c"))
    found = look_at(CONNECTION, "bank")
    least = min(ends)
    assert (found.seq, found.ts_ms) == (least, least and least + 7)
    assert found.covered == ({0: 2 * least} if least else {})
    assert (found.topic_id, found.cluster, found.spans) == ("id", "c", spans)

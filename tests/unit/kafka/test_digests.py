"""The digests of several pipelines, side by side."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.frames.digest import StateDigest, Teller
from streamydb.kafka import digests
from streamydb.kafka.digests import ToldDigest, beside, last_digests
from tests.support.memory_kafka import CONNECTION, MemoryKafka


def record(pipeline: str, seq: int, shard: int = 0, state: str = "a") -> tuple[bytes, bytes]:
    place = {"seq": seq, "shard": shard, "interval": 10, "shards": 2}
    value = json.dumps({**place, "state": state, "outcomes": "c"})
    return f"{shard}/{seq}/{pipeline}".encode(), value.encode()


def test_they_stand_beside_each_other_the_newest_first() -> None:
    records = [record("one", 10), record("one", 20, state="x"), record("two", 20, state="y")]
    found = beside([*records, (b"", b"no digest"), record("one", 20, shard=1)], most=10)
    assert [(each.seq, each.shard) for each in found] == [(20, 0), (20, 1), (10, 0)]
    assert found[0].told == [
        ToldDigest(pipeline="one", state="x", outcomes="c"),
        ToldDigest(pipeline="two", state="y", outcomes="c"),
    ]


def test_what_was_told_of_a_lost_history_does_not_stand_beside_the_present_one() -> None:
    told = [("old", 5, "x"), ("present", 7, "y"), ("standby", 7, "y"), ("earlier release", 0, "y")]
    records = []
    for pipeline, ts_ms, state in told:
        _, value = record(pipeline, 10, state=state)
        digest = StateDigest(10, 0, 10, state, "c", 2)
        records.append((Teller(pipeline, ts_ms or None).key(digest), value))
    (found,) = beside([*records, record("other", 20)], most=10)[1:]
    assert [each.pipeline for each in found.told] == ["present", "standby", "earlier release"]


def test_a_repetition_counts_once() -> None:
    assert len(beside([record("one", 10)] * 3, most=10)[0].told) == 1


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.integers(0, 1))),
    st.integers(0, 5),
)
def test_each_place_is_there_once_with_all_its_pipelines(
    said: list[tuple[str, int, int]], most: int
) -> None:
    found = beside((record(*each) for each in said), most)
    places = sorted({(-seq, shard) for _, seq, shard in said})[:most]
    assert [(-each.seq, each.shard) for each in found] == places
    for each in found:
        told = {told.pipeline for told in each.told}
        assert told == {who for who, seq, shard in said if (seq, shard) == (each.seq, each.shard)}


def test_the_end_of_the_topic_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = MemoryKafka(random.Random(1))
    kafka.install(monkeypatch)
    monkeypatch.setattr(digests, "_WINDOW_RECORDS", 2)
    for part in kafka.create("bank.digests", 2):
        part.low = part.high = 100
    for pipeline, seq in [("one", 10), ("one", 20), ("two", 20)]:
        key, value = record(pipeline, seq)
        kafka.append("bank.digests", 0, value, key)
    key, value = record("two", 20, shard=1)
    kafka.append("bank.digests", 1, value, key)
    found = last_digests(CONNECTION, "bank", most=3)
    assert [(each.seq, each.shard, len(each.told)) for each in found] == [(20, 0, 2), (20, 1, 1)]

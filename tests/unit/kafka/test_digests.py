"""The digests of several pipelines, side by side."""

from __future__ import annotations

import json
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.kafka import digests
from streamydb.kafka.digests import ToldDigest, beside, last_digests
from streamydb.kafka.reader import Span


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


class _Message:
    def __init__(self, key: bytes, value: bytes) -> None:
        self.key, self.value = (lambda: key), (lambda: value)


class _Reader:
    """A topic of one partition."""

    def __init__(self, _connection: object, topic: str) -> None:
        assert topic == "bank.digests"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def spans(self) -> dict[int, Span]:
        return {0: Span(100, 5_000)}

    def assign(self, offsets: dict[int, int]) -> None:
        assert offsets == {0: 3_000}

    def until(self, ends: dict[int, int]) -> list[list[_Message]]:
        assert ends == {0: 5_000}
        return [[_Message(*record("one", 10))], [_Message(*record("two", 10))]]


def test_the_end_of_the_topic_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "TopicReader", _Reader)
    (found,) = last_digests({}, "bank", most=3)
    assert [told.pipeline for told in found.told] == ["one", "two"]

"""A topic of streams with repetitions and other streams:
its readers get each record of one once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.errors import RecordError
from streamydb.kafka import streams


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("aab"), st.integers(1, 30), st.integers(1, 3)), max_size=60),
    st.tuples(st.integers(0, 30), st.integers(0, 3)), st.integers(0, 2**32),
)  # fmt: skip
def test_a_topic_of_streams_gives_each_record_of_one_stream_once(
    written: list[tuple[str, int, int]], after: tuple[int, int], seed: int
) -> None:
    """What lies in the topic is in order, with repetitions of whole parts; it grows meanwhile."""
    rng = random.Random(seed)
    places = sorted({each[1:]: each for each in written}.values(), key=lambda each: each[1:])
    topic: list[tuple[str, int, int]] = []
    for each in places:
        topic.append(each)
        if rng.random() < 0.2:
            topic += topic[-rng.randrange(1, 5) :]
    there = rng.randint(0, len(topic))

    class Reader(Records):
        records = topic
        high = there

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "TopicReader", Reader)
        wanted = [each for each in places if each[0] == "a" and each[1:] > after]
        now = [each for each in wanted if each in topic[:there]]
        found = streams.follow({}, "bank", "a", after=after, end=True)
        assert [(each.stream, each.seq, each.index) for each in found] == now
        going = streams.follow({}, "bank", "a", after=after)
        more = [next(going) for _ in wanted]
        assert [(each.stream, each.seq, each.index) for each in more] == wanted
        Reader.records, Reader.high = [*topic, ("a", 0, 0)], len(topic) + 1
        with pytest.raises(RecordError):
            list(streams.follow({}, "bank", "a", after=after, end=True))


class Records:
    """Stands for a reader of the topic; a record with seq 0 is none of a stream."""

    records: list[tuple[str, int, int]]
    high: int

    def __init__(self, *_: object) -> None:
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def whole(self, *, follow: bool) -> Iterator[Any]:
        yield from (Message(*each) for each in self.records[: self.high])
        if follow:
            yield from (Message(*each) for each in self.records[self.high :])


class Message:
    """A record of the topic, as Kafka's client hands it over."""

    def __init__(self, stream: str, seq: int, index: int) -> None:
        self._stream, self._place = stream, (seq, index)

    def key(self) -> bytes:
        return self._stream.encode()

    def value(self) -> bytes:
        seq, index = self._place
        about = {"stream": self._stream, "seq": seq, "index": index, "ts_ms": 1, "batch": 1}
        if not seq:
            return json.dumps({**about, "record": "?"}).encode().replace(b"?", b"\xff")
        return json.dumps({**about, "id": "t", "record": {}}).encode()

"""What has been resolved is said as soon as a micro-batch has ended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from streamydb.key_processor.state import NOT_YET
from streamydb.pipeline import announcer
from streamydb.pipeline.announcer import Announcer
from streamydb.pipeline.progress import PipelineMetrics, ProgressListener, StatusWriter

VALUE = '{"resolved":7,"ts_ms":70,"offsets":{"0":7}}'


class FakeProducer:
    """Takes records, or raises."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, bytes]] = []
        self.error: Exception | None = None
        self.flushed = 0

    def produce(self, topic: str, value: bytes, *, partition: int) -> None:
        assert topic == "bank.changes"
        if self.error is not None:
            raise self.error
        self.taken.append((partition, value))

    def poll(self, timeout: float) -> None:
        assert timeout == 0

    def flush(self, timeout: float) -> None:
        assert timeout > 0
        self.flushed += 1


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    made = FakeProducer()
    monkeypatch.setattr(announcer, "appender", lambda *_: made)
    return made


def test_every_partition_is_told(producer: FakeProducer) -> None:
    with Announcer({}, "bank.changes", 2) as announcing:
        announcing.announce(VALUE)
    assert producer.taken == [(0, VALUE.encode()), (1, VALUE.encode())]
    assert producer.flushed == 1


REFUSED = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


@given(
    st.lists(
        st.tuples(
            st.none() | st.just(NOT_YET) | st.integers(1, 9).map(lambda n: f'{{"resolved":{n}}}'),
            st.sampled_from([None, BufferError("full"), REFUSED]),
        )
    ),
    st.integers(1, 3),
)
def test_what_is_sure_is_said_to_every_partition_while_kafka_takes_it(
    batches: list[tuple[str | None, Exception | None]], partitions: int
) -> None:
    made, expected = FakeProducer(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(announcer, "appender", lambda *_: made)
        announcing = Announcer({}, "bank.changes", partitions)
    for said, made.error in batches:
        announcing.announce(said)
        if said not in {None, NOT_YET} and made.error is None:
            expected += [(number, str(said).encode()) for number in range(partitions)]
    assert made.taken == expected


@pytest.mark.parametrize("error", [BufferError("full"), REFUSED])
def test_without_kafka_the_batch_is_noted_all_the_same(
    error: Exception, producer: FakeProducer
) -> None:
    producer.error = error
    announcing = Announcer({}, "bank.changes", 1)
    status = StatusWriter(None, "bank")
    listener = ProgressListener(status, PipelineMetrics(), announce=announcing.announce)
    source: dict[str, Any] = {"numInputRows": 5, "endOffset": {"t": {"0": 7}}}
    seen = {"progress": {"seq": 7, "resolves": VALUE}}
    report = {"batchId": 1, "batchDuration": 9, "sources": [source], "observedMetrics": seen}
    listener.note(json.dumps(report))
    assert (status.status.seq, producer.taken) == (7, [])
    producer.error = None
    listener.note(json.dumps(report))
    assert producer.taken == [(0, VALUE.encode())]

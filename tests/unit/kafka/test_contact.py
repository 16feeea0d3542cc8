"""Asking a partition's leader for its offsets while it changes."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamydb.kafka.connection import passes, watermarks


class Leader:
    """Answers like a consumer: with errors first, then with offsets."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.asked: list[TopicPartition] = []

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        self.asked.append(place)
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return 3, 7


def test_a_leader_that_is_changing_is_asked_again() -> None:
    leader = Leader(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert watermarks(leader, "topic", 2, 30) == (3, 7)
    assert [(place.topic, place.partition) for place in leader.asked] == [("topic", 2)] * 3


def test_what_no_waiting_mends_is_told_at_once() -> None:
    leader = Leader(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException) as raised:
        watermarks(leader, "topic", 0, 30)
    assert not passes(raised.value)
    assert len(leader.asked) == 1


def test_the_last_error_is_told_when_the_time_is_up() -> None:
    leader = Leader(KafkaError.NOT_LEADER_FOR_PARTITION)
    with pytest.raises(KafkaException, match="Not leader"):
        watermarks(leader, "topic", 0, 0)
    assert len(leader.asked) == 1


def test_other_faults_do_not_pass() -> None:
    assert not passes(None)
    assert not passes(ValueError())
    assert not passes(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))

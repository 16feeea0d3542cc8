"""A partition's leader that changes is asked again, as long as there is time."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamydb.kafka import connection
from streamydb.kafka.connection import watermarks
from tests.support.seeds import seeds

pytestmark = pytest.mark.randomized

PASSING = [
    KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT,
    KafkaError._NOENT, KafkaError._UNKNOWN_PARTITION,
]  # fmt: skip
LASTING = [
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._AUTHENTICATION,
]  # fmt: skip


class Leader:
    """Answers after a while: with errors, then with offsets."""

    def __init__(self, answers: list[tuple[float, int]]) -> None:
        self.answers = answers
        self.asked = 0
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def get_watermark_offsets(self, _: TopicPartition, timeout: float) -> tuple[int, int]:
        self.asked += 1
        if self.asked > len(self.answers):
            return 3, 7
        takes_s, code = self.answers[self.asked - 1]
        self.now_s += min(takes_s, timeout)
        raise KafkaException(KafkaError(code))


@pytest.mark.parametrize("seed", range(seeds(400, 100)))
def test_it_ends_with_offsets_or_with_the_error_that_ends_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"watermarks {seed}")
    codes = dice.choices(PASSING, k=dice.randrange(12))
    lasting = dice.random() < 0.5
    if lasting:
        codes.append(dice.choice(LASTING))
    leader = Leader([(dice.choice([0.0, 0.01, 0.5]), code) for code in codes])
    clock = SimpleNamespace(monotonic=lambda: leader.now_s, sleep=leader.sleep)
    monkeypatch.setattr(connection, "time", clock)
    timeout_s = dice.choice([0.0, 1.0, 30.0])
    try:
        found = watermarks(leader, "topic", 0, timeout_s)
    except KafkaException as error:
        last = error.args[0].code()
        assert last == codes[leader.asked - 1]
        if last in LASTING:
            assert leader.asked == len(codes), "no other had ended it"
        else:
            assert leader.now_s + connection._AGAIN_S > timeout_s
    else:
        assert found == (3, 7)
        assert not lasting
        assert leader.asked == len(codes) + 1
    assert leader.now_s <= timeout_s + connection._AGAIN_S

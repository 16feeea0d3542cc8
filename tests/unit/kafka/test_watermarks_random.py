"""Who asks for a partition's ends while its leader changes asks again, as long as there is time."""

from __future__ import annotations

import random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streamydb.kafka import connection, receiving
from streamydb.kafka.connection import is_transient, watermarks
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.receiving import TopicEnds
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
    """Answers after a while: with these errors, then with offsets. Who asks has its clock."""

    def __init__(
        self, dice: random.Random, codes: list[int], asking: ModuleType, patch: pytest.MonkeyPatch
    ) -> None:
        self.answers = [(dice.choice([0.0, 0.01, 0.5]), code) for code in codes]
        self.asked = 0
        self.now_s = 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.sleep)
        patch.setattr(asking, "time", clock)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def get_watermark_offsets(self, _: TopicPartition, timeout: float) -> tuple[int, int]:
        if (code := self._answer(timeout)) is None:
            return 3, 7
        raise KafkaException(KafkaError(code))

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        """Tell an error of the request, or one of a partition."""
        code = self._answer(timeout)
        error = None if code is None else KafkaError(code)
        if error is not None and self.asked % 2:
            raise KafkaException(error)
        return [SimpleNamespace(partition=each.partition, offset=7, error=error) for each in asked]

    def list_topics(self, *_: object, timeout: float) -> None:
        """Tell nothing."""

    def _answer(self, timeout: float) -> int | None:
        self.asked += 1
        if self.asked > len(self.answers):
            return None
        takes_s, code = self.answers[self.asked - 1]
        self.now_s += min(takes_s, timeout)
        return code


@pytest.mark.parametrize("seed", range(seeds(400, 100)))
def test_it_ends_with_offsets_or_with_the_error_that_ends_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"watermarks {seed}")
    codes = dice.choices(PASSING, k=dice.randrange(12))
    lasting = dice.random() < 0.5
    if lasting:
        codes.append(dice.choice(LASTING))
    leader = Leader(dice, codes, connection, monkeypatch)
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


@pytest.mark.parametrize("seed", range(seeds(400, 100)))
def test_the_ends_of_a_topic_are_told_or_who_asks_hears_whether_to_ask_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(f"ends {seed}")
    codes = dice.choices(PASSING, k=dice.randrange(24))
    if dice.random() < 0.5:
        codes.append(dice.choice(LASTING))
    leader = Leader(dice, codes, receiving, monkeypatch)
    monkeypatch.setattr(receiving, "reader", lambda *_: leader)
    try:
        found = TopicEnds({}).look("topic", (2,))
    except KafkaUnavailableError as error:
        assert codes[leader.asked - 1] in LASTING or leader.now_s > receiving.REQUEST_S
        passing, asks_again = codes[leader.asked - 1] in PASSING, is_transient(error)
        assert asks_again or not passing, "the pipeline that asks would end"
    else:
        assert found == {2: 7}
        assert leader.asked == len(codes) + 1
    assert leader.now_s <= receiving.REQUEST_S + 0.5 + receiving._RETRY_S

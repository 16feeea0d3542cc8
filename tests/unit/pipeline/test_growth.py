"""A pipeline stops when the changes are given partitions or made anew under it, and only then."""

from __future__ import annotations

import random
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamydb.pipeline import background
from streamydb.pipeline.background import GrowthWatch
from streamydb.testing.database import wait_for
from tests.support.seeds import seeds

OLD, NEW = "the old one", "the new one"


class Admin:
    """Describes the topic, one answer after the other.

    None: it does not answer; 0 partitions: a broker does not know the topic; -1: nor does it say.
    """

    def __init__(self, answers: list[tuple[str, int] | None]) -> None:
        self.left = answers

    def describe_topics(self, asked: Any, **_: float) -> dict[str, Future[Any]]:
        (topic,) = asked.topic_names
        told: Future[Any] = Future()
        answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if answer is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        topic_id, count = answer
        if count > 0:
            told.set_result(SimpleNamespace(topic_id=topic_id, partitions=[None] * count))
        elif count == 0:
            told.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        else:
            told.set_exception(TimeoutError())
        return {topic: told}


@pytest.mark.parametrize("seed", range(seeds(20)))
def test_changes_that_grow_while_it_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage, and a topic that a broker does not know for a moment, are neither."""
    dice = random.Random(f"growth {seed}")
    begun = dice.randint(1, 5)
    calm = [None, *((OLD, count) for count in (-1, 0, begun))]
    before = [dice.choice(calm) for _ in range(dice.randint(1, 30))]
    last = dice.choice([(OLD, begun + dice.randint(1, 3)), (NEW, dice.randint(1, 6))])
    told: list[str] = []

    def made_anew(topic_id: str) -> str:
        told.append(topic_id)
        return "made anew"

    admin = Admin([*before])
    monkeypatch.setattr(background, "administrator", lambda _: admin)
    monkeypatch.setattr(background, "_GROWTH_S", 0.0)
    with GrowthWatch({}, "bank.changes", (OLD, begun), made_anew) as watch:
        wait_for(lambda: len(admin.left) == 1, "the watch to look")
        assert watch.failure is None
        admin.left = [before[-1], last]
        wait_for(lambda: watch.failure is not None, "the watch to notice")
    grown = f"bank.changes: it began with {begun} partitions and has"
    assert ("made anew" if last[0] == NEW else grown) in str(watch.failure)
    assert told == [NEW] * (last[0] == NEW)

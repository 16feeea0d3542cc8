"""A pipeline stops when the changes are given partitions while it runs, and only then."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamydb.pipeline import growth
from streamydb.pipeline.growth import GrowthWatch
from streamydb.testing.database import wait_for
from tests.support.seeds import seeds


class Admin:
    """Says how many partitions there are, one answer after the other; None: it does not answer."""

    def __init__(self, answers: list[int | None]) -> None:
        self.left = answers

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        count = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if count is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        found = SimpleNamespace(partitions=dict.fromkeys(range(count)))
        return SimpleNamespace(topics={topic: found} if count else {})


@pytest.mark.parametrize("seed", range(seeds(20)))
def test_changes_that_grow_while_it_runs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage, and a topic that a broker does not know for a moment, are no growth."""
    dice = random.Random(f"growth {seed}")
    begun = dice.randint(1, 5)
    before = [dice.choice([None, 0, begun]) for _ in range(dice.randint(1, 30))]
    grown = begun + dice.randint(1, 3)
    admin = Admin([*before])
    monkeypatch.setattr(growth, "administrator", lambda _: admin)
    monkeypatch.setattr(growth, "_INTERVAL_S", 0.0)
    with GrowthWatch({}, "bank.changes", begun) as watch:
        wait_for(lambda: len(admin.left) == 1, "the watch to look")
        assert watch.failure is None
        admin.left = [before[-1], grown]
        wait_for(lambda: watch.failure is not None, "the watch to notice")
    assert f"bank.changes: it began with {begun} partitions and has {grown}" in str(watch.failure)

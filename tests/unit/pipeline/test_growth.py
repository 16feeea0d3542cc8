"""A pipeline stops when the changes are given partitions while it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamydb.pipeline import growth
from streamydb.pipeline.growth import GrowthWatch
from streamydb.testing.database import wait_for


class Admin:
    """Knows one topic; None: it does not answer."""

    def __init__(self, counts: list[int | None]) -> None:
        self.counts = counts

    def list_topics(self, topic: str, timeout: float) -> Any:
        del timeout
        count = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        if count is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        found = SimpleNamespace(partitions=dict.fromkeys(range(count)))
        return SimpleNamespace(topics={topic: found})


def test_changes_that_grow_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage, and a topic that a broker does not know for a moment, are no growth."""
    admin = Admin([4, None, 0, 4, 5])
    monkeypatch.setattr(growth, "administrator", lambda _: admin)
    monkeypatch.setattr(growth, "_INTERVAL_S", 0.0)
    with GrowthWatch({}, "bank.changes", 4) as watch:
        wait_for(lambda: watch.failure is not None, "the watch to notice")
    assert watch.failure is not None
    assert "bank.changes: it began with 4 partitions and has 5" in watch.failure
    assert admin.counts == [5]

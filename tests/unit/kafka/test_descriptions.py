"""What topics there are, when brokers do not know it all at the same time."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource

from streamydb.kafka import admin
from streamydb.kafka.admin import TopicsError, describe_topics


class Broker:
    """Lists topics, and refuses to tell the settings of some of them."""

    def __init__(self, refused: dict[str, int]) -> None:
        self.refused = refused

    def describe_configs(
        self, resources: list[ConfigResource]
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        return {resource: self.answer(resource.name) for resource in resources}

    def answer(self, name: str) -> Future[dict[str, ConfigEntry]]:
        future: Future[dict[str, ConfigEntry]] = Future()
        if name in self.refused:
            future.set_exception(KafkaException(KafkaError(self.refused[name])))
        else:
            future.set_result({"retention.ms": ConfigEntry("retention.ms", "7")})
        return future


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = SimpleNamespace(partitions={0: SimpleNamespace(replicas=[1])})
    topics = {"bank.log": one, "bank.changes": one}
    monkeypatch.setattr(admin, "cluster", lambda _: SimpleNamespace(topics=topics))


@pytest.mark.usefixtures("listed")
def test_a_topic_that_is_listed_but_deleted_does_not_exist() -> None:
    broker: Any = Broker({"bank.changes": KafkaError.UNKNOWN_TOPIC_OR_PART})
    found = describe_topics(broker, ["bank.log", "bank.changes", "bank.results"])
    assert {name: about.settings for name, about in found.items()} == {
        "bank.log": {"retention.ms": "7"}
    }


@pytest.mark.usefixtures("listed")
def test_other_refusals_are_told() -> None:
    broker: Any = Broker({"bank.changes": KafkaError.TOPIC_AUTHORIZATION_FAILED})
    with pytest.raises(TopicsError, match="refused to describe"):
        describe_topics(broker, ["bank.log", "bank.changes"])

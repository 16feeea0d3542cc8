"""What topics there are and how they are, when brokers do not know it all at the same time."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource, ConfigSource

from streamydb.kafka import admin
from streamydb.kafka.admin import TopicsError, change_settings, describe_topics


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


class LateBroker(Broker):
    """Shows the new settings when it has been asked some times; it has never heard of others."""

    def __init__(self, settings: dict[str, ConfigEntry], late: int) -> None:
        super().__init__({})
        self.settings, self.late = settings, late
        self.taken: dict[str, list[tuple[str, str]]] = {}

    def incremental_alter_configs(
        self, changes: list[ConfigResource]
    ) -> dict[ConfigResource, Future[None]]:
        given = {
            each.name: [(entry.name, entry.incremental_operation.name) for entry in
                        each.incremental_configs]
            for each in changes
        }  # fmt: skip
        self.taken |= given
        done: Future[None] = Future()
        done.set_result(None)
        return dict.fromkeys(changes, done)

    def answer(self, _: str) -> Future[dict[str, ConfigEntry]]:
        self.late -= 1
        future: Future[dict[str, ConfigEntry]] = Future()
        future.set_result({} if self.late >= 0 else self.settings)
        return future


def own(name: str, value: str) -> ConfigEntry:
    """A setting of a topic, as confluent-kafka gives it: the source is a number."""
    return ConfigEntry(name, value, source=ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


@pytest.mark.parametrize("late", range(4))
def test_settings_are_changed_when_a_broker_shows_them(late: int) -> None:
    shown = {
        "a": own("a", "1"), "b": ConfigEntry("b", "9", source=ConfigSource.DEFAULT_CONFIG.value),
    }  # fmt: skip
    broker = LateBroker(shown, late)
    change_settings(broker, {"log": {"a": "1", "b": None}})  # type: ignore[arg-type]
    assert broker.late < 0
    assert broker.taken == {"log": [("a", "SET"), ("b", "DELETE")]}


@pytest.mark.parametrize("value", ["2", None])
def test_settings_that_no_broker_shows_are_told(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "TIMEOUT_S", 0.1)
    broker: Any = LateBroker({"a": own("a", "1")}, 0)
    with pytest.raises(TopicsError, match="the new settings of log; is the cluster healthy"):
        change_settings(broker, {"log": {"a": value}})

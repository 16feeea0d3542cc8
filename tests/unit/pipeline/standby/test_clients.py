"""Pipelines that go on make no clients of Kafka: each costs a connection and five requests."""

from __future__ import annotations

import random

import pytest

from streamydb.kafka import clients
from tests.support.memory_kafka import MemoryKafka
from tests.unit.pipeline.standby.test_epochs_random import NAMES, Running


def test_a_leader_and_a_follower_make_no_clients_while_they_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = MemoryKafka(random.Random("clients"))
    kafka.install(monkeypatch)
    for topic in (*NAMES.shared(), NAMES.rulings, NAMES.feedback_of("")):
        kafka.create(topic)
    told = kafka.create(NAMES.feedback_of("b"))[0]
    pipelines = Running("", "a 0"), Running("b", "b 0")
    made: list[object] = []
    reader = clients.KafkaReader

    def count(given: dict[str, object]) -> clients.KafkaReader:
        made.append(given)
        return reader(given)

    roles = 0
    for resolved in range(1, 60):
        if resolved == 20:
            monkeypatch.setattr(clients, "KafkaReader", count)
            roles = told.high
        for pipeline in pipelines:
            pipeline.turn(resolved)
    assert [pipeline.coordinator.leads for pipeline in pipelines] == [True, False]
    assert told.high > roles + 5, "it was told roles"
    assert not made

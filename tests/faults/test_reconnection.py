"""Clients of Kafka after restarts of the only broker: each of them comes back, every time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition

from streamydb.kafka import create
from streamydb.kafka.clients import FOLLOWING, KafkaReader, reader
from streamydb.kafka.names import TopicNames
from streamydb.local.broker import EmbeddedBroker
from streamydb.settings import Settings

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600), pytest.mark.long]

_READERS = 20
_RESTARTS = 4


@contextmanager
def _following(settings: Settings) -> Iterator[list[KafkaReader]]:
    """Readers of the log, each in a thread of its own."""
    topic, stop = TopicNames(settings.database).transactions, threading.Event()
    readers = [reader(settings.client_config(), FOLLOWING) for _ in range(_READERS)]

    def follow(one: KafkaReader) -> None:
        one.assign([TopicPartition(topic, 0, 0)])
        while not stop.is_set():
            one.poll(0.2)
        one.close()

    with ThreadPoolExecutor(_READERS) as pool:
        ended = [pool.submit(follow, one) for one in readers]
        try:
            yield readers
        finally:
            stop.set()
        for each in ended:
            each.result()


@pytest.mark.fault(4, "clean restarts of the only broker: twenty readers all come back")
def test_all_readers_come_back(tmp_path: Path, injected: Callable[..., None]) -> None:
    """A broker that goes answers that the cluster has no broker; some take it at its word."""
    with EmbeddedBroker(tmp_path, heap_mb=384) as broker:
        settings = Settings(database="db", bootstrap=broker.bootstrap)
        create(settings.client_config(), settings.database)
        topic = TopicNames(settings.database).transactions
        with _following(settings) as readers:
            for number in range(_RESTARTS):
                broker.stop()
                broker.start()
                lost = []
                for place, each in enumerate(readers):
                    try:
                        each.list_topics(topic, timeout=20)
                    except KafkaException:
                        lost.append(place)
                assert not lost, f"after restart {number + 1} these never came back: {lost}"
                injected(1)

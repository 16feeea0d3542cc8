"""The kinds of clients of Kafka: all read uncommitted, none loses or doubles a record."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from streamydb.kafka import clients
from streamydb.kafka.clients import Kind
from streamydb.kafka.connection import ConnectionState
from streamydb.local.launcher import wait_until

CONNECTION = {"bootstrap.servers": "127.0.0.1:1"}
READERS = [
    clients.FOLLOWING, clients.NEXT_RECORDS, clients.WHOLE_TOPICS, clients.CHANGES, clients.SHARED,
]  # fmt: skip
APPENDERS = [clients.LOG, clients.BULK, clients.MESSAGES]
REAL: list[Any] = [clients.KafkaReader, clients.KafkaAppender, clients.KafkaAdministrator]


class Given:
    """Stands in for a client; keeps what it is given."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.connections = ConnectionState(config)
        self.expected: list[str] = []

    def expect(self, topic: str) -> None:
        self.expected.append(topic)


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client is made, but by a test that takes one of `REAL`."""
    for name in ("KafkaReader", "KafkaAppender", "KafkaAdministrator"):
        monkeypatch.setattr(clients, name, Given)


def config(client: Any) -> Mapping[str, Any]:
    assert isinstance(client, Given)
    return client.config


@pytest.mark.parametrize("kind", READERS)
def test_every_reader_reads_uncommitted_and_commits_nothing(kind: Kind) -> None:
    found = config(clients.reader(CONNECTION, kind, eof=True))
    assert found["isolation.level"] == "read_uncommitted"
    assert found["enable.auto.commit"] is False
    assert found["enable.partition.eof"] is True
    assert found["auto.offset.reset"] == ("error" if kind is clients.CHANGES else "earliest")
    assert config(clients.reader(CONNECTION, kind))["enable.partition.eof"] is False


def test_what_a_connection_names_wins_over_the_kind() -> None:
    own = {**CONNECTION, "queued.min.messages": "1"}
    assert config(clients.reader(own, clients.WHOLE_TOPICS))["queued.min.messages"] == "1"


@pytest.mark.parametrize("kind", APPENDERS)
def test_every_appender_is_idempotent_and_waits_for_all(kind: Kind) -> None:
    found = config(clients.appender(CONNECTION, {**kind, "message.timeout.ms": 7}))
    assert (found["acks"], found["enable.idempotence"]) == ("all", True)
    assert found["message.timeout.ms"] == 7


def test_errors_of_a_readers_connections_are_told() -> None:
    told: list[Any] = []
    found = clients.reader(CONNECTION, clients.SHARED, on_error=told.append)
    assert found.connections.also is not None
    found.connections.also("an error")
    assert told == ["an error"]


def test_an_appender_expects_the_topics_that_it_is_for() -> None:
    found = clients.appender(CONNECTION, clients.MESSAGES, "a", "b")
    assert isinstance(found, Given)
    assert found.expected == ["a", "b"]


def test_nobody_waits_until_a_reader_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of librdkafka's threads takes up to a second."""
    begun, may_end = threading.Event(), threading.Event()

    def close(_: object) -> None:
        begun.set()
        may_end.wait(30)

    monkeypatch.setattr(clients._Client, "close", close, raising=False)
    consumer = REAL[0]({**CONNECTION, "group.id": "g"})
    consumer.close()
    assert begun.wait(30)
    assert not may_end.is_set()
    may_end.set()


@pytest.mark.parametrize("kind", [1, 2])
def test_nobody_waits_until_an_appender_has_ended(
    kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, may_end = threading.Event(), threading.Event()

    def end(_: object) -> None:
        let_go.set()
        may_end.wait(30)

    monkeypatch.setattr(clients, "_let_go", end)
    client = REAL[kind](CONNECTION)
    gone = weakref.ref(client)
    del client
    assert let_go.wait(30)
    assert gone() is not None, "another thread holds it, and waits for its end"
    may_end.set()
    assert wait_until(lambda: gone() is None, 30)


DROPPING = """
import gc, os, time
from streamydb.kafka import clients

class Ring:
    pass

gc.set_threshold(20, 1, 1)  # garbage is collected in whichever thread makes some
for each in range(500):
    ring = Ring()
    ring.itself, ring.client = ring, clients.administrator({"bootstrap.servers": "127.0.0.1:1"})
    if each % 2:
        ring.client.owner = ring
    ring.answer = ring.client.list_consumer_groups(request_timeout=0.05)
    del ring
    time.sleep(0.01)
os._exit(0)  # answers may be under way, and confluent's client is not made for these at an end
"""


def test_clients_in_cycles_of_garbage_end_in_no_thread_of_librdkafka() -> None:
    """That aborts the process: a thread of it calls back, and Python collects garbage there."""
    done = subprocess.run([sys.executable, "-c", DROPPING], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr[-2_000:]


def test_records_are_deleted_without_freeing_the_list_of_places() -> None:
    """Confluent's client gives up one reference too many: one object is freed, another damaged."""
    admin = REAL[2](CONNECTION)
    places = [TopicPartition("topic", 0, 1)]
    held = [places]
    before = sys.getrefcount(places)
    for _ in range(3):
        assert set(admin.delete_records(places, request_timeout=0.1)) == set(places)
    assert sys.getrefcount(places) == before
    assert held == [[TopicPartition("topic", 0, 1)]]


def test_administration_gives_up_a_request_after_ten_seconds() -> None:
    assert config(clients.administrator(CONNECTION))["socket.timeout.ms"] == 10_000

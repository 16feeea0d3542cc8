"""The embedded broker on real Kafka: start, stop, kill, restart, and finding it again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamydb import kafka
from streamydb.kafka.connection import watermarks
from streamydb.local.broker import (
    BrokerError,
    EmbeddedBroker,
    answers,
    find_broker,
    free_port,
    start_detached,
    stop_detached,
)
from streamydb.local.broker.embedded import write_record

MakeBroker = Callable[..., EmbeddedBroker]


def create(bootstrap: str, topic: str) -> None:
    """Create a topic with one partition."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def topics(bootstrap: str) -> set[str]:
    """Return the names of all topics."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    return set(client.list_topics(timeout=30).topics)


def append(bootstrap: str, topic: str, count: int) -> None:
    """Append `count` records and wait until all are acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(60) == 0


@pytest.mark.long
def test_a_killed_broker_leaves_no_libraries_behind_for_long(private_broker: MakeBroker) -> None:
    """It unpacks one for each kind of compression; the next start removes it."""
    broker = private_broker().start()
    folder = broker.home / "broker" / "tmp"
    create(broker.bootstrap, "packed")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "lz4"})
    producer.produce("packed", b"a" * 10_000)
    assert producer.flush(60) == 0
    broker.kill()
    left = {path.name for path in folder.iterdir()}
    assert any(name.startswith("liblz4") for name in left), left
    broker.start()
    assert not left & {path.name for path in folder.iterdir()}


def high_watermark(bootstrap: str, topic: str) -> int:
    """Return the offset after the last record of partition 0."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "t"})
    try:
        _, high = watermarks(reader, topic, 0, 30)
    finally:
        reader.close()
    return high


def test_records_survive_kill_and_restart_on_the_same_port(private_broker: MakeBroker) -> None:
    """So does another object on the same home."""
    broker = private_broker().start()
    address = broker.bootstrap
    create(address, "kept")
    append(address, "kept", 1000)
    broker.kill()
    assert not broker.alive
    assert not answers(address, timeout_s=0.5)
    another = private_broker()
    assert another.port == broker.port
    assert another.start().bootstrap == address
    assert high_watermark(address, "kept") == 1000
    another.restart()
    assert another.bootstrap == address
    assert high_watermark(address, "kept") == 1000


def test_topics_are_not_created_by_accident(bootstrap: str, database: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.list_topics(topic=database, timeout=10)
    assert database not in topics(bootstrap)


@pytest.mark.fault(18, "a broker with auto-creation", "warned of with the fix")
def test_own_properties_win_in_a_process_group_of_its_own(
    private_broker: MakeBroker, tmp_path: Path, database: str
) -> None:
    """A database is warned of this one. A process that inherited the broker's id is left alone."""
    broker = private_broker(properties={"auto.create.topics.enable": "true"}).start()
    append(broker.bootstrap, "by-accident", 1)
    assert "by-accident" in topics(broker.bootstrap)
    assert os.getpgid(broker.record.pid) == broker.record.pid != os.getpgid(0)
    client = {"bootstrap.servers": broker.bootstrap}
    kafka.create(client, database)
    (problem,) = kafka.check(client, database)
    assert problem.severity == "warning"
    assert problem.fix.startswith("auto.create.topics.enable=false")
    leaves_a_stranger_alone(broker, tmp_path / "x")


def test_a_bad_property_is_told_with_the_log(private_broker: MakeBroker) -> None:
    broker = private_broker(properties={"log.retention.ms": "soon"})
    with pytest.raises(BrokerError, match=r"log\.retention\.ms"):
        broker.start()
    assert not broker.alive


def test_a_taken_port_is_told_and_nothing_is_left_running(private_broker: MakeBroker) -> None:
    with socket.socket() as other:
        port = free_port()
        other.bind(("127.0.0.1", port))
        other.listen()
        broker = private_broker(port=port)
        with pytest.raises(BrokerError, match=f"Port {port} .* taken"):
            broker.start()
    assert not broker.alive


def test_detached_outlives_its_starter_and_is_found_and_stopped(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from streamydb.local.broker import start_detached\n"
        "print(start_detached(Path(sys.argv[1]), heap_mb=512).bootstrap)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    try:
        found = find_broker(tmp_path)
        assert found is not None
        assert found.bootstrap == done.stdout.strip()
        assert answers(found.bootstrap)
        assert start_detached(tmp_path) == found
        with pytest.raises(BrokerError, match="runs on"):
            start_detached(tmp_path, port=free_port())
    finally:
        assert stop_detached(tmp_path)
    assert find_broker(tmp_path) is None
    assert not psutil.pid_exists(found.pid) or not answers(found.bootstrap, timeout_s=0.5)
    assert not stop_detached(tmp_path)


def leaves_a_stranger_alone(broker: EmbeddedBroker, home: Path) -> None:
    """A process that inherited the id of a broker is not taken for it, and not stopped."""
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        write_record(home, replace(broker.record, pid=stranger.pid))
        assert find_broker(home) is None
        assert not stop_detached(home)
        assert stranger.poll() is None
    finally:
        stranger.send_signal(signal.SIGKILL)
        stranger.communicate()

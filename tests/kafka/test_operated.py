"""What is run and watched on a real broker: the log's gauges, `streamydb broker`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamydb.kafka import create
from streamydb.kafka.producer import Producer
from streamydb.local.broker import answers, free_port
from streamydb.pipeline.background import LogSampler
from streamydb.pipeline.markers import MarkerLoop
from streamydb.settings import Settings
from streamydb.testing.database import wait_for


def test_the_gauges_of_the_log(bootstrap: str, database: str) -> None:
    settings = Settings(bootstrap=bootstrap, database=database, metrics_port=1)
    create(settings.client_config(), database, partitions=2)
    registry = CollectorRegistry()
    began_s = time.time()
    with Producer(settings) as producer:
        for number in range(5):
            producer.append({"id": f"t{number}", "updates": []})
    sampler = LogSampler(settings, registry, MarkerLoop(settings))
    assert registry.get_sample_value("streamydb_kafka_answers") == 0
    with sampler:
        wait_for(lambda: registry.get_sample_value("streamydb_kafka_answers") == 1, "a sample", 60)
    assert registry.get_sample_value("streamydb_log_end_records") == 5
    assert registry.get_sample_value("streamydb_dead_letters") == 0
    newest_s = registry.get_sample_value("streamydb_log_newest_timestamp_seconds") or 0
    assert began_s - 1 < newest_s < time.time() + 1
    ahead_s = registry.get_sample_value("streamydb_log_ahead_seconds")
    assert ahead_s is not None
    assert ahead_s <= 1


def test_nothing_is_asked_while_nobody_looks(bootstrap: str, database: str) -> None:
    settings = Settings(bootstrap=bootstrap, database=database)
    registry = CollectorRegistry()
    with LogSampler(settings, registry, MarkerLoop(settings)) as sampler:
        assert not sampler._thread.is_alive()


@pytest.mark.long
@pytest.mark.parametrize(
    ("host", "advertise", "reached"),
    [
        ("0.0.0.0", ["--advertise", "127.0.0.1:{}"], "127.0.0.1:{}"),  # noqa: S104
        ("127.0.0.2", [], "127.0.0.2:{}"),
    ],
)
def test_the_broker_in_the_foreground(
    host: str, advertise: list[str], reached: str, tmp_path: Path
) -> None:
    """With properties of one's own; twice, so that the second finds the data of the first."""
    port = free_port()
    address = reached.format(port)
    properties = tmp_path / "more.properties"
    properties.write_text("# ours\nnum.io.threads=3\nmessage.max.bytes=2000000\n")
    command = [
        sys.executable, "-m", "streamydb.cli", "broker", "--home", str(tmp_path / "home"),
        "--host", host, "--port", str(port), *(word.format(port) for word in advertise),
        "--properties", str(properties), "--heap-mb", "512",
    ]  # fmt: skip
    for turn in range(2):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, env=dict(os.environ))
        try:
            wait_for(lambda: answers(address), "the broker", 90)
            create({"bootstrap.servers": address}, "bank")
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=90)
        assert process.returncode == 0, (turn, said)
        assert b"stopped" in said
    written = (tmp_path / "home" / "broker" / "server.properties").read_text()
    assert "num.io.threads=3\n" in written

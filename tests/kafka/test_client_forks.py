"""A client of Kafka on both sides of a fork: each process has its own handles and threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

from streamydb.kafka import TopicNames, create
from streamydb.read_model import ReadModel
from streamydb.settings import Settings
from streamydb.verify.oracle.core import Oracle
from tests.support.sources import PYTHONPATH

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def executing(settings: Settings) -> Iterator[None]:
    """Give each transaction of the log its verdict, by the oracle."""
    names, ended = TopicNames(settings.database), threading.Event()
    config = dict(settings.client_config())

    def execute() -> None:
        producer, oracle = confluent_kafka.Producer(config), Oracle(settings.database)
        reader = confluent_kafka.Consumer({**config, "group.id": "none"})
        reader.assign([confluent_kafka.TopicPartition(names.transactions, 0, 0)])
        while not ended.is_set():
            message = reader.poll(0.05)
            if message is None or message.error():
                continue
            stamp, offset = message.timestamp()[1], message.offset() or 0
            for output in oracle.apply(message.value() or b"", 0, offset, stamp):
                if output.topic == "results":
                    producer.produce(names.results, output.value, key=output.key)
            producer.flush(60)
        reader.close()

    thread = threading.Thread(target=execute)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_all_that_write_at_one_instant_get_their_own_verdicts(
    bootstrap: str, database: str, tmp_path: Path
) -> None:
    settings = Settings(database=database, bootstrap=bootstrap)
    create(settings.client_config(), database)
    ReadModel.open(tmp_path, database, write=True).close()
    url = f"kafka://{bootstrap}/{database}?read_model={tmp_path}"
    with executing(settings):
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.forked", "direct", url], cwd=ROOT, text=True,
            capture_output=True, timeout=200, check=False,
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []

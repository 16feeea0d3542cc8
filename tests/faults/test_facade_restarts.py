"""A real facade that is killed in the middle of calls; Kafka transactions in a real log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest

import streamydb
from streamydb.client import Client, View
from streamydb.kafka import TopicNames
from streamydb.testing.database import wait_for
from tests.support.serving import Served

KILLS = 3


def increment(view: View) -> int:
    value: int = view.get("n", 0) + 1
    view.put("n", value)
    return value


def _has(client: Client, key: str) -> bool:
    return bool(client.get(key) == 1)


def append_in_a_transaction(db: Served, *values: bytes, commit: bool) -> None:
    """Append records in a Kafka transaction; wait for its end in the log."""
    config = {**db.settings.client_config(), "transactional.id": "t", "linger.ms": 0}
    producer = confluent_kafka.Producer(config)
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(TopicNames(db.name).transactions, value)
    assert producer.flush(60) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(60)


@pytest.mark.long
@pytest.mark.fault(46, "SIGKILL of a facade in the middle of a client's calls, 3 restarts")
@pytest.mark.fault(39, "Kafka transactions, committed and aborted, at the end of a real log")
def test_a_client_outlasts_restarts_and_reads_past_kafkas_transactions(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    taken: list[int] = []
    added = [0]
    stop = threading.Event()
    with Served(tmp_path, facades=1) as db, streamydb.connect(db.urls[0], timeout_s=60) as client:

        def work() -> None:
            while not stop.is_set():
                taken.append(client.run(increment))
                client.atomic().add("m", 1).commit()
                added[0] += 1

        def progressed() -> None:
            begun = added[0]
            wait_for(lambda: not worker.is_alive() or added[0] > begun + 3, "more calls")
            assert worker.is_alive(), "a call failed"

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for _ in range(KILLS):
                progressed()
                db.facades[0].kill()
                db.facades[0].start()
                injected(1, 46)
            progressed()
        finally:
            stop.set()
            worker.join(120)
        assert taken == list(range(1, len(taken) + 1))
        assert (client.get("n"), client.get("m")) == (len(taken), added[0])

        for commit, key in ((True, "kept"), (False, "kept-too")):
            txn = b'{"id": "%s", "updates": [{"op": "put", "key": "%s", "value": 1}]}'
            name = key.encode()
            append_in_a_transaction(db, txn % (name, name), commit=commit)
            injected(1, 39)
            begun = time.monotonic()
            wait_for(partial(_has, client, key), "a strong read of it")
            for _ in range(3):
                assert client.get("n") == len(taken)
            assert time.monotonic() - begun < 9, "a read that is not answered takes ten seconds"
        db.assert_serial()

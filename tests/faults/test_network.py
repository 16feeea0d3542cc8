"""The network between the pipeline and its broker is cut, and what lost acknowledgements leave."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer

from streamydb.kafka import TopicNames
from streamydb.local.broker import free_port
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import resolved, results_of
from tests.support.network import Proxy, proxied_broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CUT_S = 75.0
"""Longer than Kafka's clients wait for one request (30 s), and than they idle between attempts."""


@contextmanager
def behind_a_proxy(folder: Path, options: list[str]) -> Iterator[tuple[Database, Proxy]]:
    """A database whose pipeline reaches its broker through a proxy, and everybody else does not."""
    db = Database(folder, options=options)
    db.broker, proxy = proxied_broker(folder / "home")
    db.options += ["--bootstrap", f"127.0.0.1:{proxy.port}"]
    with proxy, db:
        yield db, proxy


def kafka_answers(port: int) -> bool:
    """What the pipeline's metrics say of Kafka."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
    return "\nstreamydb_kafka_answers 1.0" in text


@pytest.mark.long
@pytest.mark.parametrize("directions", [(), ("to_broker",), ("to_client",)])
@pytest.mark.fault(
    5, "a proxy holds back all data for 75 s, in both directions and in one",
    "Kafka's silence is in the metrics; goes on without a restart; equal to the serial replay",
)  # fmt: skip
def test_the_network_is_cut(tmp_path: Path, directions: tuple[str, ...]) -> None:
    port = free_port()
    with behind_a_proxy(tmp_path, ["--metrics-port", str(port)]) as (db, proxy):
        db.load(transfers(200))
        assert db.assert_serial().ok
        pid = db.processes()[0].pid
        wait_for(lambda: kafka_answers(port), "an answer of Kafka")
        proxy.cut(*directions)
        db.load(transfers(200, seed=2))
        wait_for(lambda: not kafka_answers(port), "Kafka's silence in the metrics")
        threading.Event().wait(CUT_S)
        proxy.heal()
        db.load(transfers(100, seed=3))
        assert db.assert_serial().ok
        wait_for(lambda: kafka_answers(port), "an answer of Kafka")
        assert (db.status().state, db.processes()[0].pid) == ("running", pid)


@pytest.mark.long
@pytest.mark.fault(
    5, "all connections reset, again and again, and data delayed by 0.2 s",
    "goes on without a restart; equal to the serial replay",
)  # fmt: skip
def test_connections_are_reset(tmp_path: Path, injected: Callable[..., None]) -> None:
    with behind_a_proxy(tmp_path, []) as (db, proxy):
        pid = db.processes()[0].pid
        sent = 0
        for number in range(20):
            sent += db.load(transfers(30, seed=number))
            proxy.delay(0.2 if number % 2 else 0.0)
            resolved(db, sent - 10)
            proxy.reset()
        proxy.heal()
        assert db.assert_serial().ok
        assert proxy.resets > 20
        injected(proxy.resets)
        assert (db.status().state, db.processes()[0].pid) == ("running", pid)


def lose_acknowledgements(proxy: Proxy, topic: str, values: list[bytes], count: int) -> int:
    """Append while acknowledgements are lost; a plain producer sends again. How many were lost."""
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}", "enable.idempotence": "false",
            "acks": "all", "retries": "100", "retry.backoff.ms": "50", "log_level": 0,
            "client.id": "lossy",
        }
    )  # fmt: skip
    told: list[object] = []
    for value in values:
        proxy.lose_acknowledgements(count, "lossy")
        producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(60) == 0
        assert proxy.losing == 0
    assert told == [None] * len(values)
    return len(values) * count


@pytest.mark.long
@pytest.mark.fault(
    9, "a proxy loses the acknowledgements of a producer that is not idempotent",
    "the log has it several times, it is applied once; equal to the serial replay",
)  # fmt: skip
def test_lost_acknowledgements_double_records(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    with behind_a_proxy(tmp_path, []) as (db, proxy):
        values = [
            json.dumps({"id": f"pay-{n}", "updates": [{"op": "add", "key": "a", "by": 1}]}).encode()
            for n in range(5)
        ]
        injected(lose_acknowledgements(proxy, TopicNames(db.name).transactions, values, 3))
        db.load([{"id": "pay-1", "updates": [{"op": "add", "key": "a", "by": 100}]}])
        db.load([{"id": "end", "reads": ["a"]}])
        assert db.assert_serial().transactions == 5 * (1 + 3) + 2
        found = results_of(db)
        assert found[-1]["reads"] == {"a": 5}
        first = {r["id"]: r["seq"] for r in reversed(found) if r["status"] == "committed"}
        again = [r for r in found if "duplicate" in r]
        assert len(again) == 5 * 3
        assert all(r["seq"] == first[r["id"]] for r in again)
        assert [r["code"] for r in found if r["status"] == "rejected"] == ["id-reused"]

"""Brokers: restarts, a cluster that changes its leader, clocks that jump, zombie producers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from streamydb.kafka import TopicNames, grow
from streamydb.local.broker import free_port
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.clustered import Clustered, another_leads
from tests.support.faulty import load, progressed, results_of
from tests.support.machine import Clock, has_compiler

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.long]

HOUR_MS = 3_600_000


@pytest.mark.fault(4, "clean restarts of the broker under load")
def test_clean_restarts_of_the_broker(tmp_path: Path, injected: Callable[..., None]) -> None:
    with Database(tmp_path) as db, load(db, 1):
        driver = db.processes()[0].pid
        for _round in range(3):
            progressed(db, 100)
            db.broker.restart()
            injected(1)
        progressed(db, 100)
        assert db.assert_serial().ok
        assert db.processes()[0].pid == driver


@pytest.mark.fault(
    4, "three brokers, the log's leader killed, again and again, under load",
    "another leads, nothing that was acknowledged is lost; equal to the serial replay",
)  # fmt: skip
def test_the_leader_changes(tmp_path: Path, injected: Callable[..., None]) -> None:
    with Clustered(tmp_path) as db, load(db, 1):
        driver = db.processes()[0].pid
        progressed(db, 100)
        for _round in range(3):
            leader = db.leader()
            db.brokers[leader].kill()
            injected(1)
            another_leads(db, leader)
            progressed(db, 200)
            db.start_brokers()
            progressed(db, 50)
        assert db.assert_serial().ok
        assert db.processes()[0].pid == driver


@pytest.mark.skipif(not has_compiler(), reason="the clock needs a C compiler")
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.fault(
    6, "the broker's clock goes an hour ahead, and back, twice, under load",
    "verdicts go on at once, the skew is in the metrics; equal to the serial replay",
)  # fmt: skip
def test_the_clock_of_the_broker_jumps(
    tmp_path: Path, partitions: int, injected: Callable[..., None]
) -> None:
    clock, port = Clock(tmp_path / "clock"), free_port()

    def ahead() -> float:
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
        return float(text.partition("\nstreamydb_log_ahead_seconds ")[2].partition("\n")[0])

    made = Database(tmp_path, partitions=partitions, options=["--metrics-port", str(port)])
    with clock.preloaded():
        made.broker.start()  # and nobody else
    with made as db:
        with load(db, 1):
            progressed(db, 100)
            for jump in (HOUR_MS, 0, -HOUR_MS, 0):
                clock.jump(jump)
                injected(1)
                if jump > 0:
                    wait_for(lambda: ahead() > 3_000, "the skew in the metrics")
                for partition in range(partitions):  # one alone is ahead, then the other
                    db.load(transfers(20, seed=partition, prefix=f"jump{jump}-"), partition)
                    progressed(db, 100)
        results = sorted(results_of(db), key=lambda result: int(result["seq"]))
        times = [result["ts_ms"] for result in results if "duplicate" not in result]
        assert times == sorted(times)
        assert db.assert_serial().ok


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.fault(
    17, "partitions added to the log under load, twice",
    "they join the order; equal to the serial replay",
)  # fmt: skip
def test_partitions_are_added_under_load(tmp_path: Path, partitions: int) -> None:
    with Database(tmp_path, partitions=partitions) as db:
        with load(db, 1):
            progressed(db, 100)
            for more in (1, 2):
                grow(db.settings.client_config(), db.name, partitions + more)
                takes_part(db, partitions + more - 1)
                progressed(db, 100)
        assert db.assert_serial().ok


def takes_part(db: Database, partition: int) -> None:
    """Wait for results of transactions that lie in a partition of the log."""

    def has_some() -> bool:
        return any(found["source"]["partition"] == partition for found in results_of(db))

    wait_for(has_some, "results of the new partition")


def zombie(db: Database, name: str) -> list[str]:
    """Half a Kafka transaction, whose producer is fenced by another; the ids in both."""
    topic = TopicNames(db.name).transactions
    config: dict[str, str | int] = {**db.settings.client_config()}
    config |= {"transactional.id": name, "log_level": 0}
    first, second = Producer(config), Producer(config)
    for producer, who in ((first, "zombie"), (second, "successor")):
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(3):
            update = {"op": "add", "key": name, "by": 1}
            record = {"id": f"{name}-{who}-{number}", "updates": [update], "reads": [name]}
            producer.produce(topic, json.dumps(record).encode())
        assert producer.flush(30) == 0
    second.commit_transaction(60)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(60)
    assert caught.value.args[0].code() == KafkaError._FENCED
    return [f"{name}-{who}-{number}" for who in ("zombie", "successor") for number in range(3)]


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.fault(
    29, "a producer is fenced within a Kafka transaction, its records are aborted",
    "what lies in the log is executed, gaps of control records are passed; equal to the "
    "serial replay",
)  # fmt: skip
def test_a_zombie_producer_is_fenced(
    tmp_path: Path, partitions: int, injected: Callable[..., None]
) -> None:
    with Database(tmp_path, partitions=partitions) as db:
        with load(db, 1):
            sent = [one for number in range(5) for one in zombie(db, f"z{number}")]
        injected(5)
        assert db.assert_serial().ok
        committed = {r["id"] for r in results_of(db) if r["status"] == "committed"}
        assert set(sent) <= committed
        db.kill_pipeline()  # the end of a partition is a control record
        zombie(db, "last")
        db.start_pipeline()
        db.load(transfers(20, seed=99))
        assert db.assert_serial().ok

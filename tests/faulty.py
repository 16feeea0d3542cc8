"""What tests of faults share: results as they lie in Kafka, load in the background."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, suppress
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from streamydb.testing import Database, TestingError, wait_for
from streamydb.topics import TopicNames
from tests.bank import appending, transfers


def load(db: Database, seed: int, until: int = 100_000) -> AbstractContextManager[None]:
    """Append transfers in the background while the body runs."""
    return appending(lambda part: db.load(transfers(40, seed=seed * 1000 + part)), range(until))


def progressed(db: Database, by: int) -> None:
    """Wait until ``by`` more transactions have been released."""
    begun = db.status().seq or 0
    wait_for(lambda: (db.status().seq or 0) >= begun + by, f"{by} more transactions")


def resolved(db: Database, seq: int) -> None:
    """Wait until everything up to a seq is resolved."""
    wait_for(lambda: (db.status().resolved or 0) >= seq, f"seq {seq} resolved")


def records_of(db: Database, topic: str, partition: int = 0) -> list[bytes]:
    """All values that lie in a partition."""
    config = {"bootstrap.servers": db.broker.bootstrap, "group.id": "faulty"}
    consumer = Consumer({**config, "isolation.level": "read_uncommitted"})
    try:
        place = TopicPartition(topic, partition)
        low, high = consumer.get_watermark_offsets(place, timeout=30)
        place.offset = low
        consumer.assign([place])
        found: list[bytes] = []
        while messages := consumer.consume(min(10_000, max(1, high - low)), timeout=5):
            found += [message.value() or b"" for message in messages]
            if (messages[-1].offset() or 0) >= high - 1:
                break
        return found
    finally:
        consumer.close()


def results_of(db: Database) -> list[dict[str, Any]]:
    """All results of a database with one shard, as they came."""
    return [json.loads(value) for value in records_of(db, TopicNames(db.name).results)]


def fails(db: Database) -> str:
    """Start a pipeline that cannot run; what its status says."""
    with suppress(TestingError):
        db.start_pipeline()
    wait_for(lambda: db.status().state == "failed", "a failure", 100)
    db.kill_pipeline()
    return db.status().error or ""

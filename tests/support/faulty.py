"""What tests of faults share: results as they lie in Kafka, load in the background, poison."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.local.launcher import wait_until
from streamydb.testing.database import Database, TestingError, wait_for
from tests.support.bank import appending, transfers

POISON = """
from streamydb import records
from streamydb.txn_processor import interpreter

def execute(txn, *rest, sound=interpreter.execute):
    if txn.id.startswith("poison"):
        raise LookupError(txn.id)
    return sound(txn, *rest)

def decode(raw, *, sound=records.decode, **how):
    if raw is not None and b"unreadable" in raw:
        raise ArithmeticError(raw)
    return sound(raw, **how)

interpreter.execute, records.decode = execute, decode
"""

_WRITE = {"op": "append", "key": "log", "value": 1}
POISONED = [
    *({"id": f"poison{i}", "updates": [_WRITE]} for i in range(3)),
    {"id": "p", "updates": [{**_WRITE, "value": "unreadable"}]},
]
"""Four transactions on which a poisoned pipeline fails; one of them it cannot even read."""

_AT_ONCE = 40
_BACKLOG = 400
_PATIENCE_S = 1.0
"""How many transfers are appended at once, how far they run ahead, and how long one waits then.

Whatever lies in the log when a test ends must be executed before it can be judged.
"""

TRIED_TWICE = "local[2,2]"
"""Spark tries a task twice, not four times; each try of a poisoned one is a new Python."""


def load(
    db: Database, seed: int, until: int = 100_000, *, refusals: bool = False
) -> AbstractContextManager[None]:
    """Append transfers in the background while the body runs; hardly faster than they go.

    ``refusals``: Kafka may refuse some.
    """
    refused = (TestingError,) if refusals else ()
    begun, appended = db.status().seq or 0, 0

    def append(part: int) -> None:
        nonlocal appended
        wait_until(lambda: begun + appended - (db.status().seq or 0) < _BACKLOG, _PATIENCE_S)
        with suppress(*refused):
            appended += db.load(transfers(_AT_ONCE, seed=seed * 1000 + part))

    return appending(append, range(until))


def progressed(db: Database, by: int) -> None:
    """Wait until ``by`` more transactions have been released."""
    begun = db.status().seq or 0
    wait_for(lambda: (db.status().seq or 0) >= begun + by, f"{by} more transactions")


def resolved(db: Database, seq: int, timeout_s: float = 120.0) -> None:
    """Wait until everything up to a seq is resolved."""
    wait_for(lambda: (db.status().resolved or 0) >= seq, f"seq {seq} resolved", timeout_s)


def records_of(db: Database, topic: str, partition: int = 0) -> list[bytes]:
    """All values that lie in a partition."""
    config = {"bootstrap.servers": db.broker.bootstrap, "group.id": "faulty"}
    consumer = Consumer({**config, "isolation.level": "read_uncommitted"})
    try:
        place = TopicPartition(topic, partition)
        low, high = watermarks(consumer, topic, partition, 30)
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


@contextmanager
def changed(folder: Path, code: str) -> Iterator[None]:
    """Run some code in every Python that starts meanwhile, before its own."""
    sources = Path(__file__).parents[2]
    begin = f"import sys\nsys.path.insert(0, {str(sources)!r})\n"
    (folder / "sitecustomize.py").write_text(begin + code)
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        yield


def poisoned(folder: Path) -> AbstractContextManager[None]:
    """Every Python that starts meanwhile fails where our own code may."""
    return changed(folder, POISON)

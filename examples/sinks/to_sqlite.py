"""Keep a table of SQLite equal to a database: rows and positions in one transaction.

    pip install kafka-python
    python to_sqlite.py kafka:9092 bank bank.sqlite

A position is the last record that was applied. It is read again at the start: if it is another one
there, the topic was made anew, or the record is gone, and the table begins anew, too.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

from kafka import KafkaConsumer, TopicPartition

bootstrap, database, file = sys.argv[1:]
topic = f"{database}.connect"
table = sqlite3.connect(file)
table.execute("CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value TEXT, version INTEGER)")
table.execute("CREATE TABLE IF NOT EXISTS last (part INTEGER PRIMARY KEY, at INTEGER, mark TEXT)")
consumer = KafkaConsumer(
    bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False,
    auto_offset_reset="earliest",
)  # fmt: skip
numbers = consumer.partitions_for_topic(topic) or sys.exit(f"There is no topic {topic}.")
parts = [TopicPartition(topic, number) for number in numbers]
consumer.assign(parts)
ends = consumer.end_offsets(parts)
last = {part: (at, mark) for part, at, mark in table.execute("SELECT * FROM last")}
unseen = set(last)  # partitions whose last record has not been read again


def mark_of(record: Any) -> str:
    """Return what no record of another topic has at the same offset."""
    return f"{record.timestamp} {dict(record.headers)['streamydb'].decode()}"


def goes_on(part: int, first: Any) -> bool:
    """Return True if a record, the first of a batch, is the one that must come."""
    at, mark = last.get(part, (-1, ""))
    if part in unseen:
        unseen.remove(part)
        return (at, mark) == (first.offset, mark_of(first))
    return bool(first.offset > at)


def begin_anew() -> None:
    """Forget all rows and positions."""
    with table:
        table.execute("DELETE FROM kv")
        table.execute("DELETE FROM last")
    last.clear()
    unseen.clear()


if not last or any(last.get(part.partition, (-1,))[0] >= ends[part] for part in parts):
    begin_anew()
for part in parts:
    consumer.seek(part, last.get(part.partition, (0,))[0])
while True:
    batch = consumer.poll(1_000)
    if not all(goes_on(part.partition, records[0]) for part, records in batch.items()):
        begin_anew()
        consumer.seek_to_beginning()
        continue
    with table:  # all of the batch or nothing
        for part, records in batch.items():
            for record in records:
                key = json.loads(record.key)["payload"]["key"]
                after = json.loads(record.value)["payload"]["after"] if record.value else None
                table.execute("DELETE FROM kv WHERE key = ?", [key])
                if after is not None:
                    table.execute("INSERT INTO kv VALUES (:key, :value, :version)", after)
            last[part.partition] = at, mark = records[-1].offset, mark_of(records[-1])
            table.execute("REPLACE INTO last VALUES (?, ?, ?)", [part.partition, at, mark])

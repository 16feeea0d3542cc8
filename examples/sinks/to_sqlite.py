"""Keep a table of SQLite equal to a database: rows and offsets in one transaction.

    pip install kafka-python
    python to_sqlite.py kafka:9092 bank bank.sqlite
"""

from __future__ import annotations

import json
import sqlite3
import sys

from kafka import KafkaConsumer, TopicPartition

bootstrap, database, file = sys.argv[1:]
table = sqlite3.connect(file)
table.execute("CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value TEXT, version INTEGER)")
table.execute("CREATE TABLE IF NOT EXISTS offsets (part INTEGER PRIMARY KEY, next INTEGER)")
consumer = KafkaConsumer(
    bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
)
topic = f"{database}.connect"
parts = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
known = dict(table.execute("SELECT part, next FROM offsets"))
consumer.assign(parts)
for part in parts:
    consumer.seek(part, known.get(part.partition, 0))
while True:
    batch = consumer.poll(1_000)
    with table:  # all of the batch or nothing
        for part, records in batch.items():
            for record in records:
                key = json.loads(record.key)["payload"]["key"]
                after = json.loads(record.value)["payload"]["after"] if record.value else None
                table.execute("DELETE FROM kv WHERE key = ?", [key])
                if after is not None:
                    table.execute("INSERT INTO kv VALUES (:key, :value, :version)", after)
            next_offset = records[-1].offset + 1
            table.execute("REPLACE INTO offsets VALUES (?, ?)", [part.partition, next_offset])

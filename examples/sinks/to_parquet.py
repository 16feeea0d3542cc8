"""Append each change of a database to a folder of Parquet, once: plain Spark alone.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0 \
        to_parquet.py kafka:9092 bank changes

A checkpoint has offsets only. Which topic they are of is kept beside it: one that was made anew
needs a folder of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

VALUE = """payload STRUCT<op STRING, before STRUCT<value STRING>, after STRUCT<value STRING>,
    ts_ms BIGINT, source STRUCT<seq BIGINT>, transaction STRUCT<id STRING, total_order BIGINT>>"""

bootstrap, database, folder = sys.argv[1:]
spark = SparkSession.builder.appName(f"changes of {database}").getOrCreate()
topic = f"{database}.connect"


def topic_id() -> str:
    """Return Kafka's id of the topic: another one when it was deleted and made again."""
    java: Any = spark._jvm  # noqa: SLF001 - of the connector's Kafka client
    settings = java.java.util.HashMap()
    settings.put("bootstrap.servers", bootstrap)
    admin = java.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        found = admin.describeTopics(java.java.util.List.of(topic)).allTopicNames().get()
        return str(found.get(topic).topicId())
    finally:
        admin.close()


known, present = Path(f"{folder}.topic"), topic_id()
if known.exists() and known.read_text() != present:
    sys.exit(f"{topic} was made anew since {folder} was begun: name another folder.")
known.write_text(present)
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
    .where("value IS NOT NULL")  # a tombstone says nothing that its deletion does not
)
key = f.get_json_object(f.col("key").cast("string"), "$.payload.key").alias("key")
changes = records.withColumn("c", f.from_json(f.col("value").cast("string"), VALUE)["payload"])
rows = changes.select(
    key,
    "c.op",
    "c.before.value",
    f.col("c.after.value").alias("after"),
    "c.ts_ms",
    "c.source.seq",
    "c.transaction.id",
    f.col("c.transaction.total_order").alias("number"),
).withColumnRenamed("value", "before")
writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}.checkpoint")
# Up to now; without the trigger it goes on for ever.
writer.trigger(availableNow=True).start(folder).awaitTermination()

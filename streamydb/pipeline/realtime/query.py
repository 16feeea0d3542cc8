"""The real-time query: log -> one Python function -> Kafka, in Spark's real-time mode.

Spark 4.3 has what it needs: Python functions are pipelined, and their worker flushes after every
batch. Three habits of Spark hold a record back, and each has its cure here:

- Arrow batches are filled up to a number of records: it is 1.
- The operator before Python looks one row ahead: a row without records pushes the last one out
  (`packing`).
- The writer to Python waits until its buffer is full: the buffer has 64 bytes.

Real-time mode has a list of operators that it allows, and `mapInArrow` is not on it: the check is
off, and Spark logs a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamydb.pipeline.hosts import RECORD_SCHEMA
from streamydb.pipeline.realtime.host import RealTimeHost
from streamydb.pipeline.realtime.packing import Packing
from streamydb.pipeline.realtime.wire import BUFFER_BYTES

__all__ = [
    "BATCH_SETTING", "batch_seconds", "gear_records", "log_records", "real_time_session",
    "start_query", "started",
]  # fmt: skip

_BATCH_S: Final = 86_400
"""Spark commits what it has read once in so long. Nothing is ever recovered from that: a start
begins with the base of the other gear. So a batch ends as seldom as possible.
"""

BATCH_SETTING: Final = "spark.streamydb.realTimeBatchSeconds"
"""A setting of the application for experiments: a shorter batch."""

_SQL_SETTINGS: Final = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": BUFFER_BYTES,
}
_SOURCE_OPTIONS: Final = {
    "failOnDataLoss": "true",
    "kafka.max.poll.records": "4000",
    "kafka.fetch.max.wait.ms": "2000",  # an idle log costs less; a record ends the wait
}
_SINK_OPTIONS: Final = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.linger.ms": "0",
    "kafka.batch.size": "262144",
    "kafka.delivery.timeout.ms": "120000",
}


def real_time_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same application with the settings of the real-time query."""
    session = spark.newSession()
    for name, value in _SQL_SETTINGS.items():
        session.conf.set(name, value)
    return session


def start_query(
    packing: Packing, host: RealTimeHost, topic: str, options: Mapping[str, str], checkpoint: Path
) -> StreamingQuery:
    """Start the query; it reads ``topic`` from ``host.first`` on.

    Args:
        packing: of a session of `real_time_session`.
        host: the function.
        topic: the log, of one partition.
        options: how Spark connects to Kafka.
        checkpoint: a new, empty folder.
    """
    records = gear_records(log_records(packing.session, host.first, topic, options))
    outputs = packing.rows(records).mapInArrow(host.__call__, RECORD_SCHEMA)
    name = f"streamydb-real-time-{host.config.incarnation}"
    writer, batch_s = outputs.writeStream.queryName(name), batch_seconds(packing.session)
    return started(writer, options, checkpoint, batch_s)


def batch_seconds(session: SparkSession) -> int:
    """Return after how many seconds Spark ends the batch of the real-time query."""
    return int(session.conf.get(BATCH_SETTING, None) or _BATCH_S)


def log_records(
    session: SparkSession, first: int, topic: str, options: Mapping[str, str]
) -> DataFrame:
    """Return the records of partition 0 of a topic from offset ``first`` on."""
    reader = session.readStream.format("kafka").option("subscribe", topic)
    reader = reader.option("startingOffsets", f'{{"{topic}": {{"0": {first}}}}}')
    for name, value in {**options, **_SOURCE_OPTIONS}.items():
        reader = reader.option(name, value)
    return reader.load()


def gear_records(log: DataFrame) -> DataFrame:
    """Return of each record of the log what the gear needs: what `Packing.rows` takes."""
    return log.select("offset", f.unix_millis("timestamp").alias("append_ms"), "value")


def started(
    writer: DataStreamWriter, options: Mapping[str, str], checkpoint: Path, batch_s: int = _BATCH_S
) -> StreamingQuery:
    """Start a query that writes to Kafka in real-time mode, in batches of ``batch_s`` seconds."""
    for name, value in {**options, **_SINK_OPTIONS}.items():
        writer = writer.option(name, value)
    writer = writer.format("kafka").option("checkpointLocation", str(checkpoint))
    trigger: Any = {"realTime": f"{batch_s} seconds"}
    return writer.outputMode("update").trigger(**trigger).start()

"""The real-time query: log -> one Python function -> Kafka, in Spark's real-time mode.

Spark 4.3 has what it needs: Python functions are pipelined, and their worker flushes after every
batch. Three habits of Spark hold a record back, and each has its cure here:

- Arrow batches are filled up to a number of records: it is 1.
- The operator before Python looks one row ahead: each record is followed by a row of nulls, which
  pushes it out.
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

from streamydb.pipeline.hosts import RECORD_SCHEMA
from streamydb.pipeline.realtime.host import INPUT_COLUMNS, RealTimeHost

__all__ = ["real_time_session", "start_query"]

_BATCH: Final = "1440 minutes"
"""Spark commits what it has read once in so long. Nothing is ever recovered from that: a start
begins with the base of the other gear. So a batch ends as seldom as possible.
"""

_SQL_SETTINGS: Final = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}
_SOURCE_OPTIONS: Final = {
    "failOnDataLoss": "true",
    "kafka.max.poll.records": "4000",
    "kafka.fetch.max.wait.ms": "500",
}
_SINK_OPTIONS: Final = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.linger.ms": "0",
    "kafka.delivery.timeout.ms": "120000",
}


def real_time_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same application with the settings of the real-time query."""
    session = spark.newSession()
    for name, value in _SQL_SETTINGS.items():
        session.conf.set(name, value)
    return session


def start_query(
    session: SparkSession, host: RealTimeHost, topic: str, options: Mapping[str, str],
    checkpoint: Path,
) -> StreamingQuery:
    """Start the query; it reads ``topic`` from ``host.first`` on.

    Args:
        session: of `real_time_session`.
        host: the function.
        topic: the log, of one partition.
        options: how Spark connects to Kafka.
        checkpoint: a new, empty folder.
    """
    records = _pushed_out(_records(session, host.first, topic, options))
    writer = records.mapInArrow(host.__call__, RECORD_SCHEMA).writeStream.format("kafka")
    for name, value in {**options, **_SINK_OPTIONS}.items():
        writer = writer.option(name, value)
    writer = writer.option("checkpointLocation", str(checkpoint)).outputMode("update")
    trigger: Any = {"realTime": _BATCH}
    return writer.queryName(f"streamydb-real-time-{host.config.incarnation}").trigger(
        **trigger
    ).start()


def _records(
    session: SparkSession, first: int, topic: str, options: Mapping[str, str]
) -> DataFrame:
    reader = session.readStream.format("kafka").option("subscribe", topic)
    reader = reader.option("startingOffsets", f'{{"{topic}": {{"0": {first}}}}}')
    for name, value in {**options, **_SOURCE_OPTIONS}.items():
        reader = reader.option(name, value)
    return reader.load().select(
        "offset", f.unix_millis("timestamp").alias("append_ms"), "value"
    )


def _pushed_out(records: DataFrame) -> DataFrame:
    """Follow each record by a row of nulls."""
    fields = ", ".join(f"'{name}', {name}" for name in INPUT_COLUMNS)
    return records.selectExpr(f"inline(array(named_struct({fields}), null))")

"""Spark ends Python workers and threads without a task when it is told to, and none before; and it
looks for data as often, and reads as much, as it is told.

Only another release of Spark can change it, so the test is a long one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamydb.pipeline.background import spark_heap
from streamydb.pipeline.reads import OFTEN_S, RARELY_S, Reads
from streamydb.pipeline.run import RunningQuery
from streamydb.pipeline.session import session
from streamydb.testing.database import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    made = session("idle", "local[1]", {"spark.ui.enabled": "false"})
    yield made
    made.stop()


def worker_of(spark: SparkSession) -> psutil.Process:
    def told(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([os.getpid()], pa.int64())], ["pid"])

    rows = spark.range(1, numPartitions=1).mapInArrow(told, "pid BIGINT").collect()
    return psutil.Process(rows[0].pid)


def test_idle_workers_end_when_told_and_others_come(spark: SparkSession) -> None:
    heap, worker = spark_heap(spark), worker_of(spark)
    assert worker_of(spark) == worker, "it was kept"
    heap.end_workers()
    wait_for(lambda: not worker.is_running(), "the end of the idle worker", 30)
    assert worker_of(spark) != worker


def pool_threads(spark: SparkSession) -> int:
    """The threads of the pools that have one for each of the first hundred messages."""
    jvm: Any = spark._jvm
    names = [thread.getName() for thread in jvm.java.lang.Thread.getAllStackTraces().keySet()]
    return sum(name.startswith("block-manager-") for name in names)


def test_idle_threads_end_when_told(spark: SparkSession) -> None:
    for _ in range(3):
        spark.sparkContext.broadcast(b"value").destroy()
    wait_for(lambda: pool_threads(spark) > 0, "threads that remove what was broadcast", 30)
    spark_heap(spark).end_workers()
    wait_for(lambda: pool_threads(spark) == 0, "the end of the idle threads", 20)


def test_a_query_looks_for_data_as_often_as_it_is_told(spark: SparkSession, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    lines = spark.readStream.text(str(texts)).writeStream.format("noop")
    query = lines.option("checkpointLocation", str(tmp_path / "state")).start()
    try:
        reads, running = Reads(100), RunningQuery(query)
        delay_ms = query._jsq.streamingQuery().pollingDelayMs  # what Spark asks before each wait
        reads.follow(running)
        assert delay_ms() == 1000 * OFTEN_S
        reads.rarely()
        assert delay_ms() == 1000 * RARELY_S
        running.look_every(0.005)
        (texts / "one").write_text("a line\n")
        wait_for(lambda: read_in_all(query) == 1, "the line", 30)
    finally:
        query.stop()


def test_a_query_reads_as_much_as_it_is_told(
    spark: SparkSession, bootstrap: str, database: str, tmp_path: Path
) -> None:
    records, client = 400, {"bootstrap.servers": bootstrap}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(database, 1)])[database].result(30)
    producer = Producer(client)
    for number in range(records):
        producer.produce(database, b"%d" % number)
    assert producer.flush(30) == 0
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", database).option("startingOffsets", "earliest")
    rows = source.option("maxOffsetsPerTrigger", 1).load()
    state = str(tmp_path / "state")
    query = rows.writeStream.format("noop").option("checkpointLocation", state).start()
    try:
        running = RunningQuery(query)
        running.read_at_most(70)  # Spark may not know its sources yet
        wait_for(lambda: query.lastProgress is not None, "a micro-batch", 30)
        running.read_at_most(70)
        wait_for(lambda: read_in_all(query) == records, "all records", 30)
        sizes = [progress.numInputRows for progress in query.recentProgress]
        assert sizes.count(70) >= 3, sizes
        assert max(sizes) == 70, sizes
    finally:
        query.stop()


def read_in_all(query: StreamingQuery) -> int:
    """How many rows the query has read."""
    return sum(progress.numInputRows for progress in query.recentProgress)

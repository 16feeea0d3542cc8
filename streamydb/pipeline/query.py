"""The query: reads like the picture in docs/architecture.md.

    transactions ─┐
                  ├─► parse ─► sorter + key processor ─► execute ─► Kafka
    feedback ─────┘            (the stateful operator)

With one shard there is no shuffle: the whole micro-batch is one task. With several there is one,
routed by tokens, to the shards; their tasks go on through the `exchange`, if all run at the same
time on one machine. Elsewhere there are two more, to the executing partitions, and to the tasks
that hand records to Kafka; these name no number of tasks, so that `AdaptiveSettings` can choose it.
With `grouping=single` a second stateful operator takes the place of execute: it gathers over
several micro-batches what was granted.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamydb.backup.start import Beginning, Starter
from streamydb.frames.plans import Life, PlanShape
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.names import TopicNames
from streamydb.local.module_folder import FolderModules
from streamydb.pipeline import hosts
from streamydb.pipeline.adaptive import SHUFFLE_PARTITIONS
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.session import on_one_machine, task_slots
from streamydb.pipeline.spool import NO_SPOOL, Spool
from streamydb.pipeline.stateful import Stateful
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.sorter.state import LogEnd

_SOURCE_OPTIONS: Final = {
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
    # Spark fetches only records that are there. But Kafka's client then fetches on by itself, and
    # Spark's next question, for the ends of the partition, waits on the same connection until that
    # fetch is answered: as long as this and a millisecond more, if nothing new comes; 0: at once.
    "kafka.fetch.max.wait.ms": "0",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
    "fetchOffset.numRetries": "10",
}
_PIECE_RECORDS: Final = 50_000
"""So many records of a partition are read at once at most, if there are several shards."""

_PIECE_FETCH_BYTES: Final = 2 << 20
"""Of such a piece so much is fetched at once. What is fetched beyond its end is fetched in vain, as
another task reads on from there."""

_FEEDBACK_SHARDS: Final = 4  # the feedback of so many shards is read by one task

_SINK_OPTIONS: Final = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.compression.type": "lz4",
    # The end of a task sends at once what is left, so a small micro-batch waits for nothing. In a
    # large one each of many partitions gets only a few kilobytes in 2 ms, and a request for these.
    "kafka.linger.ms": "25",
    "kafka.batch.size": "262144",
    "kafka.buffer.memory": "16777216",
    "kafka.delivery.timeout.ms": "120000",
}

_SMALL_SINK: Final = {"kafka.buffer.memory": "4194304"}
"""What a producer has once had of this, it keeps."""


def build_query(
    spark: SparkSession,
    config: PipelineConfig,
    database: ShardConfig,
    changes_partitions: int,
    start: Beginning | None = None,
    ends: Mapping[int, LogEnd] | None = None,
    rulings: Rulings = NO_RULINGS,
) -> DataStreamWriter:
    """Assemble the query of ``database``; the caller starts it.

    ``start``: what a new checkpoint begins with, in its folder; None: the beginning of the log.
    ``ends``: what the log holds where the checkpoint's last batch ended; the shards compare.
    ``rulings``: all that bind what this start of the query executes.
    """
    shards = database.shards
    spark.conf.set(SHUFFLE_PARTITIONS, str(shards))
    life = Life(uuid.uuid4().hex[:16], PlanShape(records_max=config.plan_limit))
    spool = _spool(spark, life)
    modules = FolderModules(config.procedures)
    stage = hosts.StageSettings(database, changes_partitions, modules, rulings, spool)
    explode = hosts.Explode(stage)
    starter = Starter(None if start is None else start.folder)
    at_once = (
        spool.folder is not None and database.grouping == "planner"
        and 1 < shards <= task_slots(spark)
    )  # fmt: skip
    step = hosts.ShardStep(stage, str(config.local), life, starter, ends, at_once=at_once)

    blocks = _input(spark, config, database, start)
    blocks = blocks.mapInArrow(hosts.Parser(stage).__call__, hosts.BLOCK_SCHEMA)
    grants = blocks.groupBy("token").transformWithState(
        Stateful(step), hosts.GRANT_SCHEMA, outputMode="Append", timeMode="None"
    )
    grants = grants.observe(
        "progress",
        f.max("seq").alias("seq"),
        (-f.min("seq")).alias("resolved"),
        f.max("ignored").alias("ignored"),
        f.max("resolves").alias("resolves"),
    )
    if database.grouping == "single":
        outputs = grants.groupBy("token").transformWithState(
            Stateful(hosts.GatherStep(stage)),
            hosts.BLOCK_SCHEMA,
            outputMode="Append",
            timeMode="None",
        )
        records = outputs.mapInArrow(explode.__call__, hosts.RECORD_SCHEMA)
    elif shards == 1:
        executor = hosts.Executor(stage, str(config.local))
        records = grants.mapInArrow(executor.__call__, hosts.RECORD_SCHEMA)
    elif at_once:
        records = grants.mapInArrow(hosts.ExchangingExecutor(stage).__call__, hosts.RECORD_SCHEMA)
    else:
        outputs = grants.repartition("token").mapInArrow(
            hosts.Executor(stage).__call__, hosts.OUTPUT_SCHEMA
        )
        outputs = outputs.observe("executing", f.sum("cpu_us").alias("cpu_us"))
        records = outputs.repartition("token").mapInArrow(explode.__call__, hosts.RECORD_SCHEMA)
    writer = records.writeStream.format("kafka").outputMode("append")
    for name, value in sink_options(config).items():
        writer = writer.option(name, value)
    writer = writer.option("checkpointLocation", f"{config.location}/query")
    return writer.queryName(f"streamydb-{config.settings.database}")


def sink_options(config: PipelineConfig) -> dict[str, str]:
    """Return the options of Spark's sink for Kafka."""
    little = _SMALL_SINK if config.small else {}
    return {**config.settings.spark_options(), **_SINK_OPTIONS, **little}


def _spool(spark: SparkSession, life: Life) -> Spool:
    """Large blocks lie in Spark's own temporary folder, which it removes when it stops.

    What an earlier start of the query has left there is removed.
    """
    if not on_one_machine(str(spark.sparkContext.master)):
        return NO_SPOOL
    folder = Path(SparkFiles.getRootDirectory()) / "spool"
    shutil.rmtree(folder, ignore_errors=True)
    return Spool(folder / life.name)


def _input(
    spark: SparkSession, config: PipelineConfig, database: ShardConfig, start: Beginning | None
) -> DataFrame:
    """Transactions, as many as one micro-batch may take, and all feedback.

    Each task costs some milliseconds. So few records are read by few tasks, and feedback by fewer
    than there are shards, as it is only passed on.
    """
    names, shards = TopicNames(database.database), database.shards
    limits = {"maxOffsetsPerTrigger": str(config.records_max(shards))}
    if shards > 1:
        # Several tasks then read a partition; the sorter puts their pieces in order of offset.
        limits["maxRecordsPerPartition"] = str(_PIECE_RECORDS)
        limits["kafka.max.partition.fetch.bytes"] = str(_PIECE_FETCH_BYTES)
    if config.poll_records is not None:
        limits["kafka.max.poll.records"] = str(config.poll_records)
    if start is not None:
        limits["startingOffsets"] = start.starting_offsets(names.transactions)
    transactions = _source(spark, config, names.transactions, limits)
    feedback = _source(spark, config, names.feedback_of(database.name), {})
    if shards > 1:
        transactions = transactions.coalesce(shards)
        feedback = feedback.coalesce(-(-shards // _FEEDBACK_SHARDS))
    both = _rows(transactions, feedback=False).union(_rows(feedback, feedback=True))
    return both.coalesce(1) if shards == 1 else both


def _source(
    spark: SparkSession, config: PipelineConfig, topic: str, options: dict[str, str]
) -> DataFrame:
    reader = spark.readStream.format("kafka").option("subscribe", topic)
    for name, value in {**config.settings.spark_options(), **_SOURCE_OPTIONS, **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def _rows(source: DataFrame, *, feedback: bool) -> DataFrame:
    return source.select(
        f.lit(feedback).alias("feedback"),
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("append_ms"),
        "value",
    )

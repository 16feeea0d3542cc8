"""A Spark query that does almost nothing, from topic to topic: a row of `streamydb bench floor`.

`python -m bench.floor_job TASK` runs until it is told to stop. Its session, source and sink are the
pipeline's, so its latency is what Spark and Kafka take for a micro-batch of that form, whatever we
compute in it. Each transaction becomes one record, with its id as key.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructType

from bench.floor import FloorTask
from streamydb.kafka import TopicNames
from streamydb.local.file_lock import write_whole
from streamydb.pipeline import query as pipeline_query
from streamydb.pipeline.realtime.packing import Packing
from streamydb.pipeline.realtime.query import gear_records, log_records, real_time_session, started
from streamydb.pipeline.realtime.rows import records_of
from streamydb.pipeline.session import PIPELINED, forget_defaults, session

__all__ = ["FORMS", "REAL_TIME_FORMS", "main"]

_RECORD: Final = "key BINARY, value BINARY"
_NAME: Final = StructType().add("name", StringType())
_COUNT: Final = StructType().add("count", LongType())
_HDFS_BACKED: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand all on."""
    yield from batches


def _same_records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand all records on, from rows of the real-time mode, by the ids of their transactions."""
    for batch in batches:
        values = [record.value or b"" for record in records_of(batch)]
        if values:
            ids = [value.split(b'"', 4)[3] for value in values]  # {"id":"...
            arrays = [pa.array(ids, pa.binary()), pa.array(values, pa.binary())]
            yield pa.RecordBatch.from_arrays(arrays, names=["key", "value"])


def _counted(
    _key: Any, frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Hand all on, and keep how many they were."""
    count = state.get[0] if state.exists else 0
    for frame in frames:
        count += len(frame)
        yield frame[["key", "value"]]
    state.update((count,))


class _Counter(StatefulProcessor):
    """Hands all on, and keeps how many they were as the one entry of a map."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state."""
        self._state = handle.getMapState("blobs", _NAME, _COUNT)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        """Read the entry, hand on, write the entry."""
        found = self._state.getValue(("count",))
        count = found[0] if found else 0
        for row in rows:
            count += 1
            yield Row(key=row["key"], value=row["value"])
        self._state.updateValue(("count",), (count,))

    def close(self) -> None:
        """Nothing to close."""


def _hop(log: DataFrame) -> DataFrame:
    return log.mapInArrow(_same, _RECORD)


def _groups(log: DataFrame, shards: int = 1) -> GroupedData:
    token = f.lit(0) if shards == 1 else f.pmod(f.hash("key"), f.lit(shards))
    return log.withColumn("token", token).groupBy("token")


def _row(log: DataFrame) -> DataFrame:
    return _groups(log).applyInPandasWithState(
        _counted, _RECORD, "count BIGINT", "append", GroupStateTimeout.NoTimeout
    )


def _entry(log: DataFrame, shards: int = 1) -> DataFrame:
    return _groups(log, shards).transformWithState(
        _Counter(), _RECORD, outputMode="Append", timeMode="None"
    )


def _two_shards(log: DataFrame) -> DataFrame:
    """Like the pipeline's: to the shards; with little load to one who executes, one who formats."""
    state = _entry(_hop(log), 2)
    return _hop(_hop(state.repartition(1, "key")).repartition(1, "key"))


FORMS: Final[dict[str, tuple[Callable[[DataFrame], DataFrame], dict[str, str]]]] = {
    "copy": (lambda log: log, {}),
    "hop": (_hop, {}),
    "row": (_row, {}),
    "row-hdfs": (_row, {_PROVIDER: _HDFS_BACKED}),
    "entry": (_entry, {}),
    "entry-hop": (lambda log: _hop(_entry(log)), {}),
    "hop-entry-hop": (lambda log: _hop(_entry(_hop(log))), {}),
    "form-2": (_two_shards, {}),
}
"""How the query of each form is made, and Spark's settings for it."""


def _keyed(log: DataFrame) -> DataFrame:
    """Return the records with the id of their transaction as key."""
    name = f.get_json_object(f.col("value").cast("string"), "$.id")
    return log.select(name.cast("binary").alias("key"), "value")


def _real_time_hop(log: DataFrame, *, packed: bool) -> DataFrame:
    rows = Packing(log.sparkSession, wanted=packed).rows(gear_records(log))
    return rows.mapInArrow(_same_records, _RECORD)


REAL_TIME_FORMS: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "real-time-copy": _keyed,
    "real-time-hop": lambda log: _real_time_hop(log, packed=False),
    "real-time-packed": lambda log: _real_time_hop(log, packed=True),
}
"""How the query of each form of the real-time mode is made."""


def _started(spark: SparkSession, task: FloorTask) -> StreamingQuery:
    """Start the query of a form of micro-batches."""
    spark.conf.set("spark.sql.shuffle.partitions", str(task.shards))
    names, folder = TopicNames(task.database), Path(task.folder)
    source = {
        **pipeline_query._SOURCE_OPTIONS,  # noqa: SLF001 - the same, on purpose, as the sink's
        "kafka.bootstrap.servers": task.bootstrap, "subscribe": names.transactions,
    }  # fmt: skip
    sink = {
        **pipeline_query._SINK_OPTIONS,  # noqa: SLF001
        "kafka.bootstrap.servers": task.bootstrap, "topic": names.results,
        "checkpointLocation": str(folder / "checkpoint"),
    }  # fmt: skip
    log = spark.readStream.format("kafka").options(**source).load().coalesce(1)
    records = FORMS[task.form][0](_keyed(log))
    return records.writeStream.format("kafka").outputMode("append").options(**sink).start()


def _started_real_time(spark: SparkSession, task: FloorTask) -> StreamingQuery:
    """Start the query of a form of the real-time mode."""
    names, options = TopicNames(task.database), {"kafka.bootstrap.servers": task.bootstrap}
    log = log_records(real_time_session(spark), 0, names.transactions, options)
    writer = REAL_TIME_FORMS[task.form](log).writeStream
    sink = {**options, "topic": names.results}
    return started(writer, sink, Path(task.folder) / "checkpoint")


def main(given: str) -> int:
    """Run the task until SIGTERM."""
    task = msgspec.json.decode(given, type=FloorTask)
    real_time = task.form in REAL_TIME_FORMS
    conf = {PIPELINED: "true"} if real_time else FORMS[task.form][1]
    spark = session(f"streamydb floor: {task.form}", f"local[{task.cores}]", conf)
    forget_defaults(spark)
    query = (_started_real_time if real_time else _started)(spark, task)
    signal.signal(signal.SIGTERM, lambda *_: query.stop())
    write_whole(Path(task.folder) / "status.json", b'{"state": "running"}')
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

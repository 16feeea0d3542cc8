"""The copy limit: what a stateless Spark job does with the same topic and as many output records.

`python -m bench.copy_limit` is a process of its own, its session made as the pipeline's.
For each transaction it writes one record of a result's size and as many of a change's size as the
transactions caused on average, made in the JVM by Spark SQL, with the pipeline's source and sink
options. It does the same range of the log several times: the first is warm-up, and so is the batch
before the range in each. It prints the transactions a second of each repetition as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from streamydb.errors import StreamyError
from streamydb.kafka import TopicNames, create
from streamydb.pipeline import query as pipeline_query
from streamydb.pipeline.adaptive import COMPILED, FACTORY_MODE
from streamydb.pipeline.session import forget_defaults, session

__all__ = ["CopyTask", "main", "rate_of", "run"]

_POLL_S: Final = 0.1
_STALL_S_MAX: Final = 120.0
_FILLER: Final = "x" * 4096


class CopyTask(msgspec.Struct, frozen=True, kw_only=True):
    """What to copy; sizes in bytes, offsets of partition 0 of the source."""

    bootstrap: str
    source: str
    database: str
    """Whose results and changes topics are written; a name of its own."""
    first: int
    last: int
    cores: int
    shards: int
    max_offsets: int
    folder: str
    result_bytes: int = 140
    change_bytes: int = 240
    changes_each: float = 2.0
    repetitions: int = 3


def run(task: CopyTask, note: Callable[[str], object]) -> list[float]:
    """Copy the range `task.repetitions` times after a warm-up; transactions a second of each.

    Raises:
        StreamyError: the query failed or made no progress.
    """
    create({"bootstrap.servers": task.bootstrap}, task.database, shards=task.shards)
    conf = {
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        FACTORY_MODE: COMPILED,  # as the pipeline's with micro-batches of this size
    }  # fmt: skip
    spark = session("streamydb copy limit", f"local[{task.cores}]", conf)
    forget_defaults(spark)
    try:
        rates = []
        for repetition in range(task.repetitions + 1):
            note(f"repetition {repetition} of {task.repetitions}")
            checkpoint = Path(task.folder) / f"copy-{repetition}"
            rates.append(rate_of(_copy(spark, task, checkpoint), task.first))
        return rates[1:]
    finally:
        spark.stop()


def rate_of(progresses: list[dict[str, Any]], first: int) -> float:
    """Transactions a second of the batches that begin at offset `first` or later.

    From the begin of the first to the end of the last; gaps between batches count.
    """
    measured = [p for p in progresses if p["rows"] and p["start"] >= first] or progresses
    begun = min(p["begun_ms"] for p in measured)
    ended = max(p["begun_ms"] + p["ms"] for p in measured)
    rows: int = sum(p["rows"] for p in measured)
    return 1000 * rows / max(1, int(ended - begun))


def _copy(spark: SparkSession, task: CopyTask, checkpoint: Path) -> list[dict[str, Any]]:
    """Run one query over the range; what each batch did."""
    writer = _records(_source(spark, task), task).writeStream.format("kafka")
    for name, value in pipeline_query._SINK_OPTIONS.items():  # noqa: SLF001 - the same, on purpose
        writer = writer.option(name, value)
    writer = writer.option("kafka.bootstrap.servers", task.bootstrap)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        return _progresses(query, task.last)
    finally:
        query.stop()


def _progresses(query: StreamingQuery, last: int) -> list[dict[str, Any]]:
    """Wait until the batches have covered the offsets up to `last`."""
    ticks = threading.Event()
    waited, batches = 0.0, 0
    while query.isActive:
        found = [_facts(progress.json) for progress in query.recentProgress]
        done = [facts for facts in found if facts["rows"]]
        if done and done[-1]["end"] >= last:
            return done
        waited = waited + _POLL_S if len(done) == batches else 0.0
        batches = len(done)
        if waited > _STALL_S_MAX:
            raise StreamyError(f"the copying query made no progress for {_STALL_S_MAX:.0f} s")
        ticks.wait(_POLL_S)
    raise StreamyError(f"the copying query failed: {query.exception()}")


def _facts(text: str) -> dict[str, Any]:
    progress = json.loads(text)
    source = progress["sources"][0]
    return {
        "rows": source["numInputRows"],
        "start": _offset(source["startOffset"]),
        "end": _offset(source["endOffset"]),
        "begun_ms": _epoch_ms(progress["timestamp"]),
        "ms": progress["batchDuration"],
    }


def _offset(offsets: Any) -> int:
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    return int(next(iter(found.values()))["0"]) if found else 0


def _epoch_ms(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _source(spark: SparkSession, task: CopyTask) -> DataFrame:
    start = max(0, task.first - task.max_offsets)
    options = {
        **pipeline_query._SOURCE_OPTIONS,  # noqa: SLF001 - the same, on purpose
        "kafka.bootstrap.servers": task.bootstrap,
        "subscribe": task.source,
        "startingOffsets": json.dumps({task.source: {"0": start}}),
        "maxOffsetsPerTrigger": str(task.max_offsets),
        "minPartitions": str(task.cores),
    }
    return spark.readStream.format("kafka").options(**options).load()


def _records(log: DataFrame, task: CopyTask) -> DataFrame:
    """Topic, key and value of the output records of each transaction."""
    names = TopicNames(task.database)
    each = int(task.changes_each)
    more = round(1000 * (task.changes_each - each))
    result = _record(names.results, f.lit("t"), task.result_bytes)
    changes = [
        _record(names.changes, f.lit(f"acct/{number}"), task.change_bytes)
        for number in range(each + bool(more))
    ]
    records = f.array(result, *changes)
    if more:
        extra = (f.pmod(f.col("offset"), f.lit(1000)) < more).cast("int")
        records = f.slice(records, f.lit(1), f.lit(1 + each) + extra)
    return log.select(f.explode(records).alias("record")).select("record.*")


def _record(topic: str, key: Column, size: int) -> Column:
    """A record whose key and value are made from the transaction's offset and payload."""
    payload = f.substring(f.col("value").cast("string"), 1, size // 2)
    filler = f.lit(_FILLER[: size - size // 2])
    return f.struct(
        f.lit(topic).alias("topic"),
        f.concat(key, f.col("offset").cast("string")).cast("binary").alias("key"),
        f.concat(payload, filler).cast("binary").alias("value"),
    )


def main(given: str) -> int:
    """Do the task that is given as JSON; print {"txn_per_s": [...]}."""
    task = msgspec.json.decode(given, type=CopyTask)
    try:
        rates = run(task, lambda text: sys.stderr.write(f"{text}\n"))
    except StreamyError as error:
        sys.stderr.write(f"copy limit: {error}\n")
        return 1
    answer: Mapping[str, Any] = {"txn_per_s": rates}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Changes and results as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from streamydb.kafka import TopicNames
from streamydb.kafka.positions import look, offsets_json
from streamydb.settings import Settings
from streamydb.spark import rows
from streamydb.spark.rows import SeenRecords
from streamydb.spark.session import require_topic, settings_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState

MAX_OFFSETS: Final = 200_000
"""Records of a topic that a micro-batch reads at most; a partition's share is held in memory."""

_CHANGES: Final = (
    "partition int, offset bigint, key string, seq bigint, index bigint, ts_ms bigint, op string, "
    "before string, after string, txn_id string, expires_ms bigint"
)
_STATE: Final = "resolved bigint, above binary"
_SHOWN: Final = ("key", "seq", "index", "ts", "op", "before", "after", "txn_id", "expires_ms")


def read_changes(
    spark: SparkSession,
    database: str | None = None,
    bootstrap: str | None = None,
    *,
    stream: bool = False,
    schema: str | t.DataType | None = None,
    max_offsets: int = MAX_OFFSETS,
    settings: Settings | None = None,
) -> DataFrame:
    """Every write of every committed transaction, once.

    Columns: key, seq and index (the transaction, and which of its changes from 1; keys that end at
    one seq may share an index), ts (commit time), op (c, u, d), before and after (JSON text, null:
    absent), txn_id, expires_ms (the commit time at which the key ends, null: it does not).

    A batch has whole transactions: those up to the last seq that is resolved. A stream gives the
    changes of a key in order, and leaves out repetitions by a small state per partition of the
    topic; it begins with the first change. A stream that goes on from a checkpoint fails if the
    topic was made anew meanwhile.

    Args:
        spark: the session.
        database: its name; by default STREAMYDB_DATABASE.
        bootstrap: Kafka's address; by default STREAMYDB_BOOTSTRAP.
        stream: give a streaming frame.
        schema: the type of the values; `before` and `after` then are of it, see `value_as`.
        max_offsets: records that a micro-batch reads at most.
        settings: instead of database and bootstrap, with authentication.
    """
    place = settings_of(database, bootstrap, settings)
    if stream:
        events_frame = events(spark, place, stream=True, max_offsets=max_offsets)
        from streamydb.kafka.admin import identity_of
        from streamydb.kafka.clients import administrator

        admin = administrator(place.client_config())
        topic_id = identity_of(admin, TopicNames(place.database).changes).topic_id

        def fresh(
            _: tuple[int], parts: Iterator[pd.DataFrame], state: GroupState
        ) -> Iterator[pd.DataFrame]:
            yield from _fresh(topic_id, parts, state)

        changes = events_frame.groupBy("partition").applyInPandasWithState(
            fresh, _CHANGES, _STATE, "append", "NoTimeout"
        )
    else:
        ends = look(place)
        limit = offsets_json(ends.topic, {n: span.high for n, span in ends.spans.items()})
        events_frame = events(spark, place, {"endingOffsets": limit})
        changes = events_frame.where(~f.col("resolved") & (f.col("seq") <= ends.seq))
        changes = changes.dropDuplicates(["seq", "index", "key"])
    changes = changes.withColumn("expires_ms", f.nullif("expires_ms", f.lit(0)))
    frame = changes.withColumn("ts", f.timestamp_millis("ts_ms")).select(*_SHOWN)
    if schema is None:
        return frame
    return frame.withColumns({n: value_as(f.col(n), schema) for n in ("before", "after")})


def read_results(
    spark: SparkSession,
    database: str | None = None,
    bootstrap: str | None = None,
    *,
    stream: bool = False,
    max_offsets: int = MAX_OFFSETS,
    settings: Settings | None = None,
) -> DataFrame:
    """The verdict of every record of the log.

    Columns: id, seq, ts, status, code, reads, failed and, at the end, ranges (JSON text), partition
    and offset (of the record in the log), duplicate_of (the seq of the transaction that the record
    repeats).

    A batch has each seq once. A stream may give a row again after a crash of the pipeline, equal
    in every column: write it under its seq, or drop it by that.
    """
    place = settings_of(database, bootstrap, settings)
    topic = TopicNames(place.database).results
    source = _source(spark, place, topic, {}, stream=stream, max_offsets=max_offsets)
    results_frame = source.select("value").mapInArrow(rows.results, rows.RESULTS)
    if not stream:
        results_frame = results_frame.dropDuplicates(["seq"])
    frame = results_frame.withColumn("ts", f.timestamp_millis("ts_ms"))
    return frame.select(
        "id", "seq", "ts", "status", "code", "reads", "failed", "partition", "offset",
        "duplicate_of", "ranges",
    )  # fmt: skip


def value_as(value: Column | str, schema: str | t.DataType) -> Column:
    """A value (JSON text) as a type of Spark's: `"struct<owner string>"`, `"bigint"`.

    What does not fit is null, as in `from_json`.
    """
    text = f.concat(f.lit('{"v":'), f.col(value) if isinstance(value, str) else value, f.lit("}"))
    if isinstance(schema, str):
        return f.from_json(text, f"v {schema}").getField("v")
    return f.from_json(text, t.StructType([t.StructField("v", schema)])).getField("v")


def events(
    spark: SparkSession,
    settings: Settings,
    options: Mapping[str, str] | None = None,
    *,
    stream: bool = False,
    max_offsets: int = MAX_OFFSETS,
) -> DataFrame:
    """All records of the changes topic but tombstones, as `rows.EVENTS`."""
    topic = TopicNames(settings.database).changes
    source = _source(spark, settings, topic, options or {}, stream=stream, max_offsets=max_offsets)
    taken = source.select("partition", "offset", "key", "value")
    return taken.mapInArrow(rows.events, rows.EVENTS)


def _source(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    options: Mapping[str, str],
    *,
    stream: bool,
    max_offsets: int,
) -> DataFrame:
    require_topic(settings, topic)
    reader: Any = spark.readStream if stream else spark.read
    source_options = {
        **settings.spark_options(),
        "subscribe": topic,
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        **({"maxOffsetsPerTrigger": str(max_offsets)} if stream else {}),
        **options,
    }
    frame: DataFrame = reader.format("kafka").options(**source_options).load()
    return frame


def _fresh(
    topic_id: str, parts: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The changes of a partition that come for the first time."""
    import pandas as pd

    frame = pd.concat(list(parts)).sort_values("offset", kind="stable")
    resolved, above = state.get if state.exists else (0, b"")
    seen = SeenRecords(resolved, above, topic_id)
    names = (frame[column].tolist() for column in ("seq", "index", "key", "resolved"))
    mask = seen.fresh(zip(*names, strict=True))
    state.update((seen.resolved, seen.pack()))
    yield frame[mask].drop(columns=["resolved", "offsets"])

"""Submit rows to the log, each as one transaction, by Spark's Kafka sink.

Why exactly once: Spark repeats a task or a micro-batch with the same source positions, so the rows
come again with the same ids and, since their expressions are deterministic, the same bytes. Among
these is a deadline, fixed once for the batch or micro-batch. Until then the database executes an id
once and gives the first verdict for each repetition; a row that comes later is rejected, so a task
may be repeated as late as it will.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from streamydb.errors import ConfigurationError
from streamydb.kafka import TopicNames
from streamydb.kafka.reader import TopicMissingError
from streamydb.limits import DEADLINE_AHEAD_MS_MAX
from streamydb.settings import Settings
from streamydb.spark import operations, payloads
from streamydb.spark.operations import Term
from streamydb.spark.session import require_topic, settings_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S: Final = 3_000.0
"""Deadline of submitted rows: as far as the database takes, but for clocks that differ."""

_POSITION: Final = ("topic", "partition", "offset")
_SINK: Final = {
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.compression.type": "none",  # the broker would unpack it
    "kafka.linger.ms": "5",
}


def transactions(
    frame: DataFrame,
    updates: Sequence[Column] = (),
    *,
    checks: Sequence[Column] = (),
    reads: Sequence[Term] = (),
    id: Term | None = None,  # noqa: A002 - the field's own word
    name: str | None = None,
) -> DataFrame:
    """Return what `submit` would write, to look at: id, payload,
    and code and meaning of bad rows.
    """
    payload_rows = _made(frame, (updates, checks, reads), id, name, None, None)
    return payload_rows.select("id", "payload").mapInArrow(payloads.check, payloads.CHECKED)


def submit(
    frame: DataFrame,
    updates: Sequence[Column] = (),
    *,
    checks: Sequence[Column] = (),
    reads: Sequence[Term] = (),
    id: Term | None = None,  # noqa: A002 - the field's own word
    name: str | None = None,
    key: Term | None = None,
    rejected_topic: str | None = None,
    deadline_s: float | None = DEADLINE_S,
    database: str | None = None,
    bootstrap: str | None = None,
    settings: Settings | None = None,
    checkpoint: str | Path | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery | None:
    """Append a transaction for each row, exactly once.

    Args:
        frame: batch or streaming.
        updates: what `put`, `add` and the others give.
        checks: what `check` gives.
        reads: keys whose values the result shall have.
        id: the transaction's id: a column that is the same whenever the row is made again. By
            default the source position of a frame that was read from Kafka, and has its columns
            topic, partition and offset.
        name: put before the ids, so that another query over the same source has others.
        key: rows with the same key go to the same partition of the log, in their order.
        rejected_topic: where rows go that are no transactions; by default one fails the query.
        deadline_s: how long after the batch, or micro-batch, began its rows may be appended; later
            ones are not executed. None: rows that come again after the id window are, again.
        database: its name; by default STREAMYDB_DATABASE.
        bootstrap: Kafka's address; by default STREAMYDB_BOOTSTRAP.
        settings: instead of both, with authentication.
        checkpoint: of a streaming query, on storage that outlives it.
        trigger: of a streaming query, as for `DataStreamWriter.trigger`.

    Returns:
        the query that was started; None if the frame was a batch, and has been written.

    Raises ConfigurationError: the ids or the expressions would differ when a row is made again; no
    checkpoint of a streaming frame; no such topic for bad rows; too far a deadline. Raises
    ReadingError: there is no such database, or Kafka does not answer.
    """
    place = settings_of(database, bootstrap, settings)
    if frame.isStreaming and checkpoint is None:
        raise ConfigurationError(
            "a streaming frame needs checkpoint=, a folder on storage that outlives the query"
        )
    if not frame.isStreaming and (checkpoint is not None or trigger is not None):
        raise ConfigurationError("checkpoint and trigger are for streaming frames; this is a batch")
    deadline, until_ms = _deadline(frame, deadline_s)
    log = _log(place, rejected_topic)
    payload_rows = _made(frame, (updates, checks, reads), id, name, key, deadline)
    route = payloads.router(log, rejected_topic, until_ms)
    records = payload_rows.mapInArrow(route, payloads.RECORDS)
    options = {**place.spark_options(), **_SINK}
    if not frame.isStreaming:
        records.write.format("kafka").options(**options).save()
        return None
    writer = records.writeStream.format("kafka").outputMode("append").options(**options)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def _deadline(frame: DataFrame, deadline_s: float | None) -> tuple[Column | None, int | None]:
    """The deadline of all rows; and as a number if it is known, which it is of a batch.

    That of a micro-batch follows from its own time, which is in the checkpoint before anything is
    written, and is the same when the micro-batch is repeated.
    """
    if deadline_s is None:
        return None, None
    if not 1 <= 1_000 * deadline_s <= DEADLINE_AHEAD_MS_MAX:
        raise ConfigurationError(
            f"deadline_s={deadline_s:g}: the database takes deadlines up to "
            f"{DEADLINE_AHEAD_MS_MAX // 1_000} s ahead; write longer batches in parts"
        )
    ahead_ms = int(1_000 * deadline_s)
    if frame.isStreaming:
        return f.unix_millis(f.current_timestamp()) + f.lit(ahead_ms), None
    until_ms = time.time_ns() // 1_000_000 + ahead_ms
    return f.lit(until_ms), until_ms


def _made(
    frame: DataFrame,
    parts: tuple[Sequence[Column], Sequence[Column], Sequence[Term]],
    row_id: Term | None,
    name: str | None,
    key: Term | None,
    deadline: Column | None,
) -> DataFrame:
    """Id, payload and record key of each row; ``parts``: its updates, checks and reads."""
    updates, checks, reads = parts
    row_ids = _id(frame, row_id)
    if name is not None:
        row_ids = f.concat(f.lit(f"{name}:"), row_ids)
    record_key = f.lit(None) if key is None else f.col(key) if isinstance(key, str) else key
    taken = frame.withColumns({"__id": row_ids.cast("string"), "__key": record_key.cast("string")})
    text = operations.transaction("__id", updates, checks=checks, reads=reads, deadline_ms=deadline)
    payload_rows = taken.select(
        f.col("__id").alias("id"), text.alias("payload"), f.col("__key").alias("key")
    )
    plan = payload_rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    if not plan.deterministic():
        raise ConfigurationError(
            "an expression of the frame is not deterministic (rand, uuid, "
            "monotonically_increasing_id, a function declared so): rows that Spark makes again "
            "would be other transactions. Write the frame to a table or topic first and submit "
            "that, or derive the values from the row"
        )
    return payload_rows


def _id(frame: DataFrame, row_id: Term | None) -> Column:
    if row_id is not None:
        return f.col(row_id) if isinstance(row_id, str) else row_id
    if not set(_POSITION) <= set(frame.columns):
        raise ConfigurationError(
            "the rows have no source position (columns topic, partition and offset, as Spark's "
            "Kafka source gives them): name a column that identifies a row for good (id=), or, if "
            "equal rows may count as one, id=content_id(...)"
        )
    return f.concat_ws(":", *_POSITION)


def _log(place: Settings, rejected: str | None) -> str:
    """Return the name of the log; refuse topics that are not there.

    Spark would wait for each for a minute, or have them made by brokers that make what is named:
    rows in the log of a database that does not exist are lost.
    """
    log = TopicNames(place.database).transactions
    require_topic(place, log)
    try:
        if rejected is not None:
            require_topic(place, rejected)
    except TopicMissingError:
        raise ConfigurationError(
            f"rejected_topic={rejected!r}: there is no such topic at {place.bootstrap_servers}; "
            "make it, or name another one"
        ) from None
    return log

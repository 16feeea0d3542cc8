"""Write a Parquet snapshot with a session of its own, for `streamydb snapshot`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import msgspec

from streamydb.errors import SnapshotError
from streamydb.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamydb.spark.snapshots import WrittenSnapshot

_AGAIN_S = 0.5

_SPARK = {
    # The pipeline's settings bound its small batches; a snapshot reads and sorts much at once.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.shuffle.compress": "true",
}


def run(
    settings: Settings, folder: str, *, at: str | None, base: str | None, master: str | None
) -> WrittenSnapshot:
    """Write a snapshot with a session of its own.

    Args:
        settings: of the database's clients.
        folder: where the snapshot's folder shall lie.
        at: a seq or a time; None: the newest that is resolved.
        base: an older snapshot to begin with.
        master: Spark's master; None: `spark-submit` has given it.

    Raises SnapshotError: it cannot be taken or written.
    """
    from streamydb.spark.snapshots import require_possible, write_snapshot

    position = moment(at)
    require_possible(settings, folder, position, base)
    spark = _session(settings.database, master)
    try:
        with ThreadPoolExecutor(1, "streamydb-snapshot") as pool:
            writing = pool.submit(
                write_snapshot, spark, folder, position, base=base, settings=settings
            )
            return _ended(writing, spark.sparkContext.cancelAllJobs)
    finally:
        spark.stop()


def _session(database: str, master: str | None) -> SparkSession:
    """Start Spark.
    Raises SnapshotError: it does not start; what there is to say, it has said itself.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from streamydb.pipeline.session import session
    from streamydb.spark.folders import first_cause

    try:
        return session(f"streamydb-snapshot-{database}", master, _SPARK)
    except (Py4JJavaError, PySparkException) as error:
        raise SnapshotError(
            f"Spark did not start, with the master {master or 'of spark-submit'}: "
            f"{first_cause(error)}. Above it says more; mend that, or name another --master"
        ) from error


def _ended(writing: Future[WrittenSnapshot], cancel: Callable[[], None]) -> WrittenSnapshot:
    """Wait for a snapshot; have it end by itself, and remove what it has, if that is interrupted.

    An exception within a request to the JVM breaks the connection that it would need for that.
    """
    try:
        return writing.result()
    except KeyboardInterrupt:
        while not writing.done():
            cancel()  # the job that runs: another one may follow
            wait([writing], _AGAIN_S)
        raise


def moment(text: str | None) -> int | dt.datetime | None:
    """A seq, or a time as ISO 8601 with a time zone, from text.
    Raises SnapshotError: it is neither.
    """
    if text is None or text == "newest":
        return None
    is_number = text.isascii() and text.isdigit()
    try:
        position = int(text) if is_number else dt.datetime.fromisoformat(text)
    except ValueError:
        raise SnapshotError(
            f"--at {text}: give a seq, or a time such as 2026-01-31T12:00:00+00:00"
        ) from None
    if isinstance(position, dt.datetime) and position.tzinfo is None:
        raise SnapshotError(f"--at {text}: the time needs a time zone, such as +00:00")
    return position


def shown(written: WrittenSnapshot, *, as_json: bool) -> str:
    """Describe what was written, for people or programs."""
    manifest = written.manifest
    if as_json:
        fields: dict[str, Any] = msgspec.to_builtins(manifest, str_keys=True)
        fields |= {"folder": written.folder, "fresh": written.fresh}
        return msgspec.json.encode(fields).decode()
    what = "written" if written.fresh else "there already"
    summary = f"seq {manifest.seq}, {manifest.rows:,} keys, {manifest.digest}"
    return f"{written.folder}: {what}, {summary}"

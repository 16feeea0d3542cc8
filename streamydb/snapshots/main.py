"""`streamydb snapshot` and jobs/snapshot.py: write a Parquet snapshot, then end."""

from __future__ import annotations

import argparse
import datetime as dt
import logging
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from streamydb.errors import StreamyError
from streamydb.settings import Settings
from streamydb.snapshots.errors import SnapshotError

if TYPE_CHECKING:
    from streamydb.spark.snapshotting import Written

__all__ = ["main", "moment", "run", "shown"]

_SPARK = {
    # The pipeline's settings bound its small batches; a snapshot reads and sorts much at once.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.shuffle.compress": "true",
}


def main(arguments: list[str] | None = None, *, submitted: bool = False) -> int:
    """Write a snapshot and print its folder.

    Args:
        arguments: of the command line.
        submitted: `spark-submit` has made the session's settings, the master among them.

    Returns:
        the exit code: 0 when it is there, 2 when it cannot be taken.
    """
    given = _parser(submitted=submitted).parse_args(arguments)
    logging.basicConfig(level=given.log_level, format="%(asctime)s %(levelname)s %(message)s")
    named = {"database": given.database, "bootstrap": given.bootstrap}
    try:
        settings = Settings(**{name: value for name, value in named.items() if value is not None})
        master = None if submitted else given.master
        written = run(settings, given.to, at=given.at, base=given.base, master=master)
    except (StreamyError, ValueError) as error:
        sys.stderr.write(f"streamydb snapshot: {error}\n")
        return 2
    sys.stdout.write(shown(written, as_json=given.json) + "\n")
    return 0


def run(
    settings: Settings, folder: str, *, at: str | None, base: str | None, master: str | None
) -> Written:
    """Write a snapshot with a session of its own.

    Args:
        settings: of the database's clients.
        folder: where the snapshot's folder shall lie.
        at: a seq or a time; None: the newest that is resolved.
        base: an older snapshot to begin with.
        master: Spark's master; None: `spark-submit` has given it.

    Raises:
        SnapshotError: it cannot be taken or written.
    """
    from streamydb.pipeline.session import session
    from streamydb.spark.snapshotting import write_snapshot

    wanted = moment(at)
    spark = session(f"streamydb-snapshot-{settings.database}", master, _SPARK)
    try:
        return write_snapshot(spark, folder, wanted, base=base, settings=settings)
    finally:
        spark.stop()


def moment(text: str | None) -> int | dt.datetime | None:
    """A seq, or a time as ISO 8601 with a time zone, from text.

    Raises:
        SnapshotError: it is neither.
    """
    if text is None or text == "newest":
        return None
    is_number = text.isascii() and text.isdigit()
    try:
        found = int(text) if is_number else dt.datetime.fromisoformat(text)
    except ValueError:
        raise SnapshotError(
            f"--at {text}: give a seq, or a time such as 2026-01-31T12:00:00+00:00"
        ) from None
    if isinstance(found, dt.datetime) and found.tzinfo is None:
        raise SnapshotError(f"--at {text}: the time needs a time zone, such as +00:00")
    return found


def shown(written: Written, *, as_json: bool) -> str:
    """What was written, for people or programs."""
    manifest = written.manifest
    if as_json:
        fields: dict[str, Any] = msgspec.to_builtins(manifest, str_keys=True)
        fields |= {"folder": written.folder, "fresh": written.fresh}
        return msgspec.json.encode(fields).decode()
    what = "written" if written.fresh else "there already"
    told = f"seq {manifest.seq}, {manifest.rows:,} keys, {manifest.digest}"
    return f"{written.folder}: {what}, {told}"


def _parser(*, submitted: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "streamydb-snapshot", description="Write a consistent snapshot of a database as Parquet."
    )
    add = parser.add_argument
    add("--database", help="name of the database")
    add("--bootstrap", help="Kafka's address, host:port[,host:port]")
    add("--to", required=True, help="folder, or URI of one, in which the snapshot gets its own")
    add("--at", help="a seq, or a time (ISO 8601 with zone); default: the newest that is resolved")
    add("--base", help="an older snapshot, so that only what came after it is read")
    add("--json", action="store_true", help="print the manifest as JSON")
    add("--log-level", default="WARNING")
    if not submitted:
        add("--master", default="local[*]", help="Spark's master")
    return parser

"""A database's data right after a seq: as a DataFrame, and as Parquet with a manifest."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from streamydb.backup.snapshots import (
    RowsDigest,
    SnapshotError,
    SnapshotManifest,
    SnapshotTail,
    read_manifest,
)
from streamydb.backup.snapshots.manifest import FORMAT
from streamydb.kafka.positions import ChangesEnds, look, offsets_json
from streamydb.settings import Settings
from streamydb.spark import rows
from streamydb.spark.folders import Folders, literal, require_writable, uri_of
from streamydb.spark.readers import events, value_as
from streamydb.spark.session import settings_of

At = int | dt.datetime | None  # a seq, a time, or None: the newest that is resolved
ROWS_PER_FILE: Final = 1_000_000
_FILES_MAX: Final = 1_000
_KEPT: Final = ("value", "version", "ts_ms", "txn_id", "expires_ms")


class WrittenSnapshot(NamedTuple):
    """A snapshot that was written, or was there already."""

    folder: str
    manifest: SnapshotManifest
    fresh: bool


class _SnapshotParts(NamedTuple):
    """The parts of a snapshot: the events up to `seq`, after those of a base."""

    ends: ChangesEnds
    events: DataFrame
    base: SnapshotManifest | None
    base_folder: str | None
    seq: int


def read_snapshot(
    spark: SparkSession,
    at: At = None,
    database: str | None = None,
    bootstrap: str | None = None,
    *,
    base: Path | str | None = None,
    schema: str | t.DataType | None = None,
    settings: Settings | None = None,
) -> DataFrame:
    """All keys that exist right after a seq: key, value (JSON text), version, ts, expires_ms.

    ``expires_ms``: the commit time from which on the key is absent; null: it has no end.

    Args:
        spark: the session.
        at: a seq, or a time with a time zone; by default the newest that is resolved.
        database: its name; by default STREAMYDB_DATABASE.
        bootstrap: Kafka's address; by default STREAMYDB_BOOTSTRAP.
        base: a Parquet snapshot at or before ``at``, so that only the changes after it are read.
        schema: the type of the values, see `value_as`.
        settings: instead of database and bootstrap, with authentication.

    Raises SnapshotError: the seq is not resolved yet, or changes that it needs are gone.
    """
    place = settings_of(database, bootstrap, settings)
    state = _state(spark, _cut(spark, place, at, base))
    frame = state.withColumn("ts", f.timestamp_millis("ts_ms"))
    frame = frame.select("key", "value", "version", "ts", "expires_ms")
    return frame if schema is None else frame.withColumn("value", value_as("value", schema))


def write_snapshot(
    spark: SparkSession,
    folder: Path | str,
    at: At = None,
    *,
    database: str | None = None,
    bootstrap: str | None = None,
    base: Path | str | None = None,
    settings: Settings | None = None,
) -> WrittenSnapshot:
    """Write a Parquet snapshot into a folder of its own in ``folder``: `<database>-<seq>`.

    One that is there already is left as it is. One that is interrupted leaves nothing under that
    name. The rows are read back for the digest, so what is named in the manifest can be read.

    Args:
        spark: the session.
        folder: a path or URI that Spark's executors and driver share.
        at: as for `read_snapshot`.
        database: as for `read_snapshot`.
        bootstrap: as for `read_snapshot`.
        base: as for `read_snapshot`.
        settings: as for `read_snapshot`.

    Raises SnapshotError: as `read_snapshot`; or the folder cannot be written.
    """
    place = settings_of(database, bootstrap, settings)
    cut = _cut(spark, place, at, base)
    folders = Folders(spark, folder)
    name = f"{place.database}-{cut.seq:020d}"
    known = folders.manifest(name)
    if known is not None:
        if known.topic != cut.ends.topic_id:
            raise SnapshotError(
                f"{folders.path(name)} is a snapshot of another database of that name (the topic "
                f"was made anew); name another folder"
            )
        return WrittenSnapshot(folders.path(name), known, fresh=False)
    with folders.draft(name) as draft:
        # How many files: by the number of rows that there may be.
        starts = _starts(cut.ends, cut.base)
        rows_max = sum(span.high - starts[number] for number, span in cut.ends.spans.items())
        rows_max += cut.base.rows if cut.base else 0
        files = max(1, min(_FILES_MAX, math.ceil(rows_max / ROWS_PER_FILE)))
        state = _state(spark, cut).repartitionByRange(files, "key").sortWithinPartitions("key")
        state.write.parquet(f"{draft}/data")
        frame = spark.read.parquet(f"{literal(draft)}/data")
        taken = frame.select("key", "value", "version", "ts_ms", "expires_ms")
        parts = taken.mapInArrow(rows.digests, rows.DIGESTS).collect()
        digest = RowsDigest().merge(
            RowsDigest(part["rows"], int.from_bytes(bytes(part["total"]), "little"))
            for part in parts
        )
        tails, ts_ms = _tails(cut)
        manifest = SnapshotManifest(
            format=FORMAT, database=place.database, cluster=cut.ends.cluster,
            topic=cut.ends.topic_id, seq=cut.seq, ts_ms=ts_ms, rows=digest.rows,
            digest=digest.hex(), changes=tails, files=folders.data_files(draft),
        )  # fmt: skip
        folders.write_manifest(draft, manifest)
    return WrittenSnapshot(folders.path(name), manifest, fresh=True)


def require_possible(
    settings: Settings, folder: Path | str, at: At, base: Path | str | None
) -> None:
    """Refuse what can be told to be impossible without a session, which takes long to start.
    Raises SnapshotError: as for `write_snapshot`.
    """
    require_writable(folder)
    ends, manifest, _ = _begun(settings, base)
    if not isinstance(at, dt.datetime):
        _require_after(manifest, base, _resolved(ends, at))


def _begun(
    settings: Settings, base: Path | str | None
) -> tuple[ChangesEnds, SnapshotManifest | None, dict[int, int]]:
    """Return the ends of the changes, the base, and the offsets from which to read."""
    manifest = None if base is None else read_manifest(base)
    ends = look(settings)
    if manifest is not None and manifest.topic != ends.topic_id:
        raise SnapshotError(f"the snapshot in {base} is not of the changes in {ends.topic}")
    return ends, manifest, _starts(ends, manifest)


def _require_after(manifest: SnapshotManifest | None, base: Path | str | None, seq: int) -> None:
    if manifest is not None and seq < manifest.seq:
        raise SnapshotError(f"the snapshot in {base} is at seq {manifest.seq}, after seq {seq}")


def _cut(
    spark: SparkSession, settings: Settings, at: At, base: Path | str | None
) -> _SnapshotParts:
    ends, manifest, starts = _begun(settings, base)
    options = {
        "startingOffsets": offsets_json(ends.topic, starts),
        "endingOffsets": offsets_json(ends.topic, {n: s.high for n, s in ends.spans.items()}),
    }
    event_frame = events(spark, settings, options)
    seq = (
        _seq_at(event_frame, ends, at, manifest)
        if isinstance(at, dt.datetime)
        else _resolved(ends, at)
    )
    _require_after(manifest, base, seq)
    return _SnapshotParts(ends, event_frame, manifest, None if base is None else uri_of(base), seq)


def _starts(ends: ChangesEnds, base: SnapshotManifest | None) -> dict[int, int]:
    """Return the offsets from which to read; everything that is needed must be there."""
    if base is not None and base.changes.keys() != ends.spans.keys():
        raise SnapshotError(f"{ends.topic} has other partitions than the snapshot: take a new one")
    starts = {n: base.changes[n].position if base else 0 for n in ends.spans}
    for number, start in starts.items():
        low = ends.spans[number].low
        if start < low:
            raise SnapshotError(
                f"{ends.topic}, partition {number}: the changes from offset {start} on are needed, "
                f"and those before {low} have expired. Begin with a snapshot that has them (base=, "
                "--base), and keep the topic longer (retention.ms)"
            )
    return starts


def _resolved(ends: ChangesEnds, at: Any) -> int:
    """The seq that is asked for; by default the newest."""
    if at is None:
        return ends.seq
    if isinstance(at, bool) or not isinstance(at, Integral):
        raise SnapshotError(f"at={at!r}: give a seq, which is an int, or a datetime")
    seq = int(at)  # of NumPy's, as a column of a DataFrame has them
    if not 0 <= seq <= ends.seq:
        raise SnapshotError(
            f"seq {seq} is not resolved: {ends.topic} is resolved up to seq {ends.seq}; wait until "
            "the pipeline is there, or ask for an older one"
        )
    return seq


def _seq_at(
    event_frame: DataFrame, ends: ChangesEnds, at: dt.datetime, base: SnapshotManifest | None
) -> int:
    if at.tzinfo is None:
        raise SnapshotError(f"{at} has no time zone: give one, such as datetime.UTC")
    ts_ms = math.floor(at.timestamp() * 1000)
    if ts_ms >= ends.ts_ms:
        return ends.seq
    if base is not None and ts_ms < base.ts_ms:
        raise SnapshotError(f"{at} is before the snapshot that is the base")
    up_to = event_frame.where(f.col("ts_ms") <= ts_ms).agg(f.max("seq")).first()
    last = None if up_to is None else up_to[0]
    return min(max(last or 0, base.seq if base else 0), ends.seq)


def _state(spark: SparkSession, cut: _SnapshotParts) -> DataFrame:
    """The newest version of each key up to the seq, without those that are deleted."""
    changes = cut.events.where(~f.col("resolved") & (f.col("seq") <= cut.seq)).select(
        "key", "op", f.col("after").alias("value"), f.col("seq").alias("version"), "ts_ms",
        "txn_id", f.nullif("expires_ms", f.lit(0)).alias("expires_ms"),
    )  # fmt: skip
    if cut.base is not None and cut.base_folder is not None and cut.base.files:
        after = changes.where(f.col("version") > cut.base.seq)
        folder = literal(cut.base_folder)
        existing = spark.read.parquet(*[f"{folder}/{name}" for name in cut.base.files])
        existing = existing.withColumn("op", f.lit("r"))
        changes = after.unionByName(existing)
    newest = changes.groupBy("key").agg(
        f.max_by(f.struct("op", *_KEPT), f.col("version")).alias("newest")
    )
    existing = newest.where(f.col("newest.op") != "d")
    return existing.select("key", *(f"newest.{name}" for name in _KEPT))


def _tails(cut: _SnapshotParts) -> tuple[dict[int, SnapshotTail], int]:
    """Return where each partition goes on after the snapshot, and the snapshot's time."""
    up_to: Column = f.col("seq") <= cut.seq
    points = f.when(up_to & f.col("resolved"), f.struct("seq", "offset"))
    grouped = cut.events.groupBy("partition").agg(
        f.min(f.when(~up_to, f.col("offset"))).alias("position"),
        f.max(f.when(up_to, f.col("ts_ms"))).alias("ts_ms"),
        f.max(points).alias("point"),
        f.max_by("offsets", points).alias("offsets"),
    )
    by_partition = {row["partition"]: row for row in grouped.collect()}
    base = cut.base.changes if cut.base else {}
    times = [row["ts_ms"] or 0 for row in by_partition.values()]
    tails = {
        number: _tail(by_partition.get(number), span.high, base.get(number))
        for number, span in cut.ends.spans.items()
    }
    return tails, max([*times, cut.base.ts_ms if cut.base else 0])


def _tail(row: Any, end: int, base: SnapshotTail | None) -> SnapshotTail:
    position = end if row is None or row["position"] is None else row["position"]
    if row is None or row["point"] is None:
        return SnapshotTail(position, base.seq if base else 0, base.offsets if base else {})
    offsets: Mapping[int, int] = msgspec.json.decode(
        row["offsets"], type=dict[int, int], strict=False
    )
    return SnapshotTail(position, row["point"]["seq"], dict(offsets))

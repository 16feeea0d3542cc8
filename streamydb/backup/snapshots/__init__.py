"""Snapshots as Parquet: a database's data right after one seq, in a folder of any file system.

In goes `<db>.changes`, by Spark (`write_snapshot`, `streamydb snapshot`, jobs/snapshot.py). Out
come a read model that goes on from there (`streamydb.read_model.load`), a new database with the
same values (`restore`), tables for DuckDB and for anything else that reads Parquet.

Layout: `data/part-*.parquet` (key, value as canonical JSON, version, ts_ms, txn_id), by key within
and along the files, and `manifest.json`, written last: without it a folder is no snapshot.

Invariants: a snapshot shows the writes of all transactions up to its seq and of none after it;
its manifest has a digest of all rows, which every reader can check (`digest`); and it says from
which offset of each partition of the changes a reader goes on, so that snapshot and tail together
miss nothing.
"""

from __future__ import annotations

from streamydb.backup.snapshots.manifest import SnapshotManifest, SnapshotTail, read_manifest
from streamydb.backup.snapshots.restoring import Restored, restore
from streamydb.backup.snapshots.rows import RowsDigest, read_rows, require_whole
from streamydb.errors import SnapshotError

__all__ = [
    "Restored",
    "RowsDigest",
    "SnapshotError",
    "SnapshotManifest",
    "SnapshotTail",
    "read_manifest",
    "read_rows",
    "require_whole",
    "restore",
]

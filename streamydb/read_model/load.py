"""Begin a read model from a Parquet snapshot, instead of from the first change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamydb.read_model.copies import drafted
from streamydb.read_model.core import PartitionProgress, ResolvedPoint, TopicProgress
from streamydb.read_model.errors import StoreMismatchError
from streamydb.read_model.model import ReadModel
from streamydb.read_model.rows import pack_row

if TYPE_CHECKING:
    from streamydb.backup.snapshots import SnapshotManifest


def load(
    snapshot: Path | str,
    folder: Path,
    database: str,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> None:
    """Make a read model that has a snapshot; its follower reads the changes from there on.

    It is then what a read model that has read everything is, at every seq from the snapshot's on.
    A load that was interrupted leaves nothing at ``folder``.

    ``folder``: the read model's; does not exist yet, or is empty.

    Raises:
        SnapshotError: there is no such snapshot, or it is damaged.
        StoreMismatchError: it is another database's.
        ReadModelError: something is in the folder already, or it cannot be written.
    """
    from streamydb.backup.snapshots import read_manifest

    manifest = read_manifest(snapshot)
    if manifest.database != database:
        raise StoreMismatchError(
            f"the snapshot in {snapshot} is of the database {manifest.database!r}, not of "
            f"{database!r}"
        )
    with drafted(folder) as draft, ReadModel.open(draft, database, write=True) as model:
        count = 0
        for batch in _rows(snapshot, manifest):
            model.store.preload(batch)
            count += len(batch)
            progress(count, manifest.rows)
        # As if the changes had been read up to the snapshot.
        parts = {
            number: PartitionProgress(
                tail.position, ResolvedPoint(manifest.seq, manifest.ts_ms, tail.offsets)
            )
            for number, tail in manifest.changes.items()
        }
        model.store.begin_at(TopicProgress(manifest.topic, parts), manifest.seq, manifest.ts_ms)


def _rows(snapshot: Path | str, manifest: SnapshotManifest) -> Iterator[list[bytes]]:
    from streamydb.backup.snapshots import read_rows

    for batch in read_rows(snapshot, manifest):
        yield [
            pack_row(row.key, row.version, row.ts_ms, row.txn_id, row.value, row.expires_ms or 0)
            for row in batch
        ]

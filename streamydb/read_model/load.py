"""Begin a read model with a Parquet snapshot, or with a copy of another one: both are faster than
the topic, and possible when its start has expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamydb.errors import ReadModelError
from streamydb.local.file_lock import scratch, sync
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


_SHARED: Final = 0o777  # facades of other users read it, as far as the process's mask lets them


def copy_to(model: ReadModel, folder: Path) -> None:
    """Write a consistent copy of a read model, which may be written meanwhile.

    The copy has the position in the topic: open it and follow, and it has the same data. A copy
    that was interrupted leaves nothing at ``folder``.

    Args:
        model: open for reading or writing.
        folder: does not exist yet, or is empty.

    Raises ReadModelError: something is in the folder already, or it cannot be written.
    """
    with drafted(folder) as draft:
        model.store.environment.copy(draft)


@contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """A folder to make a read model in, which takes its place when the block ends well.

    What a process that was killed has left of one is removed before.
    Raises ReadModelError: something is in ``folder`` already, or it cannot be written.
    """
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ReadModelError(f"{folder} is not empty: name a folder that does not exist yet")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch(folder.parent, f"{folder.name}.partial-", _SHARED) as draft:
            yield draft
            for path in (*draft.iterdir(), draft):
                sync(path)
            draft.replace(folder)
            sync(folder.parent)
    except OSError as fault:
        raise ReadModelError(f"{folder} cannot be written: {fault}") from fault

"""The end of a backup, held against the log that it is to be used with.

A broker may lose the tail of the log after it was copied, and the log then grows past there. What
comes after the backup's end belongs to another history, so the two must not be joined. The
pipeline's shards compare their ends in the same way (`sorter.state`).
"""

from __future__ import annotations

from collections.abc import Mapping

from streamydb.backup.folder import BackupFolder
from streamydb.backup.kafka import BackupLog
from streamydb.backup.manifest import BackupError
from streamydb.backup.pieces import Row
from streamydb.kafka.reader import Span

_ADVICE = (
    "keep this backup, it has what the log has lost; to go on with the log as it is, take a new "
    "backup in another folder (docs/operations.md, 'The end of the log is lost')"
)


def require_same_end(folder: BackupFolder, log: BackupLog, spans: Mapping[int, Span]) -> None:
    """Refuse a log that does not have the last record that a backup has of each partition.

    A partition that was trimmed past that record cannot be compared.
    Raises BackupError: the log has another record there, or none.
    """
    for partition, span in spans.items():
        last = folder.last_row(partition)
        if last is not None and last[0] >= span.low:
            _require(folder, log, partition, last, span)


def _require(folder: BackupFolder, log: BackupLog, partition: int, last: Row, span: Span) -> None:
    """Refuse a partition of the log if it has been there, and is not now."""
    offset, append_ms, *_ = last
    if offset >= span.high:
        raise BackupError(
            f"{folder.folder} has partition {partition} up to offset {offset + 1}, and {log.topic} "
            f"ends at {span.high}: the end of the log was lost, say with a broker's power; "
            f"{_ADVICE}"
        )
    if last == log.row(partition, offset) or log.low(partition) > offset:
        return
    raise BackupError(
        f"{log.topic} is not what {folder.folder} has copied: the last record of partition "
        f"{partition} was at offset {offset}, appended at {append_ms} ms, and is now another one, "
        "or none. So the end of the log was lost, say with a broker's power, and has grown again; "
        f"{_ADVICE}"
    )

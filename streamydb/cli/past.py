"""The log that a question to the past is about: of a live database, or of a backup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamydb.cli.common import fail

if TYPE_CHECKING:
    from streamydb.backup import BackupFolder
    from streamydb.cli.target import Target
    from streamydb.verify.whatif import History


def live_history(target: Target) -> History:
    """The log as Kafka has it. Raises Failure: it was trimmed, or is not there."""
    from streamydb.backup.kafka import BackupLog
    from streamydb.cli.backup_options import subject_of
    from streamydb.local.module_folder import FolderModules
    from streamydb.verify.whatif import History

    subject = subject_of(target)
    log = BackupLog(subject.connection, subject.database)
    spans = log.spans()
    if any(span.low for span in spans.values()):
        fail(
            f"the log of {target.database} was trimmed: bring the backup that it was trimmed "
            "behind up to date (`streamydb backup FOLDER`), and ask that (--backup FOLDER)"
        )
    return History(
        subject.database, log, {number: span.high for number, span in spans.items()},
        subject.partitions, subject.id_window,
        FolderModules([subject.procedures]),
    )  # fmt: skip


def of_this_log(target: Target, folder: Path) -> BackupFolder:
    """The backup in a folder, if it is one of this database. Raises BackupError: it is not."""
    from streamydb.backup import BackupFolder
    from streamydb.backup.trim import must_be_of
    from streamydb.cli.backup_options import subject_of

    backup = BackupFolder(folder)
    must_be_of(backup, backup.manifest(), subject_of(target).log)
    return backup


def backup_history(target: Target, folder: Path) -> History:
    """The log as a backup has it; Kafka is not asked."""
    from streamydb.backup import BackupFolder
    from streamydb.local.module_folder import FolderModules
    from streamydb.verify.whatif import History

    backup = BackupFolder(folder)
    manifest = backup.manifest()
    return History(
        manifest.database, backup, manifest.ends, manifest.partitions, manifest.id_window,
        FolderModules([backup.procedures, target.procedures]),
        lambda seq: backup.newest_state(manifest, seq),
    )  # fmt: skip

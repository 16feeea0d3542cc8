"""`streamydb backup` and `trim`: keep a copy of the log, delete what the copy has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import EXIT_NO, print_json, say
from streamydb.cli.options import DatabaseOptions, Json, Procedures
from streamydb.cli.phases import Phases
from streamydb.cli.target import find_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamydb.backup.needs import Need
    from streamydb.backup.trim import Cut
    from streamydb.local.folder import DatabaseFolder

Folder = Annotated[Path, typer.Argument(help="The folder of the backup.")]


def backup(
    folder: Folder,
    options: DatabaseOptions,
    procedures: Procedures = None,
    keep: Annotated[
        int, typer.Option(help="States to keep, the newest; `trim` cuts at the oldest.", min=1)
    ] = 2,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Hold the copy against told digests.")
    ] = True,
    json: Json = False,
) -> None:
    """Copy the log while the database runs, and check the copy by executing it.

    Run it again to go on where the last backup, or an interrupted one, ended.
    """
    from streamydb.backup import BackupFolder
    from streamydb.backup.copy import take
    from streamydb.cli.backup_options import noting, resolved_seq, size_of, subject_of

    target = find_target(options, procedures=procedures)
    with Phases().phase(f"Backup of {target.database}") as phase:
        subject = subject_of(target)
        seq = resolved_seq(target)
        backup_folder = BackupFolder(folder)
        copy = take(backup_folder, subject, seq, keep, noting(phase), compare=compare)
        phase.outcome = f"seq {copy.seq:,}, {copy.records:,} records copied, {copy.keys:,} keys"
    if json:
        print_json({**copy._asdict(), "folder": str(folder), "bytes": size_of(folder)})
        return
    say(
        f"{folder}: any seq up to {copy.seq} can be restored; its state is {copy.digest}, and "
        f"{copy.verified} digests of the pipeline agree with the copy."
    )


def trim(
    folder: Folder,
    options: DatabaseOptions,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only say what.")] = False,
    without: Annotated[
        list[str] | None, typer.Option(help="A pipeline that is gone for good and needs nothing.")
    ] = None,
    json: Json = False,
) -> None:
    """Delete the beginning of the log, up to the oldest state of a backup; without --yes, say what.

    Refuses (exit code 3) while a pipeline, a standby or the read model is not past that state.
    """
    from streamydb.backup import BackupFolder
    from streamydb.backup import trim as trims
    from streamydb.backup.kafka import BackupLog
    from streamydb.backup.needs import Need, needs
    from streamydb.cli.backup_options import noting, resolved_seq, subject_of

    target = find_target(options)
    backup_folder = BackupFolder(folder)
    with Phases().phase(f"Reading {folder}") as phase:
        subject = subject_of(target)
        log = BackupLog(subject.connection, subject.database)
        cut = trims.cut(backup_folder, backup_folder.manifest(), subject.log, log.spans())
        all_needs = list(needs(subject.connection, subject.database, subject.log, target.files))
        all_needs += _read_model_needs(target.files, subject.database)
        all_needs.append(Need("what is resolved", "resolved", resolved_seq(target), None))
        against = trims.refusals(cut, all_needs, without or ())
        trims.verify(backup_folder, cut, log, noting(phase))
        phase.outcome = f"whole; oldest state at seq {cut.about.seq:,}"
    if yes and not against:
        trims.trim(subject.connection, subject.database, cut)
    if json:
        deletes = {str(n): list(span) for n, span in cut.deletes.items()}
        print_json({
            "seq": cut.about.seq, "records": cut.records, "deletes": deletes,
            "refused": against, "deleted": yes and not against,
        })  # fmt: skip
    else:
        _tell(cut, against, deleted=yes)
    if against:
        raise typer.Exit(EXIT_NO)


def _read_model_needs(place: DatabaseFolder, database: str) -> Iterator[Need]:
    """The read model of this home: what it lacks comes from the changes, not from the log; but
    while it is behind, nobody has seen that those are whole.
    """
    from streamydb.backup.needs import Need
    from streamydb.read_model import ReadModel, StoreMissingError

    if not place.read_model.exists():
        return
    try:
        model = ReadModel.open(place.read_model, database)
    except StoreMissingError:
        return
    try:
        seq = model.store.resolved().seq
    finally:
        model.close()
    yield Need(f"the read model {place.read_model}", "read-model", seq, None)


def _tell(cut: Cut, against: list[str], *, deleted: bool) -> None:
    for number, span in sorted(cut.deletes.items()):
        say(f"  partition {number}: offsets {span.low:,} to {span.high - 1:,}")
    for line in against:
        say(f"  refused: {line}")
    if against:
        say("Nothing was deleted. Bring these up to date, or, if one is gone for good, --without.")
    elif not cut.deletes:
        say("There is nothing to delete before the oldest state of the backup.")
    elif deleted:
        say(
            f"{cut.records:,} records were deleted. New checkpoints begin with --from-state and "
            "this backup from now on; keep it."
        )
    else:
        say(f"{cut.records:,} records can be deleted: run the same command with --yes.")

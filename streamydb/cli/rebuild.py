"""`streamydb rebuild`: replace a checkpoint that cannot be used any more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamydb.cli.common import fail, print_json, say
from streamydb.cli.options import MASTER, DatabaseOptions, Json, Master, Procedures, ReadyTimeout
from streamydb.cli.phases import Phases
from streamydb.cli.target import find_target

if TYPE_CHECKING:
    from streamydb.cli.target import Target


def rebuild(
    options: DatabaseOptions,
    from_backup: Annotated[
        Path | None, typer.Option(help="Begin with the newest state of this backup.")
    ] = None,
    name: Annotated[str, typer.Option(help="Of a pipeline that has one, say a standby.")] = "",
    procedures: Procedures = None,
    master: Master = MASTER,
    timeout: ReadyTimeout = 180.0,
    json: Json = False,
) -> None:
    """Set a damaged checkpoint aside and execute the log again, from its beginning or a backup.

    Nothing is decided anew: all outputs are written again with the same bytes. One with a name is
    not started: start it as before.
    """
    from streamydb.cli.launch import start_pipeline, wait_until_ready
    from streamydb.cli.undone import undone_if_interrupted
    from streamydb.cli.up import refuse_second, start_broker

    target = find_target(options, procedures=procedures)
    phases = Phases()
    checkpoint = target.files.checkpoint_of(name)
    report: dict[str, Any] = {"database": target.database}
    with undone_if_interrupted(target, phases):
        start_broker(target, None, phases)
        if target.files.record() is None and not checkpoint.exists():
            fail(
                f"there is no checkpoint of {target.database} in {target.settings.home}: run this "
                "with the --home that its pipeline has; with spark-submit see docs/operations.md, "
                "'A damaged checkpoint'"
            )
        if not name and not checkpoint.exists():
            refuse_second(target, "To mend that one's checkpoint: see docs/operations.md")
        with phases.phase("The checkpoint") as phase:
            report["old_checkpoint"] = _put_aside(target, checkpoint, from_backup)
            phase.outcome = f"is now {report['old_checkpoint'] or 'a new one'}"
        if not name:
            extra = [] if from_backup is None else ["--from-state", str(from_backup)]
            with phases.phase("Pipeline") as phase:
                start_pipeline(target, master, extra)
                status = wait_until_ready(target, timeout, phase)
                phase.outcome = f"executes the log, process {status.pid}"
    if json:
        print_json(report)
    else:
        say(
            "`streamydb status` tells how far it is, `streamydb check` proves it at the end. "
            "Delete the old checkpoint when you are content."
        )


def _put_aside(target: Target, checkpoint: Path, from_backup: Path | None) -> str | None:
    """Record the founding facts beside the log, then rename the checkpoint."""
    from streamydb.backup import resize as sizes

    _require_beginning(target, from_backup)
    if not checkpoint.exists():
        return None
    with sizes.standing_still(checkpoint):
        _keep_founding(target, checkpoint)
        return str(sizes.put_aside(checkpoint))


def _require_beginning(target: Target, from_backup: Path | None) -> None:
    """Refuse before anything is moved: changes that are of no use; a trimmed log without a backup,
    which must be whole and of this log, and which the log must go on from.
    """
    from streamydb import kafka
    from streamydb.backup import StateFolder
    from streamydb.backup.start import find_state
    from streamydb.kafka.positions import written_until
    from streamydb.pipeline.preparation import require_rest, require_same_history
    from streamydb.pipeline.record import lack_beginning

    topics = kafka.describe(target.connection, target.database)
    names = kafka.TopicNames(target.database)
    log = topics.get(names.transactions)
    if log is None:
        fail(f"there is no database {target.database} at {target.bootstrap}")
    if names.changes in topics:
        for problem in kafka.changes_problems(target.connection, target.database):
            fail(f"{problem.topic}: {problem.what}. {problem.fix}")
        require_same_history(target.connection, target.database)
    if from_backup is None:
        if any(log.beginnings):
            fail(
                f"the log of {target.database} was trimmed: name the backup that it was trimmed "
                "behind (--from-backup FOLDER)"
            )
        return
    state = StateFolder(find_state(from_backup))
    state.require_whole()
    about = state.about()
    if about.log != kafka.log_id(target.connection, target.database):
        fail(f"{from_backup} is of another log than that of {target.database}")
    require_rest(target.connection, names.transactions, about.positions)
    if names.changes not in topics:
        return
    written = written_until(target.connection, target.database)
    if lack_beginning(written, about.seq):
        fail(
            f"{names.changes} has the changes up to seq {written}: those up to seq {about.seq} "
            "would not come back. Leave --from-backup out; if the log was trimmed, restore the "
            "backup into a new database (`streamydb restore`)"
        )


def _keep_founding(target: Target, checkpoint: Path) -> None:
    """Record what only a checkpoint knows, where somebody has deleted the founding facts. A damaged
    one knows nothing, and one of another log nothing of this one.
    """
    from streamydb import kafka
    from streamydb.errors import ConfigurationError
    from streamydb.kafka.foundation import facts_of
    from streamydb.pipeline.record import read_record, require_own

    log = kafka.log_id(target.connection, target.database)
    try:
        require_own(checkpoint, target.database, log)
        recorded = read_record(checkpoint)
    except ConfigurationError:
        return
    if recorded is None:
        return
    kafka.add_shared(target.connection, target.database)
    founding = kafka.FoundingFacts(log=log, **facts_of(recorded))
    kafka.record(target.connection, target.database, founding)

"""`streamydb fork`: a new database that begins with the state of a moment of another one."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import EXIT_USAGE, fail
from streamydb.cli.options import (
    DatabaseOptions,
    Json,
    Procedures,
    ReplicaOptions,
    TrimmedBehind,
    point_option,
)
from streamydb.cli.restore import Shards, empty_target, fill, tell
from streamydb.cli.target import find_target

if TYPE_CHECKING:
    from streamydb.backup.fork import LiveLog


def fork(
    name: Annotated[str, typer.Argument(help="The new database's name.")],
    options: DatabaseOptions,
    replicas: ReplicaOptions,
    at: Annotated[str | None, point_option("now")] = None,
    shards: Shards = None,
    backup: TrimmedBehind = None,
    procedures: Procedures = None,
    json: Json = False,
) -> None:
    """Make a new database that is right after any seq of another one, while that runs.

    Run it again if it was interrupted. Nothing is written to the other one.
    """
    from streamydb.backup import BackupFolder
    from streamydb.backup.fork import live, moment_at
    from streamydb.cli.backup_options import noting, subject_of
    from streamydb.cli.phases import Phases

    source = find_target(options, procedures=procedures)
    if name == source.database:
        fail(f"{name} is the database itself: name a new one", EXIT_USAGE)
    subject = subject_of(source)
    log = live(subject, None if backup is None else BackupFolder(backup))
    new = DatabaseOptions(name, options.home, options.bootstrap or source.bootstrap)
    target = empty_target(log.manifest, new, shards, replicas)
    if target.files.record() is not None:
        fail(f"there is a database {name} in {target.settings.home} already: name another one")
    with Phases().phase(f"Reading {source.database}") as phase:
        about = moment_at(log, _seq(log, at), noting(phase))
        phase.outcome = f"seq {about.seq:,}, {about.keys:,} keys"
    appended = fill(target, log.manifest, log, about, log.modules.places)
    tell(target, about, appended, json=json)


def _seq(log: LiveLog, at: str | None) -> int | None:
    from streamydb.backup.fork import seq_until
    from streamydb.spark.snapshot import moment

    time = moment(at)
    return seq_until(log, log.manifest, time) if isinstance(time, dt.datetime) else time

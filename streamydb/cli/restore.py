"""`streamydb restore` and `resize`: a new database from a backup; other shards or partitions."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamydb.cli.common import EXIT_USAGE, fail, print_json, say
from streamydb.cli.create import copies_of
from streamydb.cli.options import DatabaseOptions, Json, Procedures, ReplicaOptions, point_option
from streamydb.cli.phases import Phases, bar
from streamydb.cli.target import find_target
from streamydb.limits import PARTITIONS_MAX, SHARDS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamydb.backup import BackupFolder, BackupManifest
    from streamydb.backup.pieces import LogSource
    from streamydb.backup.state import StateDescription
    from streamydb.cli.phases import Phase
    from streamydb.cli.target import Target
    from streamydb.kafka import TopicDescription

Shards = Annotated[
    int | None,
    typer.Option(
        "--shards", help="Slices of the keys (default: as before).", min=1, max=SHARDS_MAX
    ),
]


def restore(
    folder: Annotated[Path, typer.Argument(help="The folder of the backup.")],
    options: DatabaseOptions,
    replicas: ReplicaOptions,
    at: Annotated[str | None, point_option("the newest")] = None,
    shards: Shards = None,
    json: Json = False,
) -> None:
    """Make a new database that is right after any seq of a backup.

    Run it again if it was interrupted. The new database's pipeline executes the restored log.
    """
    from streamydb.backup import BackupFolder
    from streamydb.backup.restore import prefix
    from streamydb.cli.backup_options import noting
    from streamydb.cli.undone import undone_if_interrupted
    from streamydb.cli.up import start_broker

    backup = BackupFolder(folder)
    manifest = backup.manifest()
    new = options._replace(database=options.database or manifest.database)
    target = empty_target(manifest, new, shards, replicas)
    phases = Phases()
    with phases.phase(f"Reading {folder}") as phase:
        about = prefix(backup, manifest, _seq(backup, manifest, at), noting(phase))
        phase.outcome = f"seq {about.seq:,}, {about.keys:,} keys"
    with undone_if_interrupted(target, phases):
        start_broker(target, None, phases)
        appended = fill(target, manifest, backup, about, [backup.procedures])
    tell(target, about, appended, json=json)


def resize(
    options: DatabaseOptions,
    shards: Shards = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            help="Partitions of the log; it can only get more.", min=1, max=PARTITIONS_MAX
        ),
    ] = None,
    procedures: Procedures = None,
    from_state: Annotated[
        Path | None, typer.Option(help="A backup to begin with, not with the whole log.")
    ] = None,
    json: Json = False,
) -> None:
    """Change the number of shards (of a stopped database) or of the log's partitions (any time)."""
    from streamydb.cli.undone import undone_if_interrupted
    from streamydb.cli.up import start_broker

    target = find_target(options, procedures=procedures)
    if shards is None and partitions is None:
        fail("name --shards, --partitions or both", EXIT_USAGE)
    phases = Phases()
    report: dict[str, Any] = {"database": target.database}
    with undone_if_interrupted(target, phases):
        start_broker(target, None, phases)
        if shards is not None:
            report |= _reshard(target, shards, from_state)
        if partitions is not None:
            from streamydb.kafka import grow

            with phases.phase(f"The log of {target.database}") as phase:
                grow(target.connection, target.database, partitions)
                phase.outcome = f"has {partitions} partitions"
            report["partitions"] = partitions
    if json:
        print_json(report)
    elif shards is not None:
        say(
            f"{target.database} has {shards} shards from seq {report['seq']} on (state "
            f"{report['digest']}); the old checkpoint is {report['old_checkpoint']}. Start the "
            "pipeline (`streamydb up`), then standbys with new checkpoints (--from-state)."
        )


def _reshard(target: Target, shards: int, from_state: Path | None) -> dict[str, Any]:
    import msgspec

    from streamydb import kafka
    from streamydb.backup import BackupFolder, StateFolder
    from streamydb.backup import resize as sizes
    from streamydb.backup.start import START
    from streamydb.cli.backup_options import noting, resolved_seq, subject_of
    from streamydb.cli.status import pipelines_elsewhere

    checkpoint = target.files.checkpoint
    if target.settings.grouping != "planner":
        fail(
            f"{target.database} has grouping=single, whose state cannot be divided: restore a "
            "backup of it into another database (`streamydb restore --shards`)"
        )
    if target.files.record() is None:
        fail(
            f"{target.database} has no record in {target.settings.home}: run this with the --home "
            "that its pipeline has; with spark-submit see docs/backup.md"
        )
    # Refuse while a pipeline with a name, or one elsewhere, executes with the old number of shards:
    # its feedback is about to be dropped.
    for name in target.files.others():
        status = target.files.status(name)
        if status.runs:
            fail(f"the pipeline {name} runs (process {status.pid}): stop it first")
    for pipeline in pipelines_elsewhere(target) or ():
        fail(
            f"{target.database} is executed elsewhere, by pipeline {pipeline}: stop it first. One "
            "that has just ended counts for half a minute"
        )
    backup = None if from_state is None else BackupFolder(from_state)
    with sizes.standing_still(checkpoint), Phases().phase("The state") as phase:
        subject = subject_of(target)
        draft = checkpoint.with_name("checkpoint.draft")
        about = sizes.divide(
            subject, checkpoint, backup, resolved_seq(target), StateFolder(draft / START),
            noting(phase),
        )  # fmt: skip
        kafka.reshard(target.connection, target.database, shards)
        aside = sizes.put_aside(checkpoint)
        draft.rename(checkpoint)
        record = target.files.record()
        if record is not None:
            target.files.write_record(msgspec.structs.replace(record, shards=shards))
        phase.outcome = f"seq {about.seq:,}, {about.keys:,} keys"
    return {
        "shards": shards,
        "seq": about.seq,
        "keys": about.keys,
        "digest": about.digest,
        "old_checkpoint": str(aside),
    }


def _seq(backup: BackupFolder, manifest: BackupManifest, at: str | None) -> int:
    from streamydb.backup.restore import seq_at
    from streamydb.spark.snapshot import moment

    time = moment(at)
    if time is None:
        return manifest.seq
    return seq_at(backup, manifest, time) if isinstance(time, dt.datetime) else time


def fill(
    target: Target,
    manifest: BackupManifest,
    source: LogSource,
    about: StateDescription,
    procedures: Sequence[Path],
) -> int:
    """Put the beginning of a log into a new database; return how many records were appended.
    ``about``: the state that the new one shall come to. Raises BackupError: the new log has other
    records, or Kafka did not take some.
    """
    import shutil

    from streamydb import kafka
    from streamydb.backup import BackupError
    from streamydb.backup.restore import append_log, keep_rulings, lines, open_log
    from streamydb.kafka.foundation import facts_of
    from streamydb.local.file_lock import lock_at_once
    from streamydb.local.folder import DatabaseRecord

    another = BackupError(f"another `restore` or `fork` writes to {target.database}: wait for it")
    with (
        lock_at_once(target.files.folder / "restore.lock", another),
        Phases().phase(f"Restoring into {target.database}") as phase,
    ):
        _make_topics(target, manifest)
        contents = {n: lines(source, manifest, n, about.positions) for n in sorted(manifest.ends)}
        total = sum(state.position for state in about.positions.values())
        appended = append_log(
            target.connection, target.database, contents, lambda done: _note(phase, done, total)
        )
        keep_rulings(target.connection, target.database, source.rulings(), about.positions)
        # Record how the database was founded, and put its modules where its pipeline finds them.
        log = kafka.log_id(target.connection, target.database)
        founding = kafka.FoundingFacts(log=log, **facts_of(manifest))
        kafka.record(target.connection, target.database, founding)

        target.procedures.mkdir(parents=True, exist_ok=True)
        for path in (path for folder in procedures for path in folder.glob("*.py")):
            copy = target.procedures / path.name
            if not (copy.exists() and copy.samefile(path)):
                shutil.copy2(path, copy)
        open_log(target.connection, target.database)
        # Record in this home how the database was made: from now on it is there.
        settings = target.settings
        target.files.write_record(
            DatabaseRecord(
                database=target.database, shards=settings.shards, partitions=manifest.partitions,
                grouping=manifest.grouping, id_window=manifest.id_window,
                digest_interval=manifest.digest_interval, bootstrap=settings.bootstrap,
            )
        )  # fmt: skip
        phase.outcome = f"{appended:,} records appended"
    return appended


def empty_target(
    manifest: BackupManifest, options: DatabaseOptions, shards: int | None, replicas: ReplicaOptions
) -> Target:
    """The new database: settings of the old one unless options say otherwise.
    Raises Failure: it exists.
    """
    target = find_target(
        options,
        shards=shards or manifest.shards, grouping=manifest.grouping,
        id_window=manifest.id_window, digest_interval=manifest.digest_interval,
        **replicas._asdict(),
    )  # fmt: skip
    if target.files.checkpoint.exists():
        fail(
            f"database {target.database} has run in {target.settings.home} already: name another "
            "one with --database"
        )
    return target


def _make_topics(target: Target, manifest: BackupManifest) -> None:
    """The topics of the new database; those of an interrupted call are taken as they are. Raises
    Failure: a database that has been used is there.
    """
    from streamydb import kafka
    from streamydb.backup.restore import close_log
    from streamydb.kafka.topic_plans import LOADING, STAMPS

    settings, names = target.settings, kafka.TopicNames(target.database)
    topics = kafka.describe(target.connection, target.database)
    log, partitions = topics.get(names.transactions), max(manifest.partitions, len(manifest.ends))
    _refuse_used(target, topics, partitions)
    copies = copies_of(target)
    loading = log is None or log.settings.get(STAMPS) == LOADING
    kafka.create(
        target.connection,
        target.database,
        partitions=manifest.partitions if log is None else log.partitions,
        shards=settings.shards,
        replication=copies.replication,
        min_insync=copies.min_insync,
        changes_partitions=settings.changes_partitions,
        loading=loading,
    )
    kafka.grow(target.connection, target.database, partitions)
    if log is None or loading or not any(log.ends):
        close_log(target.connection, target.database)


def _refuse_used(target: Target, topics: Mapping[str, TopicDescription], partitions: int) -> None:
    """Refuse, before anything is changed, a database that is no interrupted restore. Raises
    Failure: it has outputs, or records in a log that would have to get more partitions.
    """
    from streamydb.kafka import TopicNames

    names = TopicNames(target.database)
    used = any(any(topics[name].ends) for name in (names.results, names.changes) if name in topics)
    log = topics.get(names.transactions)
    if used or (log is not None and any(log.ends) and log.partitions < partitions):
        fail(
            f"there is a database {target.database} at {target.bootstrap} already, and it has been "
            "used: name another one. Nothing was changed"
        )


def tell(target: Target, about: StateDescription, appended: int, *, json: bool) -> None:
    if json:
        print_json({
            "database": target.database, "seq": about.seq, "ts_ms": about.ts_ms,
            "keys": about.keys, "digest": about.digest, "appended": appended,
        })  # fmt: skip
        return
    say(
        f"{target.database} is right after seq {about.seq}: {about.keys:,} keys, state "
        f"{about.digest}. Start it with `{target.command('up')}`: its pipeline executes the log; "
        f"`{target.command('check')}` proves it."
    )


def _note(phase: Phase, count: int, total: int) -> None:
    if count % 10_000 == 0:
        phase.note(f"{bar(count, total)} {count:,} of {total:,} records")

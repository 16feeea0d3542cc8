"""`streamydb create`: the topics of a database, on any Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from streamydb.cli.common import fail, print_json, say
from streamydb.cli.options import DatabaseOptions, FoundingOptions, Json, ReplicaOptions
from streamydb.cli.target import Target, find_target

if TYPE_CHECKING:
    from streamydb.backup.snapshots import Restored
    from streamydb.kafka import Copies, TopicNames
    from streamydb.local.folder import DatabaseRecord

Sync = Annotated[
    bool | None,
    typer.Option(
        "--sync/--no-sync",
        help="Have brokers write to the disk before they acknowledge (default: as it is).",
    ),
]

Connect = Annotated[
    bool,
    typer.Option(
        "--connect",
        help="Keep a copy of the changes for Kafka Connect, too (`streamydb connect` writes it); "
        "any time.",
    ),
]


def create(
    options: DatabaseOptions,
    founding: FoundingOptions,
    replicas: ReplicaOptions,
    from_snapshot: Annotated[
        str | None,
        typer.Option(help="Put the values of this Parquet snapshot into the new database."),
    ] = None,
    sync: Sync = None,
    connect: Connect = False,
    json: Json = False,
) -> None:
    """Create the topics of a database; does nothing if they are there with these settings."""
    from streamydb import kafka

    target = find_target(options, **founding._asdict(), **replicas._asdict())
    target.must_listen()
    names, copies = create_database(target, sync)
    topics = [*names.all()]
    if connect:
        topics.append(kafka.add_connect(target.connection, target.database))
    restored = None if from_snapshot is None else load_snapshot(target, from_snapshot)
    if json:
        record = target.files.record()
        facts = {
            "database": target.database, "topics": topics, "record": record,
            "copies": copies._asdict(),
        }  # fmt: skip
        print_json(facts if restored is None else {**facts, "restored": restored._asdict()})
        return
    say(f"database {target.database} at {target.bootstrap}: {', '.join(topics)}")
    say(f"{copies.replication} copies of each topic, {copies.min_insync} of which acknowledge")
    say(f"Next: `{target.command('up')}` starts its pipeline.")


def load_snapshot(target: Target, folder: str) -> Restored:
    """Append the values of a snapshot; go on where an earlier call was interrupted. Raises
    SnapshotError: there is no such snapshot, or the log has other records.
    """
    from streamydb import kafka
    from streamydb.backup.snapshots import restore
    from streamydb.cli.phases import Phases, bar

    with Phases().phase(f"Loading {folder}") as phase:
        restored = restore(
            folder, target.connection, target.database,
            lambda done, total: phase.note(f"{bar(done, total)} {done:,} of {total:,} keys"),
        )  # fmt: skip
        phase.outcome = (
            f"{restored.rows:,} keys in {restored.transactions:,} transactions, "
            f"{restored.appended:,} of them new; their versions are those of these transactions"
        )
    log = kafka.log_id(target.connection, target.database)
    kafka.renew(target.connection, target.database, log, log)
    if restored.left_out:
        say(
            f"{restored.left_out:,} keys that begin with $ were left out, as only the database "
            "writes those: deploy procedures and declare constraints again"
        )
    return restored


def create_database(target: Target, sync: bool | None = None) -> tuple[TopicNames, Copies]:
    """Create the topics and keep how the database was created; warn of too few copies. ``sync``:
    whether brokers write to the disk before they acknowledge; None: as it is. Raises Failure: the
    database exists with other shards, or another grouping; TopicsError: a topic exists with other
    settings, or Kafka does not answer.
    """
    from streamydb import kafka

    settings = target.settings
    refuse_changes(target)
    record = target.files.record()
    copies = copies_of(target)
    names = kafka.create(
        target.connection, target.database, partitions=_partitions(target, record),
        shards=settings.shards, replication=copies.replication, min_insync=copies.min_insync,
        changes_partitions=settings.changes_partitions,
    )  # fmt: skip
    if sync is not None:
        kafka.set_sync(target.connection, target.database, on=sync)
    if record is None:
        _found(target)
        from streamydb.local.folder import DatabaseRecord

        settings = target.settings
        target.files.write_record(
            DatabaseRecord(
                database=target.database,
                shards=settings.shards,
                partitions=settings.partitions,
                grouping=settings.grouping,
                bootstrap=settings.bootstrap,
            )
        )
    return names, copies


def copies_of(target: Target) -> Copies:
    """Choose how many copies the topics have; say so if a lost disk could lose a transaction."""
    from streamydb import kafka

    settings = target.settings
    copies = kafka.copies_for(
        target.connection, target.database, settings.replication, settings.min_insync
    )
    if copies.danger is not None:
        say(f"warning: {copies.danger}")
    return copies


def refuse_changes(target: Target) -> None:
    """Refuse settings that contradict how the database was created."""
    record = target.files.record()
    if record is None:
        return
    for name in ("shards", "grouping"):
        asked_for, recorded = getattr(target.settings, name), getattr(record, name)
        if asked_for != recorded:
            other = (
                "change it with `streamydb resize`"
                if name == "shards"
                else "create another database (--database)"
            )
            fail(
                f"database {target.database} has {name} {recorded}, and {asked_for} was asked for. "
                f"Leave --{name} out, or {other}."
            )


def refuse_partitions(target: Target) -> None:
    """Refuse another number of partitions than the log of a database that runs has."""
    if "partitions" not in target.settings.model_fields_set:
        return
    asked_for, recorded = target.settings.partitions, target.must_exist().partitions
    if asked_for != recorded:
        fail(
            f"database {target.database} has partitions {recorded}, and {asked_for} was asked for. "
            "Leave --partitions out, or add some with `streamydb resize`."
        )


def _partitions(target: Target, record: DatabaseRecord | None) -> int:
    """Return how many partitions the log has, which may have grown, or shall have."""
    from streamydb import kafka

    if record is None:
        return target.settings.partitions
    name = kafka.TopicNames(target.database).transactions
    topic = kafka.describe(target.connection, target.database).get(name)
    if topic is None:
        return target.settings.partitions
    if "partitions" in target.settings.model_fields_set:
        return target.settings.partitions
    return topic.partitions


def _found(target: Target) -> None:
    """Record the wanted founding facts beside the log, unless some are recorded already."""
    from streamydb import kafka
    from streamydb.kafka.foundation import FACTS

    names = set(FACTS) & target.settings.model_fields_set - {"partitions"}
    if names:
        facts = {name: getattr(target.settings, name) for name in names}
        log = kafka.log_id(target.connection, target.database)
        founding = kafka.FoundingFacts(log=log, **facts)
        kafka.record(target.connection, target.database, founding)

"""Create, grow and delete the topics of a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import NewPartitions, NewTopic, TopicMetadata

from streamydb.kafka.admin import (
    LATEST,
    TIMEOUT_S,
    TopicDescription,
    TopicsError,
    answers,
    cluster,
    count_partitions,
    describe_topics,
    list_offsets,
    wait_until,
)
from streamydb.kafka.clients import ContactedAdmin, administrator
from streamydb.kafka.foundation import Founding, record
from streamydb.kafka.names import TopicNames
from streamydb.kafka.upkeep import is_synced, set_sync
from streamydb.limits import PARTITIONS_MAX, SHARDS_MAX

__all__ = [
    "RECORD_BYTES_MAX",
    "add_shared",
    "create",
    "delete",
    "describe",
    "existing",
    "grow",
    "log_id",
    "reshard",
]

RECORD_BYTES_MAX = 1_048_588
"""`max.message.bytes` of every topic: the largest batch of records that a broker takes."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Plan:
    """A topic as it shall be created."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


def create(
    client_config: Mapping[str, str],
    database: str,
    partitions: int = 1,
    shards: int = 1,
    replication: int = 1,
    min_insync: int = 1,
    changes_partitions: int = 4,
) -> TopicNames:
    """Create the topics of a database that do not exist yet; the others must be as asked for.

    Args:
        client_config: the connection, as of `Settings.client_config`.
        database: the database's name.
        partitions: partitions of the log, 1 to 1024.
        shards: slices of the keys, 1 to 64; `streamydb resize` changes them.
        replication: copies of each topic.
        min_insync: copies that must have a record before it counts as written.
        changes_partitions: partitions of the change feed.

    Raises:
        ValueError: an argument is out of its bounds.
        TopicsError: a topic exists with other settings, or the cluster refuses or does not answer.
    """
    names = TopicNames(database)
    _check_bounds(partitions, shards, replication, min_insync, changes_partitions)
    admin = administrator(client_config)
    plans = _plans(names, partitions, shards, replication, min_insync, changes_partitions)
    found = describe_topics(admin, [plan.name for plan in plans])
    _refuse_differences(plans, found)
    missing = [plan for plan in plans if plan.name not in found]
    _create_missing(admin, missing)
    _await_metadata(admin, plans)
    _refuse_differences(plans, describe_topics(admin, [plan.name for plan in missing]))
    if names.transactions not in found:
        log = log_id(client_config, database)
        record(client_config, database, Founding(log=log, partitions=partitions))
    return names


def delete(client_config: Mapping[str, str], database: str) -> list[str]:
    """Delete the topics of a database with all that is in them; return those that existed."""
    admin = administrator(client_config)
    names, topics = TopicNames(database), cluster(admin).topics
    others = sorted(name for name in topics if name.startswith(f"{names.feedback}."))
    kept = (names.founding, names.rulings)
    wanted = (*names.all(), names.streams, *names.shared(), *kept, *others)
    present = [name for name in wanted if name in topics]
    if present:
        answers(admin.delete_topics(present, operation_timeout=TIMEOUT_S), "delete")
        wait_until(
            lambda: not set(present) & set(cluster(admin).topics),
            f"the topics {', '.join(present)} to be gone",
        )
    return present


def grow(client_config: Mapping[str, str], database: str, partitions: int) -> None:
    """Raise the number of the log's partitions; a running sequencer closes them into the order.

    Raises:
        TopicsError: the log has more partitions already, or is missing.
    """
    admin = administrator(client_config)
    name = TopicNames(database).transactions
    present = describe_topics(admin, [name]).get(name)
    if present is None:
        raise TopicsError(_missing(name, database))
    if not present.partitions <= partitions <= PARTITIONS_MAX:
        msg = (
            f"{name} has {present.partitions} partitions and cannot get {partitions}: Kafka never "
            f"takes one away, and {PARTITIONS_MAX} is the most"
        )
        raise TopicsError(msg)
    if present.partitions < partitions:
        _note_alone(client_config, admin, database, present)
        answers(admin.create_partitions([NewPartitions(name, partitions)]), "grow")
        wait_until(
            lambda: count_partitions(cluster(admin).topics.get(name)) == partitions,
            f"{name} to have {partitions} partitions",
        )


def _note_alone(
    client_config: Mapping[str, str], admin: ContactedAdmin, database: str, log: TopicDescription
) -> None:
    """Record that a log began with one partition; after it has grown this cannot be found out."""
    if log.partitions > 1:
        return
    names = TopicNames(database)
    min_insync = int(log.settings.get("min.insync.replicas", 1))
    plans = _plans(names, 1, 1, log.replication, min_insync, 1)
    plan = [plan for plan in plans if plan.name == names.founding]
    if names.founding not in cluster(admin).topics:
        _create_missing(admin, plan)
        _await_metadata(admin, plan)
    facts = Founding(log=log_id(client_config, database), partitions=1)
    record(client_config, database, facts)


def reshard(client_config: Mapping[str, str], database: str, shards: int) -> None:
    """Make the feedback topic anew with a partition per shard; its old records are not needed.

    The results get as many partitions at least; the feedback of pipelines with names is dropped,
    and made when they start. Harmless when it was done before, or half of it.

    Raises:
        TopicsError: a topic is missing, or the cluster refuses or does not answer.
    """
    _check_bounds(1, shards, 1, 1, 1)
    admin, names = administrator(client_config), TopicNames(database)
    found = describe_topics(admin, [names.transactions, names.results, names.feedback])
    for name in (names.transactions, names.results):
        if name not in found:
            raise TopicsError(_missing(name, database))
    log, results = found[names.transactions], found[names.results]
    if results.partitions < shards:
        answers(admin.create_partitions([NewPartitions(names.results, shards)]), "grow")
    feedback = found.get(names.feedback)
    others = [name for name in cluster(admin).topics if name.startswith(f"{names.feedback}.")]
    old = [names.feedback] if feedback is not None and feedback.partitions != shards else []
    if old or others:
        answers(admin.delete_topics(old + others, operation_timeout=TIMEOUT_S), "delete")
        gone = {*old, *others}
        wait_until(lambda: not gone & set(cluster(admin).topics), "the old feedback to be gone")
    min_insync = int(log.settings.get("min.insync.replicas", 1))
    plans = _plans(names, log.partitions, shards, log.replication, min_insync, 1)
    plan = [plan for plan in plans if plan.name == names.feedback]
    if old or feedback is None:
        _create_missing(admin, plan)
    _await_metadata(admin, plan)


def add_shared(client_config: Mapping[str, str], database: str, pipeline: str = "") -> list[str]:
    """Create what a pipeline needs beside the topics of every database; return what was missing.

    Copies and safety are as of the log.

    Args:
        client_config: the connection.
        database: the database's name.
        pipeline: the pipeline's name, which has a feedback topic of its own.

    Raises:
        TopicsError: log, feedback or changes are missing, or the cluster refuses.
    """
    admin, names = administrator(client_config), TopicNames(database)
    needed = (names.transactions, names.feedback, names.changes)
    found = describe_topics(admin, needed)
    for name in needed:
        if name not in found:
            raise TopicsError(_missing(name, database))
    log, shards = found[names.transactions], found[names.feedback].partitions
    min_insync = int(log.settings.get("min.insync.replicas", 1))
    spread = found[names.changes].partitions
    kept = {names.founding, names.rulings}
    wanted = {*names.shared(), names.streams, *kept, names.feedback_of(pipeline)}
    plans = _plans(names, log.partitions, shards, log.replication, min_insync, spread, pipeline)
    topics = cluster(admin).topics
    missing = [plan for plan in plans if plan.name in wanted and plan.name not in topics]
    _create_missing(admin, missing)
    _await_metadata(admin, missing)
    if missing and is_synced(client_config, database):
        set_sync(client_config, database, on=True)
    return [plan.name for plan in missing]


def existing(client_config: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return those of the topics that exist."""
    topics = cluster(administrator(client_config)).topics
    return [name for name in names if name in topics]


def log_id(client_config: Mapping[str, str], database: str) -> str:
    """Return Kafka's id of the database's log: another log of that name has another one."""
    admin, name = administrator(client_config), TopicNames(database).transactions
    asked = admin.describe_topics(TopicCollection([name]))
    return str(answers(asked, "describe")[name].topic_id)


def describe(client_config: Mapping[str, str], database: str) -> dict[str, TopicDescription]:
    """Return the topics of a database that exist, by name, with their first and last offsets."""
    admin = administrator(client_config)
    return describe_topics(admin, TopicNames(database).all(), offsets=True)


def _plans(
    names: TopicNames,
    partitions: int,
    shards: int,
    replication: int,
    min_insync: int,
    changes_partitions: int,
    pipeline: str = "",
) -> list[_Plan]:
    """Return what each topic shall be like."""
    common = {
        "cleanup.policy": "delete",
        "max.message.bytes": str(RECORD_BYTES_MAX),
        "min.insync.replicas": str(min_insync),
        "unclean.leader.election.enable": "false",
        "message.timestamp.type": "LogAppendTime",
        "retention.bytes": "-1",
    }
    shape = {
        names.transactions: (partitions, -1),
        names.results: (shards, 7 * _DAY_MS),
        names.changes: (changes_partitions, -1),
        names.feedback_of(pipeline): (shards, -1),
        names.deadletters: (1, -1),
        names.control: (1, 7 * _DAY_MS),
        names.digests: (1, -1),
        names.streams: (changes_partitions, -1),
        names.founding: (1, -1),
        names.rulings: (1, -1),
    }
    return [
        _Plan(name, count, replication, common | {"retention.ms": str(retention)})
        for name, (count, retention) in shape.items()
    ]


def _check_bounds(
    partitions: int, shards: int, replication: int, min_insync: int, changes_partitions: int
) -> None:
    """Refuse numbers that no database can have."""
    bounds = (
        ("partitions", partitions, PARTITIONS_MAX),
        ("shards", shards, SHARDS_MAX),
        ("changes_partitions", changes_partitions, PARTITIONS_MAX),
        ("replication", replication, 32767),
        ("min_insync", min_insync, replication),
    )
    for what, number, most in bounds:
        if not 1 <= number <= most:
            msg = f"{what} must be between 1 and {most}, not {number}"
            raise ValueError(msg)


def _refuse_differences(plans: Iterable[_Plan], found: Mapping[str, TopicDescription]) -> None:
    """Raise an error that lists how existing topics differ from their plans."""
    lines = []
    for plan in plans:
        topic = found.get(plan.name)
        if topic is not None:
            lines += [f"{plan.name}: {line}" for line in _differences(plan, topic)]
    if lines:
        msg = (
            "the database's topics exist with other settings:\n  "
            + "\n  ".join(lines)
            + "\nAsk for what exists, change the settings (`streamydb doctor` names the commands), "
            "or choose another database name."
        )
        raise TopicsError(msg)


def _differences(plan: _Plan, topic: TopicDescription) -> Iterator[str]:
    """Name the differences between a plan and a topic."""
    grown = plan.name.endswith(".results") and topic.partitions > plan.partitions
    if topic.partitions != plan.partitions and not grown:
        yield f"partitions: {topic.partitions}, asked for {plan.partitions}"
    if topic.replication != plan.replication:
        yield f"replication: {topic.replication}, asked for {plan.replication}"
    for name, value in plan.settings.items():
        if name == "retention.ms" and plan.name.endswith(".feedback"):
            continue  # a day, in earlier releases: the pipeline's start mends it
        if topic.settings.get(name) != value:
            yield f"{name}: {topic.settings.get(name)}, asked for {value}"


def _create_missing(admin: ContactedAdmin, missing: list[_Plan]) -> None:
    """Create topics; one that somebody else creates at the same time is compared afterwards."""
    if not missing:
        return
    new = [
        NewTopic(
            plan.name,
            num_partitions=plan.partitions,
            replication_factor=plan.replication,
            config=dict(plan.settings),
        )
        for plan in missing
    ]
    answers(
        admin.create_topics(new, operation_timeout=TIMEOUT_S),
        "create",
        harmless=KafkaError.TOPIC_ALREADY_EXISTS,
    )


def _await_metadata(admin: ContactedAdmin, plans: list[_Plan]) -> None:
    """Wait until every partition of every topic has a leader that answers.

    A broker that was just made a leader refuses requests for a moment (NOT_LEADER_FOR_PARTITION).
    """

    def ready() -> bool:
        topics = cluster(admin).topics
        led = all(
            plan.name in topics
            and count_partitions(topics[plan.name]) >= 1
            and all(part.leader >= 0 for part in topics[plan.name].partitions.values())
            for plan in plans
        )
        return led and all(_leads(admin, plan.name, topics[plan.name]) for plan in plans)

    wait_until(ready, "the topics' partitions to have leaders")


def _leads(admin: ContactedAdmin, name: str, topic: TopicMetadata) -> bool:
    """Return True if the leaders of a topic's partitions answer a request."""
    try:
        list_offsets(admin, name, topic.partitions, LATEST)
    except TopicsError:
        return False
    return True


def _missing(name: str, database: str) -> str:
    """Say that a topic is missing and how to make it."""
    return f"the topic {name} is missing: run `streamydb create --database {database}`"

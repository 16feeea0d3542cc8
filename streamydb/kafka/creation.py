"""Create, grow and delete the topics of a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from confluent_kafka import KafkaError
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
    identity_of,
    is_synced,
    list_offsets,
    set_sync,
    wait_until,
)
from streamydb.kafka.clients import KafkaAdministrator, administrator
from streamydb.kafka.foundation import FoundingFacts, record, renew
from streamydb.kafka.names import TopicNames
from streamydb.kafka.topic_plans import (
    LOADING,
    STAMPS,
    TopicPlan,
    check_bounds,
    connect_plan,
    plans_beside,
    plans_of,
    refuse_differences,
)
from streamydb.limits import PARTITIONS_MAX


def create(
    client_config: Mapping[str, str],
    database: str,
    partitions: int = 1,
    shards: int = 1,
    replication: int = 1,
    min_insync: int = 1,
    changes_partitions: int = 4,
    *,
    loading: bool = False,
) -> TopicNames:
    """Create the topics of a database that do not exist yet; the others must be as asked for.

    ``partitions``: of the log, 1 to 1024. ``shards``: slices of the keys, 1 to 64; `streamydb
    resize` changes them. ``min_insync``: copies that must have a record before it counts as
    written. ``changes_partitions``: of the change feed. ``loading``: a database is restored into
    them: the log takes the producer's times, and is made so; no pipeline starts on it. Raises
    ValueError: an argument is out of its bounds. Raises TopicsError: a topic exists with other
    settings, or the cluster refuses or does not answer.
    """
    names = TopicNames(database)
    check_bounds(partitions, shards, replication, min_insync, changes_partitions)
    admin = administrator(client_config)
    plans = plans_of(names, partitions, shards, replication, min_insync, changes_partitions)
    if loading:
        plans = [_loaded(plan) if plan.name == names.transactions else plan for plan in plans]
    topics = describe_topics(admin, [plan.name for plan in plans])
    refuse_differences(plans, topics)
    missing = [plan for plan in plans if plan.name not in topics]
    _make(admin, missing)
    _await_metadata(admin, [plan for plan in plans if plan.name in topics])
    if not {names.transactions, names.changes} <= topics.keys():
        log, changes = log_id(client_config, database), changes_begun(client_config, database)
        founded = None if names.transactions in topics else partitions
        facts = FoundingFacts(log=log, partitions=founded, changes=changes)
        record(client_config, database, facts)
        if not {names.results, names.changes} & topics.keys() and founded is None:
            _begin_generation(client_config, names, log, *changes)
    return names


def _begin_generation(
    client_config: Mapping[str, str], names: TopicNames, log: str, changes: str
) -> None:
    """Record that another generation begins where outputs of a log are made anew: nothing shows
    that the log still has all that the old ones told of.
    """
    if any(describe(client_config, names.database)[names.transactions].ends):
        renew(client_config, names.database, log, changes)


def _loaded(log: TopicPlan) -> TopicPlan:
    """Return the plan of a log into which a database is being restored."""
    return replace(log, settings={**log.settings, STAMPS: LOADING})


def delete(client_config: Mapping[str, str], database: str) -> list[str]:
    """Delete the topics of a database with all that is in them; return those that existed."""
    admin = administrator(client_config)
    names, topics = TopicNames(database), cluster(admin).topics
    others = sorted(name for name in topics if name.startswith(f"{names.feedback}."))
    own_topics = (*names.all(), names.connect, *names.beside(), *others)
    present = [name for name in own_topics if name in topics]
    if present:
        answers(admin.delete_topics(present, operation_timeout=TIMEOUT_S), "delete")
        wait_until(
            lambda: not set(present) & set(cluster(admin).topics),
            f"the topics {', '.join(present)} to be gone",
        )
    return present


def grow(client_config: Mapping[str, str], database: str, partitions: int) -> None:
    """Raise the number of the log's partitions; a running sequencer closes them into the order.
    Raises TopicsError: the log has more partitions already, or is missing.
    """
    admin = administrator(client_config)
    name = TopicNames(database).transactions
    present = describe_topics(admin, [name]).get(name)
    if present is None:
        raise TopicsError(_missing(name, database))
    if not present.partitions <= partitions <= PARTITIONS_MAX:
        raise TopicsError(
            f"{name} has {present.partitions} partitions and cannot get {partitions}: Kafka never "
            f"takes one away, and {PARTITIONS_MAX} is the most"
        )
    if present.partitions < partitions:
        _note_alone(client_config, admin, database, present)
        answers(admin.create_partitions([NewPartitions(name, partitions)]), "grow")
        wait_until(
            lambda: count_partitions(cluster(admin).topics.get(name)) == partitions,
            f"{name} to have {partitions} partitions",
        )


def _note_alone(
    client_config: Mapping[str, str],
    admin: KafkaAdministrator,
    database: str,
    log: TopicDescription,
) -> None:
    """Record that a log began with one partition; after it has grown this cannot be found out."""
    if log.partitions > 1:
        return
    names = TopicNames(database)
    if names.founding not in cluster(admin).topics:
        _make(admin, [plans_beside(names, log)[names.founding]])
    facts = FoundingFacts(log=log_id(client_config, database), partitions=1)
    record(client_config, database, facts)


def reshard(client_config: Mapping[str, str], database: str, shards: int) -> None:
    """Make the feedback topic anew with a partition per shard; its old records are not needed.

    The results get as many partitions at least; the feedback of pipelines with names is dropped,
    and made when they start. Harmless when it was done before, or half of it.
    Raises TopicsError: a topic is missing, or the cluster refuses or does not answer.
    """
    check_bounds(1, shards, 1, 1, 1)
    admin, names = administrator(client_config), TopicNames(database)
    topics = describe_topics(admin, [names.transactions, names.results, names.feedback])
    for name in (names.transactions, names.results):
        if name not in topics:
            raise TopicsError(_missing(name, database))
    log, results = topics[names.transactions], topics[names.results]
    if results.partitions < shards:
        answers(admin.create_partitions([NewPartitions(names.results, shards)]), "grow")
    feedback = topics.get(names.feedback)
    others = [name for name in cluster(admin).topics if name.startswith(f"{names.feedback}.")]
    old = [names.feedback] if feedback is not None and feedback.partitions != shards else []
    if old or others:
        answers(admin.delete_topics(old + others, operation_timeout=TIMEOUT_S), "delete")
        gone = {*old, *others}
        wait_until(lambda: not gone & set(cluster(admin).topics), "the old feedback to be gone")
    plan = plans_beside(names, log, shards)[names.feedback]
    if old or feedback is None:
        _make(admin, [plan])
    else:
        _await_metadata(admin, [plan])


def add_shared(client_config: Mapping[str, str], database: str, pipeline: str = "") -> list[str]:
    """Create what a pipeline needs beside the topics of every database; return what was missing.

    Copies and safety are as of the log.

    ``pipeline``: the pipeline's name, which has a feedback topic of its own.
    Raises TopicsError: log, feedback or changes are missing, or the cluster refuses.
    """
    admin, names = administrator(client_config), TopicNames(database)
    needed = (names.transactions, names.feedback, names.changes)
    existing_topics = describe_topics(admin, needed)
    for name in needed:
        if name not in existing_topics:
            raise TopicsError(_missing(name, database))
    log, shards = existing_topics[names.transactions], existing_topics[names.feedback].partitions
    spread = existing_topics[names.changes].partitions
    plans, topics = plans_beside(names, log, shards, spread, pipeline), cluster(admin).topics
    wanted = {*names.beside(), names.feedback_of(pipeline)} - topics.keys()
    missing = [plan for plan in plans.values() if plan.name in wanted]
    _make(admin, missing)
    if missing and is_synced(client_config, database):
        set_sync(client_config, database, on=True)
    return [plan.name for plan in missing]


def add_connect(client_config: Mapping[str, str], database: str) -> str:
    """Create the copy of the changes for Kafka Connect unless it is there; return its name.
    Raises TopicsError: the changes are missing, the copy has other settings, or the cluster
    refuses.
    """
    admin, names = administrator(client_config), TopicNames(database)
    topics = describe_topics(admin, (names.changes, names.connect))
    if names.changes not in topics:
        raise TopicsError(_missing(names.changes, database))
    plan = connect_plan(names, topics[names.changes])
    if names.connect in topics:
        refuse_differences([plan], topics)
        return names.connect
    _make(admin, [plan])
    if is_synced(client_config, database):
        set_sync(client_config, database, on=True)
    return names.connect


def existing(client_config: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return those of the topics that exist."""
    topics = cluster(administrator(client_config)).topics
    return [name for name in names if name in topics]


def log_id(client_config: Mapping[str, str], database: str) -> str:
    """Return Kafka's id of the database's log: another log of that name has another one."""
    return identity_of(administrator(client_config), TopicNames(database).transactions).topic_id


def changes_begun(client_config: Mapping[str, str], database: str) -> dict[str, int]:
    """Return Kafka's id of the topic of the changes, and how many partitions it has now."""
    return dict([identity_of(administrator(client_config), TopicNames(database).changes)])


def describe(client_config: Mapping[str, str], database: str) -> dict[str, TopicDescription]:
    """Return the topics of a database that exist, by name, with their first and last offsets."""
    admin = administrator(client_config)
    return describe_topics(admin, TopicNames(database).all(), offsets=True)


def _make(admin: KafkaAdministrator, missing: list[TopicPlan]) -> None:
    """Create topics, and wait until they answer."""
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
    _await_metadata(admin, missing)
    refuse_differences(missing, describe_topics(admin, [plan.name for plan in missing]))


def _await_metadata(admin: KafkaAdministrator, plans: list[TopicPlan]) -> None:
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


def _leads(admin: KafkaAdministrator, name: str, topic: TopicMetadata) -> bool:
    """Return True if the leaders of a topic's partitions answer a request."""
    try:
        list_offsets(admin, name, topic.partitions, LATEST)
    except TopicsError:
        return False
    return True


def _missing(name: str, database: str) -> str:
    return f"the topic {name} is missing: run `streamydb create --database {database}`"

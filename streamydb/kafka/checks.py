"""Compare the topics of a database with its needs, and name each fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from confluent_kafka.admin import ConfigResource, ResourceType

from streamydb.kafka.admin import (
    TopicDescription,
    TopicsError,
    answers,
    change_settings,
    cluster,
    describe_topics,
)
from streamydb.kafka.clients import COPY_RECORD_BYTES_MAX, KafkaAdministrator, administrator
from streamydb.kafka.creation import changes_begun, log_id
from streamydb.kafka.foundation import recall
from streamydb.kafka.names import TopicNames
from streamydb.kafka.topic_plans import (
    COMPRESSION,
    LEFT_LOADING,
    RECORD_BYTES_MAX,
    STAMPS,
    UNPACKED,
)
from streamydb.limits import PARTITIONS_MAX

Severity = Literal["error", "warning"]
"""An error keeps the database from starting, a warning does not."""


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """A difference between a topic and what the database relies on.

    Attributes:
        topic: the topic, or the broker.
        what: what is wrong and what would come of it.
        fix: the exact command or setting that mends it.
        severity: "error" if the database must not start like this, else "warning".
        setting: the topic setting (name, value) that mends it, where one does; see `mend`.
    """

    topic: str
    what: str
    fix: str
    severity: Severity = "error"
    setting: tuple[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.severity}: {self.topic}: {self.what}. Fix: {self.fix}"


def check(
    client_config: Mapping[str, str], database: str, shards: int | None = None
) -> list[TopicProblem]:
    """Compare a database's topics with its needs; an empty list means that all is well.

    ``shards``: the number of shards that the database has, if known.
    """
    admin = administrator(client_config)
    names = TopicNames(database)
    bootstrap = client_config["bootstrap.servers"]
    topics = describe_topics(admin, (*names.all(), names.connect, names.rulings))
    brokers = len(cluster(admin).brokers)
    problems = [
        TopicProblem(name, "the topic is missing", f"streamydb create --database {database}")
        for name in names.all()
        if name not in topics
    ]
    for topic in topics.values():
        problems += _check_settings(names, topic, bootstrap)
        problems += _check_copies(topic, brokers, bootstrap)
    problems += _check_partitions(names, topics, shards)
    if {names.transactions, names.changes} <= topics.keys():
        problems += changes_problems(client_config, database)
    problems += _check_brokers(admin)
    return problems


def changes_grew(topic: str, begun: int, present: int) -> TopicProblem:
    """Return the problem of changes that were given more partitions.

    Kafka takes none away. Only a topic that is made anew has the changes of a key in one partition.
    """
    what = (
        f"it began with {begun} partitions and has {present}: the changes of a key would no longer "
        "stay in one partition, and readers would wait for what nobody writes there"
    )
    fix = _write_again(topic, begun, "The changes were given partitions")
    return TopicProblem(topic, what, fix)


def changes_lack(topic: str, begun: int) -> TopicProblem:
    """Return the problem of changes that were made anew while a pipeline ran.

    It went on in the middle. When all is written behind that, from the log's beginning on, readers
    meet changes that were said to be there already. So the topic is of no use any more.

    ``begun``: partitions that it began with.
    """
    what = (
        "it was made anew while a pipeline ran, which wrote on there: what was written before is "
        "not in it, and readers would lack it"
    )
    return TopicProblem(topic, what, _write_again(topic, begun, "The changes were made anew"))


def _write_again(topic: str, partitions: int, section: str) -> str:
    return (
        f"stop its pipelines, delete {topic}, run `streamydb create` with "
        f"STREAMYDB_CHANGES_PARTITIONS={partitions}, then `streamydb rebuild`; see "
        f"docs/operations.md, '{section}'"
    )


def changes_problems(client_config: Mapping[str, str], database: str) -> list[TopicProblem]:
    """Return what is wrong with the changes, as far as it is known how they began.
    Raises TopicsError: the topic is missing, or the cluster does not answer.
    """
    known = recall(client_config, database, log_id(client_config, database))
    topic, problems = TopicNames(database).changes, []
    for each, present in changes_begun(client_config, database).items():
        begun = known.changes.get(each, present)
        if begun != present:
            problems.append(changes_grew(topic, begun, present))
        elif each in known.lacking:
            problems.append(changes_lack(topic, begun))
    return problems


def mend(client_config: Mapping[str, str], problems: Iterable[TopicProblem]) -> list[TopicProblem]:
    """Apply the settings that mend `problems`; return those that only a person can mend."""
    admin = administrator(client_config)
    left, changes = [], dict[str, dict[str, str | None]]()
    for problem in problems:
        if problem.setting is None:
            left.append(problem)
        else:
            name, value = problem.setting
            changes.setdefault(problem.topic, {})[name] = value
    change_settings(admin, changes)
    return left


def _check_settings(
    names: TopicNames, topic: TopicDescription, bootstrap: str
) -> Iterator[TopicProblem]:
    problem = partial(_of_setting, bootstrap, topic.name)
    is_log = topic.name == names.transactions
    settings = topic.settings
    stamps = settings.get(STAMPS)
    if is_log and stamps != "LogAppendTime":
        what = f"{STAMPS} is {stamps}: clients' clocks would decide the order; {LEFT_LOADING}"
        yield problem(what, STAMPS, "LogAppendTime")
    is_copy = topic.name == names.connect
    policy = settings.get("cleanup.policy")
    if policy == "delete" and is_copy:
        what = "cleanup.policy is delete: a sink that begins later lacks old keys"
        yield problem(what, "cleanup.policy", "compact")
    elif policy != "delete" and not is_copy:
        what = f"cleanup.policy is {policy}: compaction removes records that are needed"
        yield problem(what, "cleanup.policy", "delete")
    needed = COPY_RECORD_BYTES_MAX if is_copy else RECORD_BYTES_MAX
    largest = int(settings.get("max.message.bytes", needed))
    if largest < needed:
        what = f"max.message.bytes is {largest}: records within the limits would be refused"
        yield problem(what, "max.message.bytes", str(needed))
    if is_log:
        yield from _check_batches(topic, bootstrap)
    if settings.get("unclean.leader.election.enable") == "true":
        what = "unclean.leader.election.enable is true: acknowledged records may be lost"
        yield problem(what, "unclean.leader.election.enable", "false")
    if topic.name == names.feedback and settings.get("retention.ms", "-1") != "-1":
        what = (
            f"retention.ms is {settings['retention.ms']}: feedback is deleted before it was read "
            "if the pipeline is stopped for so long, and then it must be rebuilt"
        )
        yield problem(what, "retention.ms", "-1", "warning")
    if topic.name in (names.transactions, names.changes, names.rulings):
        for limit in ("retention.ms", "retention.bytes"):
            if settings.get(limit, "-1") != "-1":
                what = (
                    f"{limit} is {settings[limit]}: old records will be deleted, and the database "
                    "can then no longer be rebuilt from the topic"
                )
                yield problem(what, limit, "-1", "warning")


def _check_batches(topic: TopicDescription, bootstrap: str) -> Iterator[TopicProblem]:
    """Check that no batch of the log can be larger, unpacked, than a pipeline can read."""
    problem = partial(_of_setting, bootstrap, topic.name, severity="warning")
    packed = topic.settings.get(COMPRESSION, UNPACKED)
    if packed != UNPACKED:
        what = (
            f"{COMPRESSION} is {packed}: the broker judges the size of packed batches, and one "
            "record of some kilobytes that unpacks to hundreds of megabytes ends the pipeline"
        )
        yield problem(what, COMPRESSION, UNPACKED)
    largest = int(topic.settings.get("max.message.bytes", RECORD_BYTES_MAX))
    if largest > RECORD_BYTES_MAX:
        what = (
            f"max.message.bytes is {largest}: a record of that size is rejected, but the pipeline "
            "needs the memory to read it"
        )
        yield problem(what, "max.message.bytes", str(RECORD_BYTES_MAX))


def _check_copies(topic: TopicDescription, brokers: int, bootstrap: str) -> Iterator[TopicProblem]:
    """Check that an acknowledged record survives the loss of a broker, where that can be had."""
    needed = topic.min_insync
    best = max(1, topic.replication - 1)
    mended = "min.insync.replicas", str(best)
    if needed > topic.replication:
        what = (
            f"min.insync.replicas is {needed} but the topic has {topic.replication} copies: "
            "nothing can be written"
        )
        yield _of_setting(bootstrap, topic.name, what, *mended)
    elif needed < best:
        what = (
            f"min.insync.replicas is {needed} of {topic.replication} copies: an acknowledged "
            "record may exist once only"
        )
        yield _of_setting(bootstrap, topic.name, what, *mended, severity="warning")
    if topic.replication == 1 and brokers > 1:
        what = f"there is one copy, on a cluster of {brokers} brokers: one lost disk loses it"
        fix = (
            f"kafka-reassign-partitions.sh --bootstrap-server {bootstrap} --execute with three "
            f"replicas for every partition of {topic.name}, or create the database with "
            "--replication 3 --min-insync 2"
        )
        yield TopicProblem(topic.name, what, fix, "warning")


def _check_partitions(
    names: TopicNames, topics: Mapping[str, TopicDescription], shards: int | None
) -> Iterator[TopicProblem]:
    log = topics.get(names.transactions)
    if log is not None and log.partitions > PARTITIONS_MAX:
        what = f"it has {log.partitions} partitions, {PARTITIONS_MAX} is the most"
        fix = "copy the log into a database with fewer partitions"
        yield TopicProblem(names.transactions, what, fix)
    feedback = topics.get(names.feedback)
    if feedback is None or shards is None or feedback.partitions == shards:
        return
    what = f"it has {feedback.partitions} partitions, the database has {shards} shards"
    yield TopicProblem(
        names.feedback,
        what,
        f"start with --shards {feedback.partitions} if that is the number the database was "
        "created with; else stop the pipeline, delete the topic and run `streamydb create "
        f"--database {names.database} --shards {shards}`",
    )


def _check_brokers(admin: KafkaAdministrator) -> Iterator[TopicProblem]:
    """Check what the brokers do with a topic that does not exist."""
    for number in sorted(cluster(admin).brokers):
        try:
            resource = ConfigResource(ResourceType.BROKER, str(number))
            entries = answers(admin.describe_configs([resource]), "describe")[resource]
        except TopicsError:
            return  # a cluster may hide its brokers' settings from clients
        auto = entries.get("auto.create.topics.enable")
        if auto is not None and auto.value == "true":
            what = (
                "auto.create.topics.enable is true: a mistyped database name makes topics with "
                "the wrong settings"
            )
            fix = "auto.create.topics.enable=false in the broker's server.properties, then restart"
            yield TopicProblem(f"broker {number}", what, fix, "warning")


def _of_setting(
    bootstrap: str, topic: str, what: str, name: str, value: str, severity: Severity = "error"
) -> TopicProblem:
    """Return a problem that another value of a topic's setting mends."""
    fix = (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {name}={value}"
    )
    return TopicProblem(topic, what, fix, severity, (name, value))

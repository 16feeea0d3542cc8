"""Plans of the topics of a database, and how existing topics differ from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamydb.kafka.admin import TopicDescription, TopicsError, cluster, describe_topics
from streamydb.kafka.clients import COPY_RECORD_BYTES_MAX, administrator
from streamydb.kafka.names import TopicNames
from streamydb.limits import PARTITIONS_MAX, SHARDS_MAX

RECORD_BYTES_MAX = 1_048_588
"""`max.message.bytes` of every topic: the largest batch of records that a broker takes."""

COMPRESSION = "compression.type"
"""The setting of a topic that says how its batches are packed, whatever a producer sends."""

UNPACKED = "uncompressed"
"""What it is of the log: a broker unpacks every batch and judges its size after that.

With `producer`, Kafka's default, it judges the packed size: 1 MB of gzip may be a record of 1 GB.
"""

STAMPS = "message.timestamp.type"  # the setting of a topic that says whose clock its records carry
LOADING = "CreateTime"  # what it is of a log into which a database is being restored
LEFT_LOADING = "an interrupted `streamydb restore` or `fork` leaves it so: then run that again"

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as it shall be created."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


def plans_of(
    names: TopicNames,
    partitions: int,
    shards: int,
    replication: int,
    min_insync: int,
    changes_partitions: int,
    pipeline: str = "",
) -> list[TopicPlan]:
    """Return what each topic shall be like."""
    common = {
        "cleanup.policy": "delete",
        "max.message.bytes": str(RECORD_BYTES_MAX),
        "min.insync.replicas": str(min_insync),
        "unclean.leader.election.enable": "false",
        STAMPS: "LogAppendTime",
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
    own = {names.transactions: {COMPRESSION: UNPACKED}}
    return [
        TopicPlan(
            name, count, replication,
            common | {"retention.ms": str(retention)} | own.get(name, {}),
        )
        for name, (count, retention) in shape.items()
    ]  # fmt: skip


def plans_beside(
    names: TopicNames,
    topic: TopicDescription,
    shards: int = 1,
    changes_partitions: int = 1,
    pipeline: str = "",
) -> dict[str, TopicPlan]:
    """Return, by name, what each topic shall be like: with the copies of one that exists."""
    copies = topic.replication, topic.min_insync
    plans = plans_of(names, topic.partitions, shards, *copies, changes_partitions, pipeline)
    return {plan.name: plan for plan in plans}


def connect_plan(names: TopicNames, like: TopicDescription) -> TopicPlan:
    """Return what the copy for Kafka Connect shall be like; ``like``: the changes topic.

    It is compacted: a reader that comes years later gets the last change of each key. A reader that
    is never away for more than a week misses no change, and no deletion.
    """
    settings = plans_beside(names, like)[names.changes].settings
    special = {
        "cleanup.policy": "compact",
        "delete.retention.ms": str(7 * _DAY_MS),
        "min.compaction.lag.ms": str(7 * _DAY_MS),
        "max.message.bytes": str(COPY_RECORD_BYTES_MAX),
    }
    return TopicPlan(names.connect, like.partitions, like.replication, {**settings, **special})


def check_bounds(
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
    for what, number, upper_bound in bounds:
        if not 1 <= number <= upper_bound:
            raise ValueError(f"{what} must be between 1 and {upper_bound}, not {number}")


def refuse_differences(plans: Iterable[TopicPlan], topics: Mapping[str, TopicDescription]) -> None:
    """Raise an error that lists how existing topics differ from their plans."""
    lines = []
    for plan in plans:
        topic = topics.get(plan.name)
        if topic is not None:
            lines += [f"{plan.name}: {line}" for line in _differences(plan, topic)]
    if lines:
        raise TopicsError(
            "the database's topics exist with other settings:\n  "
            + "\n  ".join(lines)
            + "\nAsk for what exists, change the settings (`streamydb doctor` names the commands), "
            "or choose another database name."
        )


def _differences(plan: TopicPlan, topic: TopicDescription) -> Iterator[str]:
    grown = plan.name.endswith(".results") and topic.partitions > plan.partitions
    if topic.partitions != plan.partitions and not grown:
        yield f"partitions: {topic.partitions}, asked for {plan.partitions}"
    if topic.replication != plan.replication:
        yield f"replication: {topic.replication}, asked for {plan.replication}"
    for name, value in plan.settings.items():
        if name == "retention.ms" and plan.name.endswith(".feedback"):
            continue  # the pipeline's start mends it
        if name == COMPRESSION:
            continue  # `streamydb doctor` names the command
        value_now = topic.settings.get(name)
        if value_now != value:
            is_loading = (name, value_now) == (STAMPS, LOADING) and plan.name.endswith(
                ".transactions"
            )
            advice = f" ({LEFT_LOADING})" if is_loading else ""
            yield f"{name}: {value_now}, asked for {value}{advice}"


_COPIES: Final = 3
_INSYNC: Final = 2


class Copies(NamedTuple):
    """The copies of each topic, those that must have a record, and the brokers there are."""

    replication: int
    min_insync: int
    brokers: int

    @property
    def danger(self) -> str | None:
        """Say what one lost disk would do, where the cluster could do better; else None."""
        if self.brokers < _COPIES or (self.replication >= _COPIES and self.min_insync >= _INSYNC):
            return None
        return (
            f"this cluster has {self.brokers} brokers, and the database has replication "
            f"{self.replication} and min.insync.replicas {self.min_insync}: an acknowledged "
            "transaction may be on one disk only, and is gone with it. Create databases with "
            f"--replication {_COPIES} --min-insync {_INSYNC}; `streamydb doctor` names the "
            "commands for one that exists"
        )


def choose(
    brokers: int, replication: int | None, min_insync: int | None, log: TopicDescription | None
) -> Copies:
    """Return what was asked for; for the rest what the log has; for a new log the best there is.

    That is three copies, two of which must have a record, from three brokers on; one on fewer.
    Raises TopicsError: more copies must have a record than there are.
    """
    copies = replication
    if copies is None:
        best = _COPIES if brokers >= _COPIES else 1
        copies = best if log is None else log.replication
    needed = min_insync
    if needed is None and log is not None and copies == log.replication:
        needed = log.min_insync
    if needed is None:
        needed = _INSYNC if copies >= _COPIES else 1
    if needed > copies:
        raise TopicsError(
            f"min_insync {needed} is above replication {copies} (on {brokers} brokers): no record "
            "could ever be acknowledged; ask for more copies, too"
        )
    return Copies(copies, needed, brokers)


def copies_for(
    client_config: Mapping[str, str], database: str, replication: int | None, min_insync: int | None
) -> Copies:
    """Choose the copies of a database on this cluster; None: it was not asked for.
    Raises TopicsError: Kafka does not answer, or the two contradict each other.
    """
    admin = administrator(client_config)
    name = TopicNames(database).transactions
    log = describe_topics(admin, [name]).get(name)
    return choose(len(cluster(admin).brokers), replication, min_insync, log)

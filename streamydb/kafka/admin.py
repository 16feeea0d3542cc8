"""Requests to Kafka's administration, their waits and their errors.

Each raises a TopicsError if the cluster refuses, does not answer, or has no such topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from streamydb.errors import ConfigurationError
from streamydb.kafka.clients import KafkaAdministrator, administrator
from streamydb.kafka.connection import metadata, passes
from streamydb.kafka.names import TopicNames

TIMEOUT_S = 30.0  # how long one request may take
EARLIEST: OffsetSpec = OffsetSpec.earliest()  # asks for the offset of a partition's first record
LATEST: OffsetSpec = OffsetSpec.latest()  # asks for the offset after a partition's last record
HIGHEST: OffsetSpec = OffsetSpec.max_timestamp()
"""Asks for the offset of a partition's record with the highest timestamp."""

_POLL_S = 0.05

_K = TypeVar("_K")
_V = TypeVar("_V")


class TopicsError(ConfigurationError):
    """Topics are missing, differ from what is asked for, or the cluster does not answer."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as it is.

    Attributes:
        partitions: how many it has.
        replication: the fewest copies that any partition has.
        beginnings: the first offset of each partition.
        ends: the offset after the last record of each partition.
    """

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str]
    beginnings: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def min_insync(self) -> int:
        """So many copies must have a record before it counts as written."""
        return int(self.settings.get("min.insync.replicas", 1))


class TopicIdentity(NamedTuple):
    """Kafka's id of a topic, and its number of partitions; one made anew has another id."""

    topic_id: str
    partitions: int


def identity_of(admin: KafkaAdministrator, topic: str, **options: float) -> TopicIdentity:
    """Return the identity of a topic.

    ``options``: `request_timeout` (seconds), as Confluent's client has it.
    """
    asked = admin.describe_topics(TopicCollection([topic]), **options)
    topic_description = answers(asked, "describe")[topic]
    return TopicIdentity(str(topic_description.topic_id), len(topic_description.partitions))


def describe_topics(
    admin: KafkaAdministrator, names: Iterable[str], *, offsets: bool = False
) -> dict[str, TopicDescription]:
    """Describe those of the topics that exist.

    A broker may still list one that has just been deleted, and not know its settings any more.
    """
    topics = cluster(admin).topics
    present = [name for name in names if name in topics]
    if not present:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in present]
    gone = KafkaError.UNKNOWN_TOPIC_OR_PART
    settings = answers(admin.describe_configs(resources), "describe", harmless=gone)
    described = {}
    for resource in settings:
        parts = topics[resource.name].partitions
        described[resource.name] = TopicDescription(
            name=resource.name,
            partitions=len(parts),
            replication=min((len(part.replicas) for part in parts.values()), default=0),
            settings={k: v.value for k, v in settings[resource].items() if v.value is not None},
            beginnings=_offsets(admin, resource.name, parts, EARLIEST) if offsets else (),
            ends=_offsets(admin, resource.name, parts, LATEST) if offsets else (),
        )
    return described


def change_settings(
    admin: KafkaAdministrator, changes: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Change settings of topics; when it returns, a broker shows them.

    Kafka's controller answers a moment before the brokers apply what it has taken. What is asked or
    appended meanwhile meets the old settings.

    ``changes``: per topic, the values of settings; None: what the cluster has by default.
    """
    if not changes:
        return
    resources = [
        ConfigResource(ResourceType.TOPIC, topic, incremental_configs=_entries(settings))
        for topic, settings in changes.items()
    ]
    answers(admin.incremental_alter_configs(resources), "change the settings of")
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in changes]

    def shown() -> bool:
        by_resource = answers(admin.describe_configs(asked), "describe")
        return all(
            _has(entries.get(name), value)
            for resource, entries in by_resource.items()
            for name, value in changes[resource.name].items()
        )

    wait_until(shown, f"the new settings of {', '.join(changes)}")


def _entries(settings: Mapping[str, str | None]) -> list[ConfigEntry]:
    unset, put = AlterConfigOpType.DELETE, AlterConfigOpType.SET
    return [
        ConfigEntry(name, value or "", incremental_operation=unset if value is None else put)
        for name, value in settings.items()
    ]


def _has(entry: ConfigEntry | None, value: str | None) -> bool:
    """Return True if a setting of a topic is as it should be; None: not the topic's own."""
    own = entry is not None and entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return not own if value is None else entry is not None and entry.value == value


def _offsets(
    admin: KafkaAdministrator, name: str, parts: Iterable[int], spec: OffsetSpec
) -> tuple[int, ...]:
    listed = list_offsets(admin, name, parts, spec)
    return tuple(listed[part].offset for part in sorted(listed))


def list_offsets(
    admin: KafkaAdministrator, topic: str, partitions: Iterable[int], spec: OffsetSpec
) -> dict[int, Any]:
    """Return an offset, with its timestamp where Kafka tells it, of each of the partitions.

    A leader that is changing is asked again.
    """
    asked = {TopicPartition(topic, number): spec for number in partitions}
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            listed = answers(admin.list_offsets(asked), "list the offsets of")
        except TopicsError as error:
            if not passes(error.__cause__) or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            break
    for where, answer in listed.items():
        # librdkafka may give this number when the connection breaks within the request.
        if answer.offset == OFFSET_INVALID:
            msg = f"Kafka did not tell an offset of {where}: a broker ended meanwhile; try again"
            raise TopicsError(msg) from TimeoutError()
    return {where.partition: answer for where, answer in listed.items()}


def delete_before(
    admin: KafkaAdministrator,
    topic: str,
    offsets: Mapping[int, int],
    *,
    verb: str = "delete records of",
    timeout_s: float = TIMEOUT_S,
) -> dict[int, int]:
    """Delete the records before an offset of each partition; return the first ones that are left.

    ``offsets``: per partition, the first record that stays. ``verb``: names the action in an error.
    """
    if not offsets:
        return {}
    targets = [TopicPartition(topic, number, at) for number, at in offsets.items()]
    done = answers(admin.delete_records(targets, request_timeout=timeout_s), verb)
    return {target.partition: deleted.low_watermark for target, deleted in done.items()}


def cluster(admin: KafkaAdministrator) -> Any:
    """Return the cluster's metadata: the topics that this user may see.
    Raises RefusedError: a password or a certificate is wrong.
    """
    try:
        return metadata(admin, None, TIMEOUT_S)
    except KafkaException as error:
        raise TopicsError(
            f"Kafka does not answer ({admin.connections.reason(error)}): start it with "
            "`streamydb up`, or name its address with STREAMYDB_BOOTSTRAP"
        ) from error


def count_partitions(topic: TopicMetadata | None) -> int:
    return 0 if topic is None else len(topic.partitions)


def answers(
    futures: Mapping[_K, Future[_V]], verb: str, harmless: int | None = None
) -> dict[_K, _V]:
    results = {}
    for about, future in futures.items():
        try:
            results[about] = future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != harmless:
                msg = f"Kafka refused to {verb} {about}: {error.args[0].str()}"
                raise TopicsError(msg) from error
        except TimeoutError as error:
            raise TopicsError(f"Kafka did not {verb} {about} within {TIMEOUT_S:.0f} s") from error
    return results


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            msg = f"waited {TIMEOUT_S:.0f} s for {what}; is the cluster healthy?"
            raise TopicsError(msg) from TimeoutError()
        time.sleep(_POLL_S)


_SYNC = "flush.messages"
_EVERY_RECORD = "1"


def keep_until_read(client_config: Mapping[str, str], topic: str) -> bool:
    """Have Kafka keep all records of a feedback topic; return True if that changed a setting.

    In earlier releases Kafka deleted them after a day, read or not.
    """
    admin = administrator(client_config)
    description = describe_topics(admin, [topic]).get(topic)
    if description is None or description.settings.get("retention.ms") == "-1":
        return False
    change_settings(admin, {topic: {"retention.ms": "-1"}})
    return True


def drop_before(
    client_config: Mapping[str, str], topic: str, read: Mapping[int, int], before_ms: int
) -> dict[int, int]:
    """Delete records that were read and are old; return each partition's first offset that is left.

    ``read``: per partition, the offset up to which nobody needs its records. ``before_ms``: only
    records that were appended before this time, in ms since 1970.
    """
    admin = administrator(client_config)
    asked = list_offsets(admin, topic, read, OffsetSpec.for_timestamp(before_ms))
    ends = {n: found.offset if found.offset >= 0 else read[n] for n, found in asked.items()}
    least = {number: min(end, read[number]) for number, end in ends.items()}
    return delete_before(admin, topic, {number: at for number, at in least.items() if at > 0})


def is_synced(client_config: Mapping[str, str], database: str) -> bool:
    """Return True if brokers write a database's log to the disk before they acknowledge it."""
    name = TopicNames(database).transactions
    description = describe_topics(administrator(client_config), [name]).get(name)
    return description is not None and description.settings.get(_SYNC) == _EVERY_RECORD


def set_sync(client_config: Mapping[str, str], database: str, *, on: bool) -> list[str]:
    """Have brokers write every record of a database to the disk before they acknowledge it, or not.

    Returns the topics. It holds for each broker's own copy; with several copies on machines that do
    not lose power together nothing is lost without it.
    """
    admin, names = administrator(client_config), TopicNames(database)
    own_topics = {*names.all(), names.connect, *names.beside()}
    topics = [
        name
        for name in cluster(admin).topics
        if name in own_topics or name.startswith(f"{names.feedback}.")
    ]
    setting = {_SYNC: _EVERY_RECORD if on else None}
    change_settings(admin, dict.fromkeys(topics, setting))
    return sorted(topics)

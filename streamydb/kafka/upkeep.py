"""Settings and records of a database's topics that must be kept right over time."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import OffsetSpec

from streamydb.kafka.admin import (
    change_settings,
    cluster,
    delete_before,
    describe_topics,
    list_offsets,
)
from streamydb.kafka.clients import administrator
from streamydb.kafka.names import TopicNames

_SYNC = "flush.messages"
_EVERY_RECORD = "1"


def keep_until_read(client_config: Mapping[str, str], topic: str) -> bool:
    """Have Kafka keep all records of a feedback topic; return True if that changed a setting.

    In earlier releases Kafka deleted them after a day, read or not.

    Raises:
        TopicsError: the cluster refuses or does not answer.
    """
    admin = administrator(client_config)
    found = describe_topics(admin, [topic]).get(topic)
    if found is None or found.settings.get("retention.ms") == "-1":
        return False
    change_settings(admin, {topic: {"retention.ms": "-1"}})
    return True


def drop_before(
    client_config: Mapping[str, str], topic: str, read: Mapping[int, int], before_ms: int
) -> dict[int, int]:
    """Delete records that were read and are old; return each partition's first offset that is left.

    Args:
        client_config: the connection.
        topic: a feedback topic.
        read: per partition, the offset up to which nobody needs its records.
        before_ms: only records that were appended before this time, in ms since 1970.

    Raises:
        TopicsError: the cluster refuses or does not answer.
    """
    admin = administrator(client_config)
    asked = list_offsets(admin, topic, read, OffsetSpec.for_timestamp(before_ms))
    ends = {n: found.offset if found.offset >= 0 else read[n] for n, found in asked.items()}
    least = {number: min(end, read[number]) for number, end in ends.items()}
    return delete_before(admin, topic, {number: at for number, at in least.items() if at > 0})


def is_synced(client_config: Mapping[str, str], database: str) -> bool:
    """Return True if brokers write a database's log to the disk before they acknowledge it."""
    name = TopicNames(database).transactions
    found = describe_topics(administrator(client_config), [name]).get(name)
    return found is not None and found.settings.get(_SYNC) == _EVERY_RECORD


def set_sync(client_config: Mapping[str, str], database: str, *, on: bool) -> list[str]:
    """Have brokers write every record of a database to the disk before they acknowledge it, or not.

    Returns the topics. It holds for each broker's own copy; with several copies on machines that do
    not lose power together nothing is lost without it.

    Raises:
        TopicsError: the cluster refuses or does not answer.
    """
    admin, names = administrator(client_config), TopicNames(database)
    beside = {names.connect, names.streams, names.founding, names.rulings}
    wanted = {*names.all(), *names.shared(), *beside}
    topics = [
        name
        for name in cluster(admin).topics
        if name in wanted or name.startswith(f"{names.feedback}.")
    ]
    setting = {_SYNC: _EVERY_RECORD if on else None}
    change_settings(admin, dict.fromkeys(topics, setting))
    return sorted(topics)

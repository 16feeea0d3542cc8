"""Ask Kafka where the changes topic ends now, and up to which seq it is resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from streamydb.errors import SnapshotError
from streamydb.kafka import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.kafka.source import TopicSpan
from streamydb.records import EXPIRY_ID, Change, Resolved, decode_change
from streamydb.settings import Settings

__all__ = [
    "ChangesEnds", "last_resolved", "look", "look_at", "offsets_json", "unresolved",
    "written_until",
]  # fmt: skip

_WINDOW_RECORDS: Final = 2_000
"""Records at the end of a partition that are looked at first; then more, until one is resolved."""


class ChangesEnds(NamedTuple):
    """The changes topic as it is now.

    Attributes:
        topic: its name.
        topic_id: Kafka's id of it.
        cluster: Kafka's id of the cluster.
        spans: per partition, first and end offset.
        seq: the last seq that is resolved in every partition.
        ts_ms: its commit timestamp.
        covered: per partition of the log, the first offset that is not resolved.
    """

    topic: str
    topic_id: str
    cluster: str | None
    spans: Mapping[int, TopicSpan]
    seq: int
    ts_ms: int
    covered: Mapping[int, int]


def look(settings: Settings) -> ChangesEnds:
    """Ask Kafka; see `look_at`."""
    return look_at(settings.client_config(), settings.database)


def look_at(connection: Mapping[str, str], database: str) -> ChangesEnds:
    """Ask Kafka, with settings for confluent-kafka.

    Raises:
        SourceError: the topic does not exist.
        ReadingError: Kafka does not answer.
    """
    from streamydb.kafka.admin import cluster
    from streamydb.kafka.changes import KafkaSource
    from streamydb.kafka.clients import administrator

    topic = TopicNames(database).changes
    source = KafkaSource(connection, topic)
    try:
        found = source.describe()
    finally:
        source.close()
    if found.compacted:
        raise SnapshotError(f"{topic} is compacted: changes that are needed vanish from it")
    points = _resolved(connection, topic, found.spans)
    least = min((points.get(number, _NONE) for number in found.spans), key=_seq)
    named = cluster(administrator(connection)).cluster_id
    covered = {int(number): offset for number, offset in least.offsets.items()}
    return ChangesEnds(
        topic, found.topic_id, named, found.spans, least.resolved, least.ts_ms, covered
    )


def written_until(connection: Mapping[str, str], database: str) -> int | None:
    """Return the last seq up to which the changes topic says that all of them are in it; 0: none.

    None: nothing says so any more, as records were deleted.

    Raises:
        ReadingError: Kafka does not answer, or there is no such topic.
    """
    last = last_resolved(connection, database)
    return None if last is None else last.resolved


def last_resolved(connection: Mapping[str, str], database: str) -> Resolved | None:
    """Return the resolved record with the highest seq; of seq 0 if nothing was ever resolved.

    None: there is none any more, as records were deleted.

    Raises:
        ReadingError: Kafka does not answer, or there is no such topic.
    """
    topic = TopicNames(database).changes
    with TopicReader(connection, topic) as reader:
        spans = reader.spans()
    points = _resolved(connection, topic, spans)
    if not points and any(span.low for span in spans.values()):
        return None
    return max(points.values(), key=_seq, default=_NONE)


def unresolved(connection: Mapping[str, str], database: str) -> dict[int, Change]:
    """Return the last change of each partition of the log among those after all resolved records.

    Those are what a pipeline has written that was killed before it could say so.

    Raises:
        ReadingError: Kafka does not answer, or there is no such topic.
    """
    known: set[int] = set()
    tails: dict[int, dict[int, Change]] = {}
    with TopicReader(connection, TopicNames(database).changes) as reader:
        for record in reader.backwards(reader.spans(), _WINDOW_RECORDS, known):
            number, value = record.partition() or 0, record.value()
            told = None if value is None else decode_change(value)
            if isinstance(told, Resolved):
                known.add(number)
                tails.pop(number, None)
            elif told is not None and told.transaction.id != EXPIRY_ID:
                last = tails.setdefault(number, {})
                last[told.source.partition] = _later(told, last.get(told.source.partition))
    found: dict[int, Change] = {}
    for each in (change for tail in tails.values() for change in tail.values()):
        found[each.source.partition] = _later(each, found.get(each.source.partition))
    return found


def _later(change: Change, other: Change | None) -> Change:
    return other if other is not None and other.source.offset > change.source.offset else change


def offsets_json(topic: str, offsets: Mapping[int, int]) -> str:
    """Offsets as the options startingOffsets and endingOffsets of Spark's Kafka source want them.
    """
    named = {str(number): offset for number, offset in sorted(offsets.items())}
    return msgspec.json.encode({topic: named}).decode()


_NONE: Final = Resolved(0, 0, {})


def _seq(point: Resolved) -> int:
    return point.resolved


def _resolved(
    connection: Mapping[str, str], topic: str, spans: Mapping[int, tuple[int, int]]
) -> dict[int, Resolved]:
    """The last resolved record of each partition that has one."""
    found: dict[int, Resolved] = {}
    with TopicReader(connection, topic) as reader:
        reader.partitions()  # a client that does not know their leaders waits for half a second
        for record in reader.backwards(spans, _WINDOW_RECORDS, found):
            value = record.value()
            if record.key() is None and value is not None:
                _note(found, record.partition(), value)
    return found


def _note(found: dict[int, Resolved], partition: int | None, value: bytes) -> None:
    point = decode_change(value)
    if partition is None or not isinstance(point, Resolved):
        return
    if point.resolved >= found.get(partition, _NONE).resolved:
        found[partition] = point

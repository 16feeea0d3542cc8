"""Ask Kafka where the changes topic ends now, and up to which seq it is resolved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from streamydb.errors import SnapshotError
from streamydb.kafka import TopicNames
from streamydb.kafka.reader import Span, TopicReader
from streamydb.kafka.strangers import ChangeRecords
from streamydb.records import Change, Resolved
from streamydb.records.expiry import is_removal
from streamydb.settings import Settings

_WINDOW_RECORDS: Final = 2_000
"""Records at the end of a partition that are looked at first; then more, until one is resolved."""


class ChangesEnds(NamedTuple):
    """The changes topic as it is now.

    Attributes:
        cluster: Kafka's id of the cluster.
        spans: per partition, first and end offset.
        seq: the last seq that is resolved in every partition.
        ts_ms: its commit timestamp.
        covered: per partition of the log, the first offset that is not resolved.
    """

    topic: str
    topic_id: str
    cluster: str | None
    spans: Mapping[int, Span]
    seq: int
    ts_ms: int
    covered: Mapping[int, int]


def look(settings: Settings) -> ChangesEnds:
    return look_at(settings.client_config(), settings.database)


def look_at(connection: Mapping[str, str], database: str) -> ChangesEnds:
    """Ask Kafka, with settings for confluent-kafka.
    Raises SourceError: the topic does not exist.
    """
    from streamydb.kafka.admin import cluster
    from streamydb.kafka.changes import KafkaSource
    from streamydb.kafka.clients import administrator

    topic = TopicNames(database).changes
    source = KafkaSource(connection, topic)
    try:
        topic_state = source.describe()
    finally:
        source.close()
    if topic_state.compacted:
        raise SnapshotError(f"{topic} is compacted: changes that are needed vanish from it")
    with TopicReader(connection, topic) as reader:
        points = _resolved(reader, topic_state.spans)
    least = min((points.get(number, _NONE) for number in topic_state.spans), key=_seq)
    cluster_id = cluster(administrator(connection)).cluster_id
    covered = {int(number): offset for number, offset in least.offsets.items()}
    return ChangesEnds(
        topic,
        topic_state.topic_id,
        cluster_id,
        topic_state.spans,
        least.resolved,
        least.ts_ms,
        covered,
    )


class LastExecuted(NamedTuple):
    """The end of the changes: how far the log was executed.

    Attributes:
        resolved: the resolved record with the highest seq, of seq 0 if nothing was ever resolved;
            None: there is none any more, as records were deleted.
        after: of each partition of the log the last of the changes that come after all resolved
            records. A pipeline has written them that was killed before it could say so.
    """

    resolved: Resolved | None
    after: dict[int, Change]


def written(connection: Mapping[str, str], database: str) -> LastExecuted:
    """Read the end of the changes.
    Raises ReadingError: Kafka does not answer, or there is no such topic. Raises RecordError: a
    record is of a release that this one cannot read.
    """
    after: dict[int, dict[int, Change]] = {}
    with TopicReader(connection, TopicNames(database).changes) as reader:
        spans = reader.spans()
        points = _resolved(reader, spans, after)
    last: dict[int, Change] = {}
    for each in after.values():
        for change in each.values():
            _keep(last, change)
    if not points and any(span.low for span in spans.values()):
        return LastExecuted(None, last)
    return LastExecuted(max(points.values(), key=_seq, default=_NONE), last)


def written_until(connection: Mapping[str, str], database: str) -> int | None:
    """Return the last seq up to which the changes topic says that all of them are in it; 0: none.

    None: nothing says so any more, as records were deleted.
    """
    last = written(connection, database).resolved
    return None if last is None else last.resolved


def offsets_json(topic: str, offsets: Mapping[int, int]) -> str:
    """Offsets as Spark's options startingOffsets and endingOffsets want them."""
    by_partition = {str(number): offset for number, offset in sorted(offsets.items())}
    return msgspec.json.encode({topic: by_partition}).decode()


_NONE: Final = Resolved(0, 0, {})


def _seq(point: Resolved) -> int:
    return point.resolved


def _resolved(
    reader: TopicReader,
    spans: Mapping[int, tuple[int, int]],
    after: dict[int, dict[int, Change]] | None = None,
) -> dict[int, Resolved]:
    """The last resolved record of each partition that has one.

    ``after``: if given, gets the last changes after it, by partition of the log.
    """
    points: dict[int, Resolved] = {}
    records = ChangeRecords(reader.topic)
    for record in reader.backwards(spans, _WINDOW_RECORDS, points):
        number = record.partition() or 0
        if after is None and record.key() is not None:
            continue
        known = records.read(number, record.offset(), record.value())
        if isinstance(known, Resolved):
            if known.resolved >= points.get(number, _NONE).resolved:
                points[number] = known
            if after is not None:
                after.pop(number, None)
        elif not (after is None or known is None or is_removal(known.transaction.total_order)):
            _keep(after.setdefault(number, {}), known)
    return points


def _keep(last: dict[int, Change], change: Change) -> None:
    """Keep a change if its record in the log is the last one of its partition."""
    known = last.setdefault(change.source.partition, change)
    if change.source.offset > known.source.offset:
        last[change.source.partition] = change

"""The checks of a start before its query: the checkpoint is whole, and the topics still fit it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from streamydb.backup.start import Beginning
from streamydb.errors import ConfigurationError
from streamydb.frames.shards import ShardConfig
from streamydb.kafka.admin import TopicsError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.positions import written
from streamydb.kafka.reader import SINGLE, ReadingError, Span, TopicMissingError, TopicReader
from streamydb.parser.last_reads import mark_of
from streamydb.pipeline.repair import REBUILD, Resumption, begins_of, mend, offsets_of
from streamydb.records.marker import decode_marker
from streamydb.sorter.state import LogEnd, PartitionState

log = logging.getLogger("streamydb.pipeline")

_STATE: Final = "the state that it begins with"


def resume(
    connection: Mapping[str, str],
    database: ShardConfig,
    checkpoint: Path,
    start: Beginning | None,
    store: str | None = None,
) -> dict[int, LogEnd]:
    """Make a checkpoint whole, compare it with the topics, and return what the shards are to
    verify.

    Nothing is written to a topic before.

    ``start``: the state that it began with. ``store``: the URL of the store that it is a copy of. A
    store keeps every file whole that it has taken, so there is nothing to set aside. Raises
    ConfigurationError: it cannot go on; the message names what helps.
    """
    try:
        names = TopicNames(database.database)
        operators = 2 if database.grouping == "single" else 1
        resumption = mend(checkpoint, 0 if store else database.shards, operators)
        topic = names.transactions
        known = () if start is None else start.offsets
        begins = {partition: max(0, offset) for partition, offset in enumerate(known)}
        if resumption is None:
            _require_log(connection, topic, begins, {}, _STATE)
            return log_ends(connection, topic, begins)
        if store:
            _require_kept(store, checkpoint, resumption)
        elif resumption.moved:
            log.warning(
                "files of the checkpoint are damaged, or of a batch that does not count (%s): set "
                "aside; it goes on after batch %d, and what %d batches wrote is written again, the "
                "same",
                ", ".join(resumption.moved[:5]),
                resumption.batch,
                resumption.again,
            )
        done = offsets_of(checkpoint, resumption.batch) or {**begins_of(checkpoint), topic: begins}
        begun = offsets_of(checkpoint, resumption.batch + 1)
        feedback = names.feedback_of(database.name)
        _require_feedback(connection, feedback, done.get(feedback, {}), begun.get(feedback, {}))
        _require_log(connection, topic, done.get(topic, {}), begun.get(topic, {}))
        return log_ends(connection, topic, done.get(topic, {}))
    except ReadingError as error:
        raise TopicsError(str(error)) from error


def _require_kept(store: str, checkpoint: Path, resumption: Resumption) -> None:
    """Refuse a checkpoint in a store that lacks files: the commit of a batch lists its state."""
    faulty = resumption.moved
    if (
        resumption.batch >= 0
        and not (checkpoint / "query" / "commits" / str(resumption.batch)).exists()
    ):
        faulty = [f"commits/{resumption.batch}", *faulty]
    if faulty:
        raise ConfigurationError(
            f"files of the checkpoint {store} are missing, or do not fit each other "
            f"({', '.join(faulty[:5])}); was it copied while a pipeline ran? Begin a new one, "
            "with --from-state and a backup (docs/operations.md, 'A damaged checkpoint')"
        )


def log_ends(
    connection: Mapping[str, str], topic: str, ends: Mapping[int, int]
) -> dict[int, LogEnd]:
    """Return the last record before an offset of each partition, where it has not been trimmed.
    Raises ReadingError: Kafka does not answer.
    """
    unread = {partition: end for partition, end in ends.items() if end > 0}
    last_records: dict[int, LogEnd] = {}
    if not unread:
        return last_records
    with TopicReader({**connection, **SINGLE}, topic) as reader:
        lows = {partition: reader.span(partition).low for partition in unread}
        back = 1
        while unread:
            starts = {q: max(lows[q], end - back) for q, end in unread.items() if lows[q] < end}
            for record in reader.between({q: (start, unread[q]) for q, start in starts.items()}):
                partition, offset = record.partition() or 0, record.offset() or 0
                if offset < unread[partition]:
                    mark = mark_of(record.value())
                    stamp = record.timestamp()[1]
                    last_records[partition] = LogEnd(unread[partition], offset, stamp, mark)
            for partition, end in unread.items():
                if starts.get(partition) == 0 and partition not in last_records:
                    last_records[partition] = LogEnd(end, -1, -1, "")
            unread = {
                q: end
                for q, end in unread.items()
                if q in starts and q not in last_records and starts[q] > lows[q]
            }
            back *= 4
    return last_records


def require_rest(
    connection: Mapping[str, str], topic: str, positions: Mapping[int, PartitionState]
) -> None:
    """Refuse a log that does not go on where a state ends.

    ``positions``: those of the state, by partition.
    Raises ConfigurationError: it was trimmed behind that, or ends before it. Raises
    InvariantViolation: it has lost its end, and has grown again.
    """
    begins = {partition: state.position for partition, state in positions.items()}
    _require_log(connection, topic, begins, {}, _STATE)
    for partition, end in log_ends(connection, topic, begins).items():
        end.require(partition, positions[partition])


def require_same_history(connection: Mapping[str, str], database: str) -> None:
    """Refuse changes of transactions that the log has lost since, before a pipeline writes on.

    It would give their seqs to others, and readers would find two histories in one topic. A record
    that the changes cover, or of which one tells that is not covered yet, was appended by their
    time, if it is still the same one. Markers that came later are covered, too. Raises
    ConfigurationError: the log has lost its end, and perhaps grown again.
    """
    (last, after), names = written(connection, database), TopicNames(database)
    if last is None:
        return
    read = {int(n): (offset, last.ts_ms) for n, offset in last.offsets.items() if offset}
    seq = last.resolved
    for number, change in after.items():
        read[number] = max(read.get(number, (0, 0)), (change.source.offset + 1, change.ts_ms))
        seq = max(seq, change.source.seq)
    if _has_lost(connection, names.transactions, read):
        raise ConfigurationError(
            f"{names.changes} has transactions (up to seq {seq}) that the log has lost, "
            "say with a broker's power. Their seqs are given again, and readers would find both: "
            f"delete what was written of them first, with {names.changes} (docs/operations.md, "
            "'The end of the log is lost')"
        )


def _has_lost(
    connection: Mapping[str, str], topic: str, read: Mapping[int, tuple[int, int]]
) -> bool:
    """Return True if a log ends before offsets, or the records before them are later than they
    were when they were read.

    ``read``: of each partition the next offset, and a commit timestamp of what is before it.
    """
    ends = {number: end for number, (end, _) in read.items()}
    with TopicReader({**connection, **SINGLE}, topic) as reader:
        spans = reader.spans()
        if any(number not in spans or spans[number].high < end for number, end in ends.items()):
            return True
        for record in reader.between({number: (end - 1, end) for number, end in ends.items()}):
            end, ts_ms = read[record.partition() or 0]
            is_last = (record.offset() or 0) + 1 == end
            if is_last and record.timestamp()[1] > ts_ms and decode_marker(record.value()) is None:
                return True
        return False


def _require_log(
    connection: Mapping[str, str],
    topic: str,
    done: Mapping[int, int],
    begun: Mapping[int, int],
    who: str = "this checkpoint",
) -> None:
    """Refuse a log that was trimmed behind what is needed, or that ends before it."""
    with TopicReader(connection, topic) as reader:
        for partition in sorted({*done, *begun}):
            span, read = reader.span(partition), done.get(partition, 0)
            upto = max(read, begun.get(partition, 0))
            if span.low > read:
                raise ConfigurationError(
                    f"the offsets [{read}, {span.low}) of {topic}-{partition} were deleted before "
                    "the pipeline had read them; nothing is skipped (see docs/operations.md, "
                    "'Records of the log are gone')"
                )
            if span.high < upto:
                raise ConfigurationError(
                    f"{topic}-{partition} ends at offset {span.high}, but {who} has read "
                    f"up to {upto}: the end of the log was lost, say with a broker's power. "
                    "Nothing is skipped (see docs/operations.md, 'The end of the log is lost')"
                )


def _require_feedback(
    connection: Mapping[str, str], topic: str, done: Mapping[int, int], begun: Mapping[int, int]
) -> None:
    """Refuse to start without the feedback of a plan in flight, which would never be finished.

    A first batch reads from where the topic began; if that is not known, nothing has been read.
    """
    try:
        with TopicReader(connection, topic) as reader:
            spans = {partition: reader.span(partition) for partition in {*done, *begun}}
    except TopicMissingError:
        spans = dict.fromkeys(done, Span(0, 0))
    for partition, span in sorted(spans.items()):
        read = done.get(partition, span.low)
        if span.low > read:
            raise ConfigurationError(
                f"the feedback of this pipeline begins at offset {span.low} of {topic}-{partition},"
                f" but this checkpoint has read it up to {read} only: what lies between was "
                f"deleted. The log has everything; {REBUILD}"
            )
        if span.high < max(read, begun.get(partition, 0)):
            raise ConfigurationError(
                f"{topic}-{partition} ends at offset {span.high}, but this checkpoint has read "
                f"up to {read}: the end of the feedback was lost, say with a broker's power. The "
                f"log has everything; {REBUILD}"
            )

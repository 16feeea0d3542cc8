"""Make a new database from a backup, right after any seq, by appending the beginning of the old
log.

The records get their old offsets and append times, so the new pipeline finds the same order, the
same seqs, versions and commit timestamps, and writes the same results; what is appended afterwards
comes after them. Times are kept by having the topic take the producer's while it is loaded; until
all is there, this also keeps pipelines off. Where the old log has a gap (a control record of a
Kafka transaction), a marker that says nothing fills it; and if there are several partitions, one
last marker in each closes the part that was restored. A record that is too large for a new log
gets a stand-in (`backup.stand_in`).
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from streamydb.backup.copy import Progress, config_of, state_at
from streamydb.backup.folder import BackupFolder
from streamydb.backup.manifest import BackupError, BackupManifest
from streamydb.backup.pieces import Ints, LogSource, advance, effective_times
from streamydb.backup.stand_in import fitting
from streamydb.backup.state import StateDescription
from streamydb.kafka import (
    FoundingFacts,
    TopicNames,
    TopicProblem,
    add_shared,
    log_id,
    mend,
    record,
    renew,
)
from streamydb.kafka.appender import DeliveryReport, TopicAppender
from streamydb.kafka.errors import KafkaError
from streamydb.kafka.reader import TopicReader
from streamydb.kafka.rulings import RulingTopic
from streamydb.kafka.topic_plans import LOADING, STAMPS
from streamydb.key_processor.memory import MemoryBlobs
from streamydb.local.module_folder import FolderModules
from streamydb.records import Marker, encode_marker
from streamydb.records.rulings import Rulings
from streamydb.sorter.core import KeyedEventTimeSorter
from streamydb.sorter.state import PartitionState, SorterState

SEQUENCER: Final = "restore"
_TIMES: Final = {
    STAMPS: LOADING,
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


class Line(NamedTuple):
    """A record as it shall lie in the new log."""

    offset: int
    append_ms: int
    key: bytes | None
    value: bytes | None


class Timed(NamedTuple):
    """The effective times of a log's transactions.

    Attributes:
        states: per partition, what is known at its end.
        times: per partition, those of its transactions, in pieces.
        order: knows which partitions take part, and how far the order goes.
    """

    states: Mapping[int, PartitionState]
    times: Mapping[int, list[Ints]]
    order: KeyedEventTimeSorter


def times_of(source: LogSource, manifest: BackupManifest) -> Timed:
    """Read a whole log for its effective times. Raises BackupError: records are missing."""
    states = {}
    times: dict[int, list[Ints]] = {}
    for partition, end in manifest.ends.items():
        state = PartitionState()
        for piece in source.pieces(partition, 0, end):
            effective, markers = effective_times(state, piece)
            times.setdefault(partition, []).append(np.delete(effective, list(markers)))
            state = advance(state, piece)
        states[partition] = state
    order = KeyedEventTimeSorter(SorterState(manifest.partitions, states), MemoryBlobs())
    return Timed(states, times, order)


def committed_until(timed: Timed, limit: int) -> int:
    """Count the transactions whose effective time (ms) is not after a limit."""
    count = 0
    for partition, join in enumerate(timed.order.joined()):
        if join is not None and join <= limit:
            times = timed.times.get(partition, [])
            count += sum(int(np.count_nonzero(some <= limit)) for some in times)
    return count


def seq_at(folder: BackupFolder, manifest: BackupManifest, at: dt.datetime) -> int:
    """The last seq whose commit timestamp is not after a time.
    Raises BackupError: the time is after the backup's.
    """
    limit = math.floor(at.timestamp() * 1000)
    if limit > manifest.ts_ms:
        raise BackupError(
            f"{folder.folder} ends with seq {manifest.seq}, committed at {shown(manifest.ts_ms)}: "
            f"what was committed up to {at} may not be in it whole"
        )
    return min(committed_until(times_of(folder, manifest), limit), manifest.seq)


def prefix(
    folder: BackupFolder, manifest: BackupManifest, seq: int, progress: Progress
) -> StateDescription:
    """Describe the state right after a seq; its positions say which records come before it.
    Raises BackupError: the backup does not go so far, or is damaged.
    """
    if not 0 <= seq <= manifest.seq:
        raise BackupError(f"{folder.folder} has the seqs 1 to {manifest.seq}, not {seq}")
    base = folder.newest_state(manifest, seq)
    modules = FolderModules([folder.procedures])
    config, log_ends = config_of(manifest), manifest.ends
    with state_at(folder, config, base, seq, log_ends, modules, progress) as (state, _):
        return state.about


def lines(
    source: LogSource,
    manifest: BackupManifest,
    partition: int,
    places: Mapping[int, PartitionState],
) -> Iterator[Line]:
    """Yield the records that a partition of the new log shall hold.

    ``places``: per partition, what is known where the restored part ends.
    """
    state, at, time = places.get(partition, PartitionState()), 0, 0
    filler = encode_marker(Marker(0, 1, SEQUENCER))
    for piece in source.pieces(partition, 0, state.position):
        for offset, append_ms, key, value in piece.rows():
            for gap in range(at, offset):
                yield Line(gap, time or append_ms, None, filler)
            yield Line(offset, append_ms, key, fitting(key, value))
            at, time = offset + 1, append_ms
    for gap in range(at, state.position):
        yield Line(gap, time or 1, None, filler)
    if len(manifest.ends) > 1:
        last = max((known.effective for known in places.values()), default=0)
        closing = Marker(max(last, 0) + 1, len(manifest.ends), SEQUENCER)
        yield Line(state.position, max(time, last, 1), None, encode_marker(closing))


def append_log(
    connection: Mapping[str, str],
    database: str,
    contents: Mapping[int, Iterator[Line]],
    note: Callable[[int], None],
) -> int:
    """Fill the log of a new database, or go on with it; return how many records were appended.

    What lies there already is compared before anything is changed. The last record of each
    partition, which closes what was restored, is appended when all others are there. So a call that
    died can be repeated with a later end. The log keeps the producer's times until `open_log`.

    ``contents``: per partition, what it shall hold.
    Raises BackupError: the log has other records, or Kafka did not take some.
    """
    topic = TopicNames(database).transactions
    present = sum(_compare(connection, topic, number, each) for number, each in contents.items())
    appended = 0
    with _LogAppender(connection, topic, BackupError) as appender:
        closing: dict[int, Line] = {}
        for partition, content in contents.items():
            for line in content:
                if not closing:
                    close_log(connection, database)
                if partition in closing:
                    appender.append_line(partition, closing[partition])
                    present, appended = present + 1, appended + 1
                    note(present)
                closing[partition] = line
        for partition, line in closing.items():
            appender.append_line(partition, line)
    return appended + len(closing)


def close_log(connection: Mapping[str, str], database: str) -> None:
    """Have a log take the producer's times: no pipeline starts on it until it is open again."""
    set_times(connection, TopicNames(database).transactions, _TIMES)


def open_log(connection: Mapping[str, str], database: str) -> None:
    """Have a log take the brokers' times: what was restored is whole."""
    opened = {STAMPS: "LogAppendTime"}
    set_times(connection, TopicNames(database).transactions, opened)


def set_times(connection: Mapping[str, str], topic: str, settings: Mapping[str, str]) -> None:
    """Change settings of the log that say whose clock its records carry."""
    mend(connection, [TopicProblem(topic, "", "", setting=setting) for setting in settings.items()])


def keep_rulings(
    connection: Mapping[str, str],
    database: str,
    rulings: Rulings,
    places: Mapping[int, PartitionState],
) -> None:
    """Record in the new database the rulings on the restored records, from where on the rules hold
    that the old one had not begun with, and that another generation begins.
    """
    add_shared(connection, database)
    log = log_id(connection, database)
    log_ends = {partition: state.position for partition, state in places.items()}
    record(connection, database, FoundingFacts(log=log, begins=rulings.begins.cut(log_ends)))
    renew(connection, database, log, log)
    topic = RulingTopic(connection, database, log, rulings.begins)
    topic.adopt(
        lambda: [
            fault
            for fault in rulings.faults
            if fault.offset < places.get(fault.partition, PartitionState()).position
        ]
    )


def _compare(
    connection: Mapping[str, str], topic: str, partition: int, content: Iterator[Line]
) -> int:
    """Compare what the log has with what it shall have; return how many records it has."""
    count = 0
    with TopicReader(connection, topic) as reader:
        span = reader.spans()[partition]
        if span.low > 0:
            raise BackupError(f"{topic} was trimmed: restore into a new database")
        for record in reader.between({partition: span}):
            offset, time = record.offset() or 0, record.timestamp()[1]
            have = Line(offset, time, record.key(), record.value())
            if next(content, None) != have:
                raise BackupError(
                    f"{topic}, partition {partition}, offset {have.offset}: there is another "
                    "record than shall be there: another database has this name, or what was "
                    "begun there was another restore. Take a new name"
                )
            count += 1
    return count


class _LogAppender(TopicAppender):
    """Appends lines, and sees that each gets its offset and keeps its time."""

    def append_line(self, partition: int, line: Line) -> None:
        """Append a record; waits while too many are on their way."""

        def delivered(fault: KafkaError | None, report: DeliveryReport) -> None:
            if fault is not None:
                self.fault = self.fault or fault.str()
            elif report.offset != line.offset:
                self._misplaced(
                    f"offset {line.offset} of the backup went to {report.offset}; does somebody "
                    "else write to the log?"
                )
            elif not report.has_own_time:
                self._misplaced(f"offset {line.offset} of the backup got the broker's time")

        self.append(
            line.value, key=line.key, partition=partition, timestamp=line.append_ms,
            delivered=delivered,
        )  # fmt: skip

    def _misplaced(self, fault: str) -> None:
        """A record lies in the log that shall not be there, and nobody can take it out."""
        self.fault = self.fault or fault
        self.advice = "restore into a new database"


def shown(ts_ms: int) -> str:
    """A time (ms since 1970) for people; one of a wild clock, after the year 9999, as it is."""
    try:
        return dt.datetime.fromtimestamp(ts_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    except ValueError:
        return f"{ts_ms} ms"

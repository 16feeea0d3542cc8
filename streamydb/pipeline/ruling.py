"""The driver's part of rulings (see `txn_processor.rulings`): the topic, and what is not ruled on.

A query that met a fault which nobody has ruled on is started again, once as it was, and then with
a ruling, if the fault came again. Nothing is ruled on whose result somebody may have seen: such a
fault is of this release alone, and stops it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from streamydb.errors import INTERNAL, StreamyError
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.founding import recall
from streamydb.kafka.names import TopicNames
from streamydb.kafka.positions import look_at
from streamydb.kafka.reader import TopicReader
from streamydb.local.file_lock import write_whole
from streamydb.records import decode_dead_letter
from streamydb.records.begins import Begins
from streamydb.records.ruling import Adopted, Fence, RulingRecord, encode_ruling
from streamydb.txn_processor.rulings import (
    Book,
    Fault,
    Place,
    Rulings,
    Suspects,
    TooLate,
    faults_in,
    ruling_of,
)

__all__ = ["Desk", "RulingTopic", "RulingsError", "Told", "aborted_before", "note_told", "rulings"]

log = logging.getLogger("streamydb.pipeline")

_TOLD: Final = "told.json"
_WINDOW_RECORDS: Final = 100_000
_WAITS_MAX: Final = 30


class RulingsError(StreamyError):
    """A ruling could not be written."""


class RulingTopic:
    """`<db>.rulings`, read and written by one pipeline.

    Args:
        connection: settings of confluent-kafka.
        database: its name.
        log_id: Kafka's id of its log.
        begins: where rules begin in it.

    """

    def __init__(
        self, connection: Mapping[str, str], database: str, log_id: str, begins: Begins
    ) -> None:
        """Nothing is read yet."""
        self._connection = connection
        self._names = TopicNames(database)
        self._log = log_id
        self._book = Book(log_id, begins)
        self._reader = TopicReader(connection, self._names.rulings)
        self._reader.assign({0: 0})
        self._reading = threading.Lock()

    def close(self) -> None:
        """Disconnect."""
        self._reader.__exit__()

    def refresh(self) -> int:
        """Read up to the end there is now; how many rulings there are.

        Raises:
            ReadingError: Kafka does not answer.
            RecordError: a newer release has written one.

        """
        with self._reading:
            end = self._reader.span(0).high
            for batch in self._reader.until({0: end}):
                for record in batch:
                    self._book.take(record.value())
            return len(self._book)

    def rulings(self) -> Rulings:
        """All that was ruled, as it was read last."""
        return self._book.rulings()

    def fence(self, epoch: int, pipeline: str) -> int:
        """Lead from here on; how many rulings there are, of which no other epoch adds one."""
        self._append([Fence(log=self._log, epoch=epoch, pipeline=pipeline)])
        return self.refresh()

    def rule(self, faults: Iterable[Fault], epoch: int) -> None:
        """Rule on faults, and read what stands."""
        self._append([ruling_of(fault, self._log, epoch) for fault in faults])
        self.refresh()

    def adopt(self, faults: Callable[[], Iterable[Fault]]) -> None:
        """Once, take over what releases without rulings have aborted."""
        self.refresh()
        if not self._book.adopted:
            self.rule(faults(), 0)
            self._append([Adopted(log=self._log)])
            self.refresh()

    def _append(self, records: Iterable[RulingRecord]) -> None:
        with TopicAppender(self._connection, self._names.rulings, RulingsError) as appender:
            for record in records:
                appender.append(encode_ruling(record), partition=0)


def rulings(connection: Mapping[str, str], database: str, log_id: str) -> Rulings:
    """The rulings on the log of a database, as they are now; for those that only read.

    A database that no pipeline with this release has run yet has them in its dead letters, and
    rules begin nowhere in it.

    Raises:
        ReadingError: Kafka does not answer.
        TopicsError: the same.

    """
    from streamydb.kafka.creation import existing

    names = TopicNames(database)
    begins = recall(connection, database, log_id).begins
    if not existing(connection, [names.rulings]):
        return Rulings(aborted_before(connection, database), begins)
    topic = RulingTopic(connection, database, log_id, begins)
    try:
        topic.refresh()
        if topic._book.adopted:  # noqa: SLF001 - of this module
            return topic.rulings()
        faults = [*topic.rulings().faults, *aborted_before(connection, database)]
        return Rulings(faults, begins)
    finally:
        topic.close()


def aborted_before(connection: Mapping[str, str], database: str) -> list[Fault]:
    """What releases without rulings have aborted, by the dead letters, which are kept for good."""
    found = []
    with TopicReader(connection, TopicNames(database).deadletters) as reader:
        for value in _values(reader):
            if b'"code":"internal"' not in value:
                continue
            letter = decode_dead_letter(value)
            if letter.code == INTERNAL:
                named, shown = letter.id is not None, letter.payload is not None
                place = letter.source.partition, letter.source.offset
                found.append(Fault(*place, letter.error or "", named, named, shown))
    return found


def _values(reader: TopicReader) -> Iterator[bytes]:
    spans = reader.spans()
    reader.assign({number: span.low for number, span in spans.items()})
    for batch in reader.until({number: span.high for number, span in spans.items()}):
        yield from (record.value() or b"" for record in batch)


class Told(msgspec.Struct, frozen=True):
    """What had been told when a checkpoint was begun, by whoever led before.

    ``offsets``: per partition of the log, the first that was not resolved. ``seq``: the last that
    was. ``results``: per partition of the results, where they ended.
    """

    seq: int
    offsets: dict[int, int]
    results: dict[int, int]


def note_told(checkpoint: Path, connection: Mapping[str, str], database: str) -> Told:
    """What had been told when this checkpoint was begun: now, if it has not noted it."""
    path = checkpoint / _TOLD
    if not path.exists():
        write_whole(path, msgspec.json.encode(_told_now(connection, database)))
    return msgspec.json.decode(path.read_bytes(), type=Told, strict=False)


def _told_now(connection: Mapping[str, str], database: str) -> Told:
    ends = look_at(connection, database)
    with TopicReader(connection, TopicNames(database).results) as reader:
        results = {number: span.high for number, span in reader.spans().items()}
    return Told(ends.seq, dict(ends.covered), results)


class Desk:
    """Decides what becomes of a query that has failed.

    Args:
        topic: where rulings are written.
        connection: settings of confluent-kafka.
        database: its name.
        told: what had been told when the checkpoint was begun.

    Attributes:
        faults: on how many transactions it has ruled or seen a ruling.

    """

    def __init__(
        self, topic: RulingTopic, connection: Mapping[str, str], database: str, told: Told
    ) -> None:
        """Nothing has failed yet."""
        self._topic = topic
        self._connection = connection
        self._database = database
        self._told = told
        self._suspects = Suspects()
        self._waits = 0

    def may_repeat(self, messages: list[str], epoch: int, *, leads: bool) -> bool:
        """Return True if the query is to be started again, with the rulings there are now.

        Args:
            messages: of the query's error and its causes.
            epoch: in which this pipeline leads.
            leads: whether it does; one that follows waits for the ruling of the one that leads.

        Raises:
            TooLate: it fails on what others have executed.
            StreamyError: a ruling could not be written or read.

        """
        faults = faults_in(messages)
        if not faults:
            return False
        if not leads:
            self._topic.refresh()
            self._waits = 0 if self._open(faults) < len(faults) else self._waits + 1
            if self._waits > _WAITS_MAX:
                raise TooLate(faults[0])
            return True
        confirmed = self._suspects.confirm(faults)
        log.error("our own code failed on %d transactions (%s)", len(faults), faults[0].error)
        if confirmed:
            self._require_untold(confirmed)
            self._topic.rule(confirmed, epoch)
            log.error("ruled %d transactions aborted: internal; please report it", len(confirmed))
            if self._open(confirmed):
                raise TooLate(confirmed[0])  # another one leads, and has executed it
        return True

    def _open(self, faults: list[Fault]) -> int:
        known = self._topic.rulings()
        return sum(known.get((fault.partition, fault.offset)) is None for fault in faults)

    def _require_untold(self, faults: list[Fault]) -> None:
        """Refuse to rule on what has a result that somebody may have seen."""
        now = _told_now(self._connection, self._database)
        for told in (self._told, now):
            for fault in faults:
                if fault.offset < told.offsets.get(fault.partition, 0):
                    raise TooLate(fault)
            self._require_unwritten(faults, told)

    def _require_unwritten(self, faults: list[Fault], told: Told) -> None:
        """Look for results after the last resolved seq: there are those of a plan or two."""
        wanted = {_source((fault.partition, fault.offset)): fault for fault in faults}
        left, window = dict(told.results), _WINDOW_RECORDS
        with TopicReader(self._connection, TopicNames(self._database).results) as reader:
            spans = reader.spans()
            while left:
                starts = {n: max(spans[n].low, end - window) for n, end in left.items()}
                reader.assign(starts)
                first: dict[int, int] = {}
                for batch in reader.until(left):
                    for record in batch:
                        value, number = record.value() or b"", record.partition() or 0
                        first.setdefault(number, _seq(value))
                        fault = wanted.get(value.rpartition(b',"source":')[2])
                        if fault is not None:
                            raise TooLate(fault)
                left = {
                    n: end
                    for n, end in left.items()
                    if starts[n] > spans[n].low and first.get(n, 0) > told.seq
                }
                window *= 8


def _source(place: Place) -> bytes:
    """How a result record ends."""
    return b'{"partition":%d,"offset":%d}}' % place


class _Numbered(msgspec.Struct):
    seq: int


def _seq(value: bytes) -> int:
    return msgspec.json.decode(value, type=_Numbered).seq

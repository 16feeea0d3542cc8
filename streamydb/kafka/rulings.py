"""Rulings on internal faults in Kafka: `<db>.rulings` (see `records.rulings`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from streamydb.errors import INTERNAL, RecordError, StreamyError
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.kafka.foundation import recall
from streamydb.kafka.names import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.kafka.receiving import TopicEnds
from streamydb.kafka.strangers import Strangers
from streamydb.records import decode_dead_letter
from streamydb.records.begins import Begins
from streamydb.records.formats import later_format
from streamydb.records.rulings import (
    Adopted,
    Book,
    Fault,
    Fence,
    RulingRecord,
    Rulings,
    encode_ruling,
    is_strange_ruling,
    ruling_of,
)


class RulingsError(StreamyError):
    """A ruling could not be written, or Kafka did not tell how many there are."""


class RulingTopic:
    """`<db>.rulings`, read and written by one pipeline.

    ``begins``: where rules begin in it.
    """

    def __init__(
        self, connection: Mapping[str, str], database: str, log_id: str, begins: Begins
    ) -> None:
        self._connection = connection
        self._names = TopicNames(database)
        self._log = log_id
        self._book = Book(log_id, begins)
        self._read = 0
        self._strangers = Strangers(self._names.rulings)
        self._reading = threading.Lock()
        self._ends: TopicEnds | None = None

    def refresh(self) -> int:
        """Read up to the end there is now; return how many rulings there are.
        Raises RecordError: a newer release has written one. RulingsError: Kafka does not answer.
        """
        with self._reading:
            end = self._end()
            if self._read < end:
                with TopicReader(self._connection, self._names.rulings) as reader:
                    for record in reader.between({0: (self._read, end)}):
                        self._take(record.offset(), record.value())
                    self._read = reader.positions[0]
            return len(self._book)

    def _end(self) -> int:
        """Ask for the end there is now, by a client that stays: a pipeline that follows asks before
        each role, ten times a second, and a new one costs a connection and five requests.
        """
        if self._ends is None:
            self._ends = TopicEnds(self._connection)
        try:
            return self._ends.look(self._names.rulings, (0,))[0]
        except KafkaUnavailableError as error:
            raise RulingsError(str(error)) from error

    def _take(self, offset: int | None, value: bytes | None) -> None:
        try:
            self._book.take(value)
        except RecordError as fault:
            if not is_strange_ruling(value):
                raise RecordError(f"{self._strangers.name_of(0, offset)}: {fault}") from fault
            self._strangers.pass_over(0, offset)

    @property
    def epoch(self) -> int:
        return self._book.epoch

    def rulings(self) -> Rulings:
        return self._book.rulings()

    def fence(self, epoch: int, pipeline: str) -> int:
        """Lead from here on; return how many rulings there are.

        A ruling of an earlier epoch that comes behind this record is void.
        """
        self._append([Fence(log=self._log, epoch=epoch, pipeline=pipeline)])
        return self.refresh()

    def rule(self, faults: Iterable[Fault], epoch: int) -> None:
        """Rule on faults, and read what stands."""
        self._append([ruling_of(fault, self._log, epoch) for fault in faults])
        self.refresh()

    def adopt(self, faults: Callable[[], Iterable[Fault]]) -> None:
        """Once, rule on the faults that dead letters or a backup tell of."""
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
    """
    from streamydb.kafka.creation import existing

    names = TopicNames(database)
    begins = recall(connection, database, log_id).begins
    if not existing(connection, [names.rulings]):
        return Rulings(aborted_before(connection, database), begins)
    topic = RulingTopic(connection, database, log_id, begins)
    topic.refresh()
    if topic._book.adopted:  # noqa: SLF001 - of this module
        return topic.rulings()
    faults = [*topic.rulings().faults, *aborted_before(connection, database)]
    return Rulings(faults, begins)


def aborted_before(connection: Mapping[str, str], database: str) -> list[Fault]:
    """Return the faults of which dead letters tell, which are kept when rulings are deleted."""
    faults = []
    with TopicReader(connection, TopicNames(database).deadletters) as reader:
        for record in reader.whole():
            value = record.value() or b""
            if b'"code":"internal"' not in value:
                continue
            try:
                letter = decode_dead_letter(value)
            except RecordError:
                if later_format(value) is not None:
                    raise
                continue  # something else has written it
            if letter.code == INTERNAL:
                has_id, has_payload = letter.id is not None, letter.payload is not None
                position = letter.source.partition, letter.source.offset
                faults.append(Fault(*position, letter.error or "", has_id, has_id, has_payload))
    return faults

"""Start the query of a run again when it lacks rulings on records that it is to execute."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from streamydb.kafka.clients import CLOCK_SKEW_MS
from streamydb.kafka.names import TopicNames
from streamydb.kafka.positions import look_at
from streamydb.kafka.reader import TopicReader
from streamydb.kafka.rulings import RulingTopic
from streamydb.local.file_lock import write_whole
from streamydb.pipeline.run import RunningQuery, failure_of
from streamydb.records import seq_in
from streamydb.records.rulings import Fault, LogPosition, Suspects, TooLate, faults_in

if TYPE_CHECKING:
    from streamydb.pipeline.standby.coordinator import Coordinator

_FILE: Final = "told.json"
_WINDOW_RECORDS: Final = 100_000
_WAITS_MAX: Final = 30


class ExecutedBefore(msgspec.Struct, frozen=True):
    """The position up to which earlier leaders had executed the log when a checkpoint was begun.

    ``offsets``: per partition of the log, the first that was not resolved. ``seq``: the last that
    was. ``results``: per partition of the results, where they ended.
    """

    seq: int
    offsets: dict[int, int]
    results: dict[int, int]


def executed_before(
    checkpoint: Path, connection: Mapping[str, str], database: str
) -> ExecutedBefore:
    """Return this position; a new checkpoint notes it."""
    path = checkpoint / _FILE
    if not path.exists():
        write_whole(path, msgspec.json.encode(_executed_now(connection, database)))
    return msgspec.json.decode(path.read_bytes(), type=ExecutedBefore, strict=False)


def _executed_now(connection: Mapping[str, str], database: str) -> ExecutedBefore:
    ends = look_at(connection, database)
    with TopicReader(connection, TopicNames(database).results) as reader:
        results = {number: span.high for number, span in reader.spans().items()}
    return ExecutedBefore(ends.seq, dict(ends.covered), results)


class FaultHandler:
    """Decides what becomes of a query that has failed.

    ``before``: what was executed when the checkpoint was begun.
    """

    def __init__(
        self,
        topic: RulingTopic,
        connection: Mapping[str, str],
        database: str,
        before: ExecutedBefore,
    ) -> None:
        self._topic = topic
        self._connection = connection
        self._database = database
        self._before = before
        self._suspects = Suspects()
        self._waits = 0

    def may_repeat(
        self, messages: list[str], epoch: int, *, leads: bool, settled: bool = True
    ) -> bool:
        """Return True if the query is to be started again, with the rulings there are now.

        Args:
            messages: of the query's error and its causes.
            epoch: in which this pipeline leads.
            leads: whether it does; one that follows waits for the ruling of the one that leads.
            settled: no other pipeline can still write results that contradict a ruling.

        Raises TooLate: it fails on what others have executed. Raises StreamyError: a ruling could
        not be written or read.
        """
        faults = faults_in(messages)
        if not faults:
            return False
        self._topic.refresh()
        if not leads:
            self._waits = 0 if self._open(faults) < len(faults) else self._waits + 1
            if self._waits > _WAITS_MAX:
                raise TooLate(faults[0])
            return True
        if not settled:
            log.warning("another pipeline led a moment ago: no rulings yet")
            return True
        confirmed = self._suspects.confirm(faults)
        log.error("our own code failed on %d transactions (%s)", len(faults), faults[0].error)
        if confirmed:
            self._require_unseen(confirmed)
            self._topic.rule(confirmed, epoch)
            log.error("ruled %d transactions aborted: internal; please report it", len(confirmed))
            if self._open(confirmed):
                raise TooLate(confirmed[0])  # another one leads, and has executed it
        return True

    def _open(self, faults: list[Fault]) -> int:
        known = self._topic.rulings()
        return sum(known.get((fault.partition, fault.offset)) is None for fault in faults)

    def _require_unseen(self, faults: list[Fault]) -> None:
        """Refuse to rule on a transaction whose result somebody may have seen."""
        now = _executed_now(self._connection, self._database)
        for executed in (self._before, now):
            for fault in faults:
                if fault.offset < executed.offsets.get(fault.partition, 0):
                    raise TooLate(fault)
            self._require_unwritten(faults, executed)

    def _require_unwritten(self, faults: list[Fault], executed: ExecutedBefore) -> None:
        """Look for results after the last resolved seq; a plan or two may have written some.

        A pipeline that went on from an older checkpoint has written old results again behind them.
        So a window is large enough only if it also begins before the transactions were appended.
        """
        faults_by_ending = {_ending((fault.partition, fault.offset)): fault for fault in faults}
        before_ms = self._appended_ms(faults) - CLOCK_SKEW_MS
        first: dict[int, int] = {}
        enough: set[int] = set()
        with TopicReader(self._connection, TopicNames(self._database).results) as reader:
            spans = {n: (reader.span(n).low, end) for n, end in executed.results.items()}
            for record in reader.backwards(spans, _WINDOW_RECORDS, enough):
                value, number = record.value() or b"", record.partition() or 0
                offset = record.offset() or 0
                begins = offset < first.get(number, offset + 1)  # a window, with a result
                if begins and (seq := seq_in(value)) is not None:
                    first[number] = offset
                    if seq <= executed.seq and record.timestamp()[1] <= before_ms:
                        enough.add(number)
                fault = faults_by_ending.get(value.rpartition(b'"partition":')[2])
                if fault is not None:
                    raise TooLate(fault)

    def _appended_ms(self, faults: list[Fault]) -> int:
        """Return when the first of the transactions was appended; 0 if the log lacks one."""
        times_ms = []
        with TopicReader(self._connection, TopicNames(self._database).transactions) as reader:
            spans = reader.spans()
            for fault in faults:
                if fault.offset not in range(*spans.get(fault.partition, (0, 0))):
                    return 0
                first = next(reader.between({fault.partition: (fault.offset, fault.offset + 1)}))
                times_ms.append(first.timestamp()[1])
        return int(min(times_ms))


def _ending(position: LogPosition) -> bytes:
    """Return how the result of a record ends: with its source, or with where it repeats one."""
    return b'%d,"offset":%d}}' % position


log = logging.getLogger("streamydb.pipeline")


class RestartedQuery:
    """One query after another, on one checkpoint.

    `begin` starts the first one.

    ``start``: starts one, with all rulings there are; is told how many queries there were before.
    ``faults``: decides what becomes of one that has failed.

    Attributes:
        running: the one that runs, or ran last.
    """

    def __init__(
        self, start: Callable[[int], RunningQuery], coordinator: Coordinator, faults: FaultHandler
    ) -> None:
        self._start = start
        self._coordinator = coordinator
        self._faults = faults
        self._starting = True
        self._number = 0
        self.running: RunningQuery

    def begin(self) -> None:
        self.running = self._start(0)
        self._starting = False

    def beats(self) -> bool:
        """Return True if one runs, or is being started; asks the JVM."""
        return self._starting or self.running.beats()

    def keep_up(self) -> bool:
        """Start the query again if that helps; False: it has ended, and it does not.

        May be called again when Kafka did not answer.
        Raises StreamyError: it cannot go on; the message says why.
        """
        if not self._starting:
            active = self.running.active
            if active and not self._coordinator.stale:
                return True
            if active:
                log.info("starting the query again: there are new rulings on faults of ours")
                self.running.give_up()
            elif not self._may_repeat():
                return False
            self._starting = True
        self._number += 1
        self.running = self._start(self._number)
        self._starting = False
        return True

    def _may_repeat(self) -> bool:
        part, query = self._coordinator, self.running.query
        return self._faults.may_repeat(
            failure_of(query), part.epoch, leads=part.leads, settled=part.settled
        )

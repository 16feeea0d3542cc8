"""Checks a database over Kafka: replay its log serially, then compare everything it has written.

The log's end is taken once, at the start; outputs of later transactions are counted, not judged.
While outputs are missing the check goes on reading until its time is up: a live pipeline catches
up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from streamydb.errors import InvariantViolation, RecordError
from streamydb.kafka import FoundingFacts, TopicNames, TopicsError, log_id, recall
from streamydb.kafka.reader import TopicReader
from streamydb.kafka.rulings import rulings
from streamydb.limits import ID_WINDOW_DEFAULT
from streamydb.local.own_process import no_collection
from streamydb.procedures.modules import NO_MODULES, Modules
from streamydb.records import decode_dead_letter
from streamydb.records.expiry import removal_number
from streamydb.records.rulings import Rulings
from streamydb.verify.check.compare import Comparison
from streamydb.verify.check.expected import Expected, Output, OutputName, tells_removal
from streamydb.verify.check.log import Log
from streamydb.verify.check.report import CheckReport, Difference, excerpt
from streamydb.verify.check.workflows import Workflows, workflow_name
from streamydb.verify.oracle.core import Oracle
from streamydb.verify.oracle.outputs import OutputRecord

if TYPE_CHECKING:
    from streamydb.backup.pieces import LogSource


class CheckProgress(NamedTuple):
    """The progress of the check: what it does, and how many of how many records."""

    name: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of a check.

    Attributes:
        initial_partitions: partitions of the log at the database's creation; None = as is recorded
            beside the log, else as many as now.
        id_window: for how many seqs an id is remembered; None = as is recorded, else the default.
        timeout_s: how long to wait for outputs that are missing at the end.
        modules: where the code of stored procedures is.
        trimmed: where the records are that the log does not have any more.
        progress: called from time to time.
    """

    connection: Mapping[str, str]
    database: str
    initial_partitions: int | None = None
    id_window: int | None = None
    timeout_s: float = 60.0
    modules: Modules = NO_MODULES
    trimmed: LogSource | None = None
    progress: Callable[[CheckProgress], None] = field(default=lambda _step: None)


def founded(options: CheckOptions) -> CheckOptions:
    """The options, with what the database was founded with where they say nothing."""
    values = (options.initial_partitions, options.id_window)
    if None not in values:
        return options
    try:
        log = log_id(options.connection, options.database)
    except TopicsError:  # whoever reads the log says what is wrong
        log = ""
    known = recall(options.connection, options.database, log) if log else FoundingFacts(log=log)
    partitions, window = values
    return replace(
        options,
        initial_partitions=known.partitions if partitions is None else partitions,
        id_window=(known.id_window or ID_WINDOW_DEFAULT) if window is None else window,
    )


def check(options: CheckOptions) -> CheckReport:
    """Replay and compare.

    Raises:
        CheckError: part of the log is gone, and `trimmed` does not have it: there is no replay.
        ModuleMissing: the code of a stored procedure is not in `modules`.
        ReadingError: a topic is missing or the broker does not answer.
    """
    started_s = time.monotonic()
    options = founded(options)
    log = Log(options.connection, options.database, options.initial_partitions, options.trimmed)
    while True:
        try:
            return _check(options, log, started_s)
        except _AnotherFaultError:
            options.progress(
                CheckProgress("a fault was reported meanwhile: once more", 0, log.records)
            )


class _AnotherFaultError(Exception):
    """A transaction was aborted by a fault of ours, and the replay did not know."""


def _check(options: CheckOptions, log: Log, started_s: float) -> CheckReport:
    """Replay with the faults that are known by now. Raises _AnotherFaultError: there are more."""
    report = CheckReport(database=options.database)
    with no_collection():
        ruled = _rulings(options)
        report.faults = sum(
            fault.offset < log.ends.get(fault.partition, 0) for fault in ruled.faults
        )
        workflows = Workflows(report)
        oracle, expected = _replay(options, log, ruled, report, workflows)
        comparison = Comparison(expected, report, workflows)
        waited_s = _compare(options, comparison, ruled, log)
        state = {key.encode(): value for key, value in oracle.state.items()}
        comparison.finish(state)
    _judge_later(log, comparison)
    _fill_in(options, log, ruled, comparison.evidence.wanted)
    report.seconds = time.monotonic() - started_s
    report.txn_per_s = report.transactions / max(1e-9, report.seconds - waited_s)
    report.judge()
    return report


def _oracle(options: CheckOptions, ruled: Rulings) -> Oracle:
    return Oracle(options.database, options.id_window or ID_WINDOW_DEFAULT, ruled, options.modules)


def _rulings(options: CheckOptions) -> Rulings:
    """Return the rulings on transactions up to now."""
    log = log_id(options.connection, options.database)
    return rulings(options.connection, options.database, log)


def _fault(value: bytes | None) -> tuple[int, int] | None:
    """The record of the log whose dead letter names a fault of ours."""
    if value is None or b'"code":"internal"' not in value:
        return None
    try:
        source = decode_dead_letter(value).source
    except RecordError:
        return None  # it is named as one that is not of the replay
    return source.partition, source.offset


def _replay(
    options: CheckOptions, log: Log, ruled: Rulings, report: CheckReport, workflows: Workflows
) -> tuple[Oracle, Expected]:
    """Run the log through the serial oracle and keep the digests of all outputs."""
    oracle = _oracle(options, ruled)
    expected = Expected()
    total = log.records
    for batch in log.ordered():
        for ts_ms, partition, offset, value in batch:
            outputs = oracle.apply(value, partition, offset, ts_ms)
            _expect(expected, partition, offset, outputs)
            if outputs and outputs[-1].topic in ("streams", "transactions"):
                workflows.expect(outputs)
        records = expected.transactions + log.order.markers
        options.progress(CheckProgress("replaying the log", records, total))
    report.markers = log.order.markers
    report.held_back = log.order.held_back + log.unjoined
    return oracle, expected


def _expect(expected: Expected, partition: int, offset: int, outputs: list[OutputRecord]) -> None:
    """Keep the outputs of one transaction as expected."""
    result: tuple[bytes | None, bytes] | None = None
    dead: tuple[bytes | None, bytes] | None = None
    changes: list[tuple[bytes, bytes]] = []
    removals: list[tuple[bytes, bytes]] = []
    for topic, key, value in outputs:
        if topic == "changes":
            if value is not None and key is not None:
                (removals if tells_removal(value) else changes).append((key, value))
        elif topic == "results":
            result = (key, value or b"")
        elif topic == "deadletters":
            dead = (key, value or b"")
    if result is None:
        raise InvariantViolation("the oracle gave no result for a transaction")
    expected.add(partition, offset, result, [changes, removals], dead)


def _compare(options: CheckOptions, comparison: Comparison, ruled: Rulings, log: Log) -> float:
    """Judge all outputs; wait for those that are missing; return how long, in seconds."""

    def dead_letter(output: Output) -> None:
        position = _fault(output.value)
        is_known = (
            position is None or position[1] >= log.ends.get(position[0], 0) or ruled.get(position)
        )
        if position is not None and not is_known and _rulings(options).get(position):
            raise _AnotherFaultError
        comparison.dead_letter(output)

    names = TopicNames(options.database)
    judges = {
        names.results: comparison.result,
        names.changes: comparison.change,
        names.deadletters: dead_letter,
    }
    if comparison.workflows.any:
        judges[names.streams] = comparison.workflows.stream
        judges[names.transactions] = comparison.workflows.follow_up
        for output in log.trimmed():
            comparison.workflows.follow_up(output)
    with ExitStack() as stack:
        readers = {
            topic: stack.enter_context(TopicReader(options.connection, topic)) for topic in judges
        }
        spans = {topic: reader.spans() for topic, reader in readers.items()}
        comparison.expired = sum(span.low for span in spans[names.results].values())
        for topic, reader in readers.items():
            reader.assign({number: span.low for number, span in spans[topic].items()})
        for topic, reader in readers.items():
            log_ends = {number: span.high for number, span in spans[topic].items()}
            # Judge the records of one topic up to its end.
            judge = judges[topic]
            count, total = sum(reader.positions.values()), sum(log_ends.values())
            for batch in reader.until(log_ends):
                _judge(batch, judge)
                count += len(batch)
                options.progress(
                    CheckProgress(f"comparing {reader.topic}", min(count, total), total)
                )
        return _wait(options, comparison, readers, judges)


def _judge(batch: list, judge: Callable[[Output], None]) -> None:  # type: ignore[type-arg]
    """Judge one batch of Kafka's records."""
    for message in batch:
        judge(Output(message.partition(), message.offset(), message.key(), message.value()))


def _wait(
    options: CheckOptions,
    comparison: Comparison,
    readers: Mapping[str, TopicReader],
    judges: Mapping[str, Callable[[Output], None]],
) -> float:
    """Go on reading until nothing is missing or the time is up; how long that was, in seconds."""
    started_s = time.monotonic()
    report = comparison.report
    while not comparison.complete and time.monotonic() - started_s < options.timeout_s:
        for topic, reader in readers.items():
            _judge(reader.batch(), judges[topic])
        matched = report.results.matched
        options.progress(
            CheckProgress("waiting for the pipeline", matched, report.results.expected)
        )
    report.caught_up = comparison.complete
    return time.monotonic() - started_s


def _judge_later(log: Log, comparison: Comparison) -> None:
    """Outputs past the replay are legitimate only if the log has grown as far since."""
    report = comparison.report
    last = comparison.evidence.later_seq
    beyond = last - report.transactions
    if beyond <= 0 or beyond <= report.held_back + log.grown():
        return
    report.results.extra += report.results.later
    report.changes.extra += report.changes.later
    report.deadletters.extra += report.deadletters.later
    report.streams.extra += report.streams.later
    report.follow_ups.extra += report.follow_ups.later
    report.violate(
        Difference(
            kind="extra",
            topic="results",
            message=f"an output names seq {last}, but the log has only {report.transactions} "
            "transactions",
            seq=last,
        )
    )


def _fill_in(
    options: CheckOptions, log: Log, ruled: Rulings, places: dict[OutputName, list[Difference]]
) -> None:
    """Replay once more to show the expected bytes of the differences that were kept."""
    if not places:
        return
    last = max(place.seq for place in places)
    for place, key, value in _expected_records(options, log, ruled, last):
        for difference in places.get(place, ()):
            difference.expected = excerpt(value)
            difference.message += f" (key {excerpt(key)!r})"


def _expected_records(
    options: CheckOptions, log: Log, ruled: Rulings, last: int
) -> Iterator[tuple[OutputName, bytes | None, bytes | None]]:
    """All expected outputs up to a seq."""
    oracle = _oracle(options, ruled)
    for batch in log.ordered():
        for ts_ms, partition, offset, raw in batch:
            seq, count = oracle.next_seq, 0
            if seq > last:
                return
            for topic, key, value in oracle.apply(raw, partition, offset, ts_ms):
                if value is None:
                    continue
                name = OutputName(topic, seq, 0)
                if topic in ("streams", "transactions"):
                    name = workflow_name(topic, value)
                elif topic == "changes" and tells_removal(value):
                    name = OutputName(topic, seq, removal_number(key or b""), hash(key))
                elif topic == "changes":
                    count += 1
                    name = OutputName(topic, seq, count)
                yield name, key, value

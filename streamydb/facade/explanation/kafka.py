"""Collects the traces of a transaction from the topics of its database, within a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET

from streamydb import records
from streamydb.errors import RecordError
from streamydb.facade.explanation.evidence import (
    ChangeRecord,
    Evidence,
    FeedbackPlan,
    Passing,
    PlanMember,
    ResolvedRecord,
    ResultRecord,
)
from streamydb.facade.ports import LogPosition
from streamydb.frames.messages import Feedback, plan_of
from streamydb.kafka.clients import FOLLOWING, reader
from streamydb.kafka.digests import beside
from streamydb.kafka.errors import KafkaException, KafkaUnavailableError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import SpanReader, offsets_at, spans
from streamydb.records.expiry import is_removal

PLAN_SHOWN_MAX: Final = 20_000
"""Transactions of a plan that are looked at; a group of a larger plan is not told."""
PLAN_BYTES_SHOWN_MAX: Final = 16_777_216  # the same of the bytes of their records
APPENDS_SHOWN_MAX: Final = 1_000  # results with one id that are shown, the first ones
_PART_S: Final = 3.0  # how long is looked for each part of a life
_BEFORE_MS: Final = 3_000
"""Outputs of one micro-batch are written within this time of each other, and after the append."""
_LOOK_BACK: Final = 500
"""Records before the one with a later append time among which a marker may have passed a time."""
_DIGESTS: Final = 64
_LATE: Final = "it was not found within the time for looking"


def collect(connection: Mapping[str, str], database: str, result: records.Result) -> Evidence:
    """Find what the topics have of a transaction with a verdict (not that of a repetition). A topic
    that cannot be read is named in ``missing``.
    """
    search = _Search(connection, database, result)
    looks = {
        "appends": search.look_for_results, "transaction": search.look_into_log,
        "writes": search.look_for_changes, "plan": search.look_for_plan,
        "digests": search.look_for_digests,
    }  # fmt: skip
    try:
        for part, look in looks.items():
            try:
                look()
            except (KafkaUnavailableError, KafkaException) as fault:
                search.missing(part, str(fault))
    finally:
        search.close()
    return search.evidence


class _Search:
    def __init__(
        self, connection: Mapping[str, str], database: str, result: records.Result
    ) -> None:
        self._consumer: Any = reader(connection, FOLLOWING, eof=True)
        self._names = TopicNames(database)
        self._result = result
        self._late = False
        self._near: dict[int, LogPosition] = {}
        self.evidence = Evidence(missing={}, results=[], changes=[], digests=[])

    def close(self) -> None:
        self._consumer.close()

    def missing(self, part: str, why: str = _LATE) -> None:
        self.evidence.missing[part] = why

    def _read(self, topic: str, places: Mapping[int, tuple[int, int]]) -> Iterator[Any]:
        """Yield the records from one offset to before another, as long as there is time."""
        deadline_s = time.monotonic() + _PART_S
        self._late = False
        reading = SpanReader(self._consumer, topic, places)
        yield from reading.records(lambda: time.monotonic() < deadline_s)
        self._late = bool(reading.unread)

    def _since(self, topic: str, time_ms: int) -> Iterator[Any]:
        """Yield the records that were written from a time on, as long as there is time."""
        starts = offsets_at(self._consumer, topic, time_ms)
        ends = spans(self._consumer, topic)
        places = {number: (at, ends[number][1]) for number, at in starts.items()}
        yield from self._read(topic, places)

    def look_for_results(self) -> None:
        """Find every result with the id, and where the transactions near it lie."""
        seq, evidence = self._result.seq, self.evidence
        evidence.since_ms = self._result.ts_ms - _BEFORE_MS
        name = (self._result.id or "").encode()
        for message in self._since(self._names.results, evidence.since_ms):
            try:
                result = records.decode_result(message.value() or b"")
            except RecordError as fault:
                if message.key() == name:
                    self.missing("appends", f"a result with its id cannot be read: {fault}")
                continue
            place = result.duplicate or result
            source = result.duplicate or result.source
            if abs(place.seq - seq) < PLAN_SHOWN_MAX:
                self._near[place.seq] = LogPosition(source.partition, source.offset)
            if message.key() == name and result.id == self._result.id:
                if len(evidence.results) < APPENDS_SHOWN_MAX:
                    evidence.results.append(ResultRecord(_place_of(result), message.timestamp()[1]))
                else:
                    self.missing("appends", f"only the first {APPENDS_SHOWN_MAX} are shown")
        evidence.complete = not self._late
        if self._late:
            self.missing("appends", "there are too many results since to look at all of them")
        elif not (evidence.results or "appends" in evidence.missing):
            self.missing("appends", "its results were deleted since")

    @property
    def _written_ms(self) -> int:
        """The time at which its result was written, or about that."""
        times = [each.written_ms for each in self.evidence.results if not each.result.duplicate]
        return min(times, default=self._result.ts_ms)

    def look_into_log(self) -> None:
        """Read the record, and how the other partitions passed its time."""
        topic, source = self._names.transactions, self._result.source
        kept = spans(self._consumer, topic)
        self.evidence.partitions = len(kept)
        low, high = kept.get(source.partition, (0, 0))
        if not low <= source.offset < high:
            self.missing("transaction", "its record was trimmed from the log")
        else:
            own = {source.partition: (source.offset, source.offset + 1)}
            for message in self._read(topic, own):
                self.evidence.raw, self.evidence.append_ms = message.value(), message.timestamp()[1]
        if len(kept) > 1:
            # Find in each other partition the first record that can come after the transaction.
            time_ms = self._result.ts_ms
            later = offsets_at(self._consumer, topic, time_ms + 1)
            places = {
                number: (max(low, later[number] - _LOOK_BACK), min(high, later[number] + 1))
                for number, (low, high) in kept.items()
            }
            passed: dict[int, Passing] = {}
            for message in self._read(topic, places):
                number, stamp = message.partition(), message.timestamp()[1]
                marker = records.decode_marker(message.value())
                beyond = stamp if marker is None else max(stamp, marker.marker)
                if beyond > time_ms and number not in passed:
                    passed[number] = Passing(number, message.offset(), stamp)
            if len(passed) == len(kept):
                self.evidence.passed = [passed[number] for number in sorted(passed)]
            else:
                self.missing("order", "not every partition's records around its time were found")

    def look_for_changes(self) -> None:
        """Find what it wrote, and when everything up to it was written."""
        seq, topic = self._result.seq, self._names.changes
        resolved: dict[int, ResolvedRecord] = {}
        seen: set[records.ChangeName] = set()
        unread = ""
        partitions = len(spans(self._consumer, topic))
        for message in self._since(topic, self._written_ms - _BEFORE_MS):
            change, value = None, message.value()
            try:
                change = None if value is None else records.decode_change(value)
            except RecordError as fault:
                if not records.is_strange_change(value or b""):
                    unread = f"some changes cannot be read: {fault}"
            number, stamp = message.partition(), message.timestamp()[1]
            if isinstance(change, records.Resolved) and change.resolved >= seq:
                resolved.setdefault(number, ResolvedRecord(change.resolved, stamp))
            elif isinstance(change, records.Change) and change.source.seq == seq:
                name = records.change_name(message.key(), change)
                if name not in seen and not is_removal(name.number):
                    seen.add(name)
                    record = ChangeRecord(
                        name.key.decode(), change, number, message.offset(), stamp
                    )
                    self.evidence.changes.append(record)
            if len(resolved) == partitions:
                break
        if unread:
            self.missing("writes", unread)
        self.evidence.changes.sort(key=lambda record: record.change.transaction.total_order)
        if len(resolved) == partitions:
            last = max(resolved.values(), key=lambda record: record.written_ms)
            self.evidence.resolved = last
        else:
            self.missing("resolved")
            if self._result.status == "committed":
                self.missing("writes", "the changes around its result were not all looked at")

    def look_for_plan(self) -> None:
        """Find the feedback that names a plan with it, and that plan's transactions."""
        seq, plan = self._result.seq, None
        for message in self._since(self._names.feedback, self._written_ms - _BEFORE_MS):
            with suppress(RecordError, KeyError, TypeError):
                named = plan_of(message.value() or b"", Feedback)
                if named is not None and named.first <= seq <= named.last:
                    plan = named
                elif named is not None and plan is not None and named.first > seq:
                    break
        if plan is None:
            self.missing(
                "plan", "no feedback names a plan with it: feedback is deleted some time after it "
                "was read, and grouping=single has no plans",
            )  # fmt: skip
            return
        self.evidence.plan = FeedbackPlan(plan.number, plan.first, plan.last, plan.life)
        seqs = range(self.evidence.plan.first, self.evidence.plan.last + 1)
        if any(seq not in self._near for seq in seqs):
            self.missing("group", "the results of its plan are too many, or not there any more")
            return
        at = {self._near[seq]: seq for seq in seqs}
        places: dict[int, tuple[int, int]] = {}
        for partition, offset in at:
            low, high = places.get(partition, (offset, offset + 1))
            places[partition] = min(low, offset), max(high, offset + 1)
        members, left = [], PLAN_BYTES_SHOWN_MAX
        for message in self._read(self._names.transactions, places):
            member = at.get(LogPosition(message.partition(), message.offset()))
            if member is not None:
                left -= len(message.value() or b"")
                if left < 0:
                    bytes_max = PLAN_BYTES_SHOWN_MAX
                    self.missing(
                        "group", f"the records of its plan have more than {bytes_max} bytes"
                    )
                    return
                record = records.decode(message.value())
                txn = record if isinstance(record, records.Transaction) else None
                members.append(PlanMember(member, txn))
        if len(members) == len(seqs):
            self.evidence.plan.members = sorted(members, key=lambda member: member.seq)
        else:
            self.missing("group", "some records of its plan are not in the log any more")

    def look_for_digests(self) -> None:
        """Find the first digests of a state that it is part of."""
        records = [
            (message.key() or b"", message.value() or b"")
            for message in self._since(self._names.digests, self._written_ms - _BEFORE_MS)
        ]
        later = [each for each in beside(records, len(records)) if each.seq >= self._result.seq]
        first = min((each.seq for each in later), default=None)
        self.evidence.digests = [each for each in later if each.seq == first][:_DIGESTS]
        if first is None:
            self.missing("digests", "no digest of a state after it has been told yet")


def _place_of(result: records.Result) -> records.Result:
    """Return a result without what it tells of keys: repetitions of an id may be many."""
    return msgspec.structs.replace(
        result, reads={}, failed=[], ranges=UNSET, returned=UNSET, reason=UNSET
    )

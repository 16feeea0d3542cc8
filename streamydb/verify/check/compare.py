"""Compares the outputs that were read with the expected ones (pure: no Kafka, no clock).

Outputs may come in any order of partitions and any number of times; each is identified by
(seq, index), a removal by time by its key as well, as its index is a hash of that. It must have
exactly the expected bytes every time. On top of that the change feed
has rules along each partition: the changes of one key stay in one partition, in order of seq; a
tombstone follows each delete; nothing up to a resolved seq appears for the first time after it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import msgspec

from streamydb.records.expiry import is_removal
from streamydb.records.formats import UNREADABLE
from streamydb.verify.check.expected import (
    Expected,
    Output,
    OutputName,
    dead_letter_seq,
    result_seq,
)
from streamydb.verify.check.report import CheckReport
from streamydb.verify.check.workflows import Workflows

_NULL = b"null"


class _ComparedSource(msgspec.Struct, gc=False):
    seq: int


class _Order(msgspec.Struct, gc=False):
    total_order: int


class _ComparedChange(msgspec.Struct, gc=False):
    op: str
    after: msgspec.Raw
    source: _ComparedSource
    transaction: _Order


class _Resolved(msgspec.Struct):
    resolved: int
    offsets: dict[str, int]


class _Last(NamedTuple):
    """The newest change of a key that was applied."""

    seq: int
    partition: int
    value: bytes | None


class Comparison:
    """Judges outputs one by one against `expected` and keeps the report.

    Attributes:
        evidence: what does not agree.
        expired: how many results the topic's retention has deleted: the oldest ones.
    """

    def __init__(self, expected: Expected, report: CheckReport, workflows: Workflows) -> None:
        self.expected = expected
        self.workflows = workflows
        self.report = report
        self.expired = 0
        self.evidence = workflows.evidence
        self._seen_results = bytearray(expected.transactions)
        self._seen_changes = bytearray(len(expected.changes))
        self._seen_dead: set[int] = set()
        self._last: dict[bytes, _Last] = {}
        self._deletes: dict[bytes, int] = {}
        self._pending: set[bytes] = set()
        self._resolved: dict[int, int] = {}
        self._decoder = msgspec.json.Decoder(_ComparedChange)
        report.transactions = report.results.expected = expected.transactions
        report.changes.expected = len(expected.changes)
        report.deadletters.expected = len(expected.dead)

    # -- results and dead letters

    def result(self, output: Output) -> None:
        seq = result_seq(output.value)
        digest, seen = None, False
        if 0 < seq <= self.expected.transactions:
            digest, seen = self.expected.results[seq - 1], bool(self._seen_results[seq - 1])
        if self.evidence.judge(OutputName("results", seq, 0), output, digest, seen=seen):
            self._seen_results[seq - 1] = 1

    def dead_letter(self, output: Output) -> None:
        seq = dead_letter_seq(output.value)
        name, digest = OutputName("deadletters", seq, 0), self.expected.dead.get(seq)
        if self.evidence.judge(name, output, digest, seen=seq in self._seen_dead):
            self._seen_dead.add(seq)

    # -- the change feed

    def change(self, output: Output) -> None:
        """Judge one record of the changes topic: a change, a tombstone or a resolved record."""
        if output.key is None:
            self._judge_resolved(output)
        elif output.value is None:
            self._judge_tombstone(output, output.key)
        else:
            self._judge_change(output, output.key, output.value)

    def _judge_change(self, output: Output, key: bytes, value: bytes) -> None:
        """Judge one change and apply it if it is new."""
        try:
            change = self._decoder.decode(value)
        except UNREADABLE:
            self.evidence.judge(OutputName("changes", 0, 0), output, None, seen=False)
            return
        seq, index = change.source.seq, change.transaction.total_order
        if change.op == "d":
            self._deletes[key] = self._deletes.get(key, 0) + 1
        name = OutputName("changes", seq, index, hash(key) if is_removal(index) else 0)
        place = self._position(name)
        digest = self.expected.changes[place] if place >= 0 else None
        seen = place >= 0 and bool(self._seen_changes[place])
        if self.evidence.judge(name, output, digest, seen=seen):
            self._seen_changes[place] = 1
            self._apply(output, key, change)

    def _position(self, name: OutputName) -> int:
        seq, index = name.seq, name.index
        if not 0 < seq <= self.expected.transactions or index < 1:
            return -1
        if is_removal(index):
            return self.expected.removals.get((seq, index, name.key_hash), -1)
        start, end = self.expected.starts[seq - 1], self.expected.starts[seq]
        return start + index - 1 if index <= end - start else -1

    def _apply(self, output: Output, key: bytes, change: _ComparedChange) -> None:
        """Check a new change against the rules along its partition and take over its value."""
        seq, partition = change.source.seq, output.partition
        if seq <= self._resolved.get(partition, 0):
            message = "appears after a resolved record that covers it"
            self.evidence.violate("resolved", output, seq, message)
        last = self._last.get(key)
        if last is not None:
            if last.partition != partition:
                earlier = last.partition
                message = f"is in partition {partition}, earlier ones of the key in {earlier}"
                self.evidence.violate("partition", output, seq, message)
            elif last.seq > seq:
                message = f"comes after the key's change of {last.seq}"
                self.evidence.violate("order", output, seq, message)
        if self._pending and key in self._pending:
            self._pending.discard(key)
            message = "comes where a delete's tombstone should be"
            self.evidence.violate("tombstone", output, seq, message)
        if last is None or last.seq < seq:
            after = bytes(change.after)
            self._last[key] = _Last(seq, partition, None if after == _NULL else after)
        if change.op == "d":
            self._pending.add(key)

    def _judge_tombstone(self, output: Output, key: bytes) -> None:
        """A tombstone answers a delete of its key that has none yet."""
        self.report.tombstones += 1
        count = self._deletes.get(key, 0)
        if count == 0:
            self.evidence.violate("tombstone", output, None, "follows no delete of its key")
            return
        self._deletes[key] = count - 1
        self._pending.discard(key)

    def _judge_resolved(self, output: Output) -> None:
        """A resolved record must name its seq and offsets as the log has them."""
        self.report.resolved += 1
        try:
            record = msgspec.json.decode(output.value or b"", type=_Resolved)
            offsets = {int(number): offset for number, offset in record.offsets.items()}
        except (*UNREADABLE, ValueError):
            self.evidence.violate("resolved", output, None, "is not a resolved record")
            return
        seq = record.resolved
        if seq > self.expected.transactions:
            self.evidence.later_seq = max(self.evidence.later_seq, seq)
            seq = self.expected.transactions
        else:
            wrong = [n for n, o in offsets.items() if not self.expected.covers(seq, n, o)]
            if wrong:
                message = f"names offsets that do not end at its seq (partitions {wrong})"
                self.evidence.violate("resolved", output, seq, message)
        self._resolved[output.partition] = max(seq, self._resolved.get(output.partition, 0))
        self.report.resolved_seq = max(self.report.resolved_seq, record.resolved)

    # -- the end

    @property
    def complete(self) -> bool:
        """True if every expected output has been seen, or was deleted since."""
        expected, report = self.expected, self.report
        return (
            expected.transactions - report.results.matched <= self.expired
            and report.changes.matched == len(expected.changes)
            and report.deadletters.matched == len(expected.dead)
            and not self._pending
            and self.workflows.complete
        )

    def finish(self, values: dict[bytes, tuple[bytes, int]]) -> None:
        """Count what is missing, and compare the values with the replay's final state.

        Args:
            values: the replay's state, key -> (canonical value, version).
        """
        # Count results that were never seen; those that were deleted cannot be checked.
        seen_results, counts = self._seen_results, self.report.results
        missing = seen_results.count(0)
        counts.expired = min(self.expired, missing)
        counts.missing = missing - counts.expired
        at = seen_results.find(0)
        for _ in range(counts.expired):
            at = seen_results.find(0, at + 1)
        while at >= 0 and self.evidence.absent(OutputName("results", at + 1, 0)):
            at = seen_results.find(0, at + 1)
        self._missing_changes()
        self._missing_dead()
        self.workflows.finish()
        for key in sorted(self._pending):
            position = Output(self._last[key].partition, -1, key, None)
            self.evidence.violate("tombstone", position, self._last[key].seq, "has no tombstone")
        # Compare key by key the state that the changes add up to with the replay's.
        last, report = self._last, self.report
        report.keys = len(values)
        for key, (value, version) in values.items():
            change = last.get(key)
            if change is None or change.value != value or change.seq != version:
                actual = (None, 0) if change is None else (change.value, change.seq)
                self.evidence.value_differs(key, (value, version), actual)
        for key, change in last.items():
            if change.value is not None and key not in values:
                self.evidence.value_differs(key, (None, 0), (change.value, change.seq))

    def _missing_changes(self) -> None:
        seen_changes, starts = self._seen_changes, self.expected.starts
        removals = {place: name for name, place in self.expected.removals.items()}
        self.report.changes.missing = seen_changes.count(0)
        at = seen_changes.find(0)
        while at >= 0:
            seq = bisect_right(starts, at)
            place = removals.get(at, (seq, at - starts[seq - 1] + 1, 0))
            if not self.evidence.absent(OutputName("changes", *place)):
                return
            at = seen_changes.find(0, at + 1)

    def _missing_dead(self) -> None:
        absent = sorted(self.expected.dead.keys() - self._seen_dead)
        self.report.deadletters.missing = len(absent)
        for seq in absent:
            if not self.evidence.absent(OutputName("deadletters", seq, 0)):
                return

"""Compares streams and follow-ups with the replay: each is there, with its bytes.

A follow-up is a record of the log. Each that the replay makes must be in the log; copies of it are
harmless, and the replay executes them as it executes everything in the log. Nothing else may look
like one.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from streamydb.records import Transaction, decode
from streamydb.records.formats import UNREADABLE
from streamydb.records.names import FOLLOW_UP_MARK
from streamydb.verify.check.expected import Output, OutputName
from streamydb.verify.check.report import CheckEvidence, CheckReport
from streamydb.verify.oracle.outputs import OutputRecord


class _StreamPlace(msgspec.Struct, gc=False):
    seq: int
    index: int


_decode = msgspec.json.Decoder(_StreamPlace).decode


class Workflows:
    """The expectation of a replay about streams and follow-ups, and what was seen of them.

    Attributes:
        evidence: what does not agree.
    """

    def __init__(self, report: CheckReport) -> None:
        self.evidence = CheckEvidence(report)
        self._expected: dict[OutputName, int] = {}
        self._seen: set[OutputName] = set()

    def expect(self, outputs: Iterable[OutputRecord]) -> None:
        """Keep what one transaction gives to its workflow."""
        for topic, key, value in outputs:
            if topic in ("streams", "transactions"):
                self._expected[workflow_name(topic, value)] = hash((key, value))
                self.evidence.counts[topic].expected += 1

    @property
    def any(self) -> bool:
        """True if the log makes use of workflows."""
        return bool(self._expected)

    @property
    def complete(self) -> bool:
        return len(self._seen) == len(self._expected)

    def stream(self, output: Output) -> None:
        self._judge(workflow_name("streams", output.value), output)

    def follow_up(self, output: Output) -> None:
        """Judge one record of the log, if it is a follow-up.

        Anybody may append a record with such an id that is no follow-up: it is rejected.
        """
        value = output.value
        if value is not None and value.startswith(FOLLOW_UP_MARK) and _is_follow_up(decode(value)):
            self._judge(workflow_name("transactions", value), output)

    def finish(self) -> None:
        for name in sorted(self._expected.keys() - self._seen):
            self.evidence.counts[name.topic].missing += 1
            self.evidence.absent(name)

    def _judge(self, name: OutputName, output: Output) -> None:
        digest = self._expected.get(name)
        if self.evidence.judge(name, output, digest, seen=name in self._seen):
            self._seen.add(name)


def _is_follow_up(record: object) -> bool:
    """Return True if a decoded record is a transaction that takes a batch."""
    if not isinstance(record, Transaction) or record.call is UNSET:
        return False
    return record.call.batch is not UNSET


def workflow_name(topic: str, value: bytes | None) -> OutputName:
    """The name of a record of a stream, or, by its id, of a follow-up; zeros if it has none."""
    text = value or b""
    if topic == "streams":
        try:
            record = _decode(text)
        except UNREADABLE:
            return OutputName(topic, 0, 0)
        return OutputName(topic, record.seq, record.index)
    begin = len(FOLLOW_UP_MARK)
    seq, _, index = text[begin : max(text.find(b'"', begin), 0)].partition(b"/")
    if not (seq.isdigit() and index.isdigit()):
        return OutputName(topic, 0, 0)
    return OutputName(topic, int(seq), int(index))

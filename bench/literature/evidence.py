"""Telling a judge what is in Kafka, or what the serial oracle makes of a log in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from bench.literature.judging import Answered, Asked, Changed, Judge, number_of
from streamydb.kafka import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.verify.oracle.outputs import OutputRecord

__all__ = ["STATUSES", "Evidence", "from_kafka", "from_outputs"]

Note = Callable[[str], object]
Record = tuple[bytes | None, bytes | None]

STATUSES: Final = ("", "committed", "aborted", "rejected")
"""How a transaction ends; the first: it has no result."""


class _Source(msgspec.Struct, gc=False):
    seq: int


class _Change(msgspec.Struct, gc=False):
    source: _Source
    after: Any = None


_ASKED: Final = msgspec.json.Decoder(Asked)
_ANSWERED: Final = msgspec.json.Decoder(Answered)
_CHANGE: Final = msgspec.json.Decoder(_Change)


class Evidence:
    """Tells a judge, each thing once: repetitions after a crash are left out.

    Attributes:
        statuses: of the transaction with each number, as a place in `STATUSES`.
    """

    def __init__(self, judge: Judge) -> None:
        """Tell `judge`."""
        self.statuses = bytearray()
        self._judge = judge
        self._answered = bytearray()
        self._last: dict[bytes, int] = {}

    def asked(self, value: bytes | None) -> None:
        """A record of the log."""
        if value is not None:
            self._judge.asked(_ASKED.decode(value))

    def answered(self, value: bytes | None) -> None:
        """A record of the results."""
        if value is None:
            return
        result = _ANSWERED.decode(value)
        if result.seq >= len(self._answered):
            self._answered.extend(bytes(2 * result.seq + 1 - len(self._answered)))
        if not self._answered[result.seq]:
            self._answered[result.seq] = 1
            self._note(number_of(result.id), result.status)
            self._judge.answered(result)

    def count(self, status: str, first: int = 0, end: int | None = None) -> int:
        """How many of the transactions with these numbers ended so."""
        return self.statuses[first:end].count(STATUSES.index(status))

    def _note(self, number: int, status: str) -> None:
        if number >= len(self.statuses):
            self.statuses.extend(bytes(2 * number + 1 - len(self.statuses)))
        if number >= 0:
            self.statuses[number] = STATUSES.index(status)

    def changed(self, key: bytes | None, value: bytes | None) -> None:
        """A record of the changes; tombstones and resolved ones say nothing new."""
        if key is None or value is None:
            return
        change = _CHANGE.decode(value)
        seq = change.source.seq
        if seq > self._last.get(key, 0):
            self._last[key] = seq
            self._judge.changed(Changed(key.decode(), seq, change.after))


def from_kafka(
    judge: Judge, connection: Mapping[str, str], names: TopicNames, note: Note = lambda _: None
) -> Evidence:
    """Tell a judge everything that is in the topics now.

    Raises:
        ReadingError: Kafka does not answer.
    """
    evidence = Evidence(judge)
    if judge.needs_log:
        for _, value in _records(connection, names.transactions, note):
            evidence.asked(value)
    for _, value in _records(connection, names.results, note):
        evidence.answered(value)
    for key, value in _records(connection, names.changes, note):
        evidence.changed(key, value)
    return evidence


def from_outputs(judge: Judge, log: Iterable[bytes], outputs: Iterable[OutputRecord]) -> Evidence:
    """Tell a judge a log and what was made of it, in memory."""
    evidence = Evidence(judge)
    for record in log:
        evidence.asked(record)
    for topic, key, value in outputs:
        if topic == "results":
            evidence.answered(value)
        elif topic == "changes":
            evidence.changed(key, value)
    return evidence


def _records(connection: Mapping[str, str], topic: str, note: Note) -> Iterator[Record]:
    """All records of a topic up to its end as it is now."""
    with TopicReader(connection, topic) as reader:
        spans = reader.spans()
        ends = {number: span.high for number, span in spans.items()}
        total, read = sum(ends.values()), 0
        reader.assign({number: span.low for number, span in spans.items()})
        for messages in reader.until(ends):
            read += len(messages)
            note(f"{topic}: {read:,} of {total:,}")
            yield from ((message.key(), message.value()) for message in messages)

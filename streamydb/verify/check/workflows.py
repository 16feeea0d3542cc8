"""Compares streams and follow-ups with the replay: each is there, with its bytes.

A follow-up is a record of the log. Each that the replay makes must be in the log; copies of it are
harmless, and the replay executes them as it executes everything in the log. Nothing else may look
like one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from streamydb.records import Transaction, decode
from streamydb.records.formats import UNREADABLE
from streamydb.records.names import FOLLOW_UP_MARK
from streamydb.verify.check.report import CheckReport, Difference, OutputCounts, excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamydb.verify.check.expected import Output
    from streamydb.verify.oracle.outputs import OutputRecord


class _StreamPlace(msgspec.Struct, gc=False):
    seq: int
    index: int


class Workflows:
    """The expectation of a replay about streams and follow-ups, and what was seen of them.

    Attributes:
        later_seq: the highest seq past the replay that any of them claimed.
    """

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        self.later_seq = 0
        self._streams: dict[tuple[int, int], int] = {}
        self._follow_ups: dict[tuple[int, int], int] = {}
        self._seen: dict[str, set[tuple[int, int]]] = {"streams": set(), "transactions": set()}
        self._decode = msgspec.json.Decoder(_StreamPlace).decode

    def expect(self, outputs: Iterable[OutputRecord]) -> None:
        """Keep what one transaction gives to its workflow."""
        for topic, key, value in outputs:
            if topic == "streams":
                record = self._decode(value or b"")
                self._streams[record.seq, record.index] = hash((key, value))
                self.report.streams.expected += 1
            elif topic == "transactions":
                self._follow_ups[_follow_up(value or b"")] = hash((key, value))
                self.report.follow_ups.expected += 1

    @property
    def any(self) -> bool:
        """True if the log makes use of workflows."""
        return bool(self._streams or self._follow_ups)

    @property
    def complete(self) -> bool:
        report = self.report
        counts = (report.streams, report.follow_ups)
        return all(count.matched == count.expected for count in counts)

    def stream(self, output: Output) -> None:
        try:
            record = self._decode(output.value or b"")
            position = record.seq, record.index
        except UNREADABLE:
            position = 0, 0
        self._judge("streams", self._streams, self.report.streams, position, output)

    def follow_up(self, output: Output) -> None:
        """Judge one record of the log, if it is a follow-up.

        Anybody may append a record with such an id that is no follow-up: it is rejected.
        """
        value = output.value
        if value is not None and value.startswith(FOLLOW_UP_MARK) and _is_follow_up(decode(value)):
            position = _follow_up(value)
            self._judge("transactions", self._follow_ups, self.report.follow_ups, position, output)

    def finish(self) -> None:
        for topic, records, counts in (
            ("streams", self._streams, self.report.streams),
            ("transactions", self._follow_ups, self.report.follow_ups),
        ):
            for seq, index in sorted(records.keys() - self._seen[topic]):
                counts.missing += 1
                message = "the replay produces this record; it is not in the topic"
                self.report.note(
                    Difference(kind="missing", topic=topic, message=message, seq=seq, index=index)
                )

    def _judge(
        self,
        topic: str,
        wanted: dict[tuple[int, int], int],
        counts: OutputCounts,
        place: tuple[int, int],
        output: Output,
    ) -> None:
        seq, index = place
        if seq > self.report.transactions:
            counts.later += 1
            self.later_seq = max(self.later_seq, seq)
        elif place not in wanted:
            counts.extra += 1
            message = "no transaction of the log accounts for this record"
            self._note("extra", topic, message, output, place)
        elif wanted[place] != hash((output.key, output.value)):
            counts.differing += 1
            message = f"({seq}, {index}): the bytes (key or value) are not those of the replay"
            self._note("differing", topic, message, output, place)
        elif place in self._seen[topic]:
            counts.duplicates += 1
        else:
            self._seen[topic].add(place)
            counts.matched += 1

    def _note(
        self, kind: str, topic: str, message: str, output: Output, place: tuple[int, int]
    ) -> None:
        self.report.note(
            Difference(
                kind=kind,
                topic=topic,
                message=message,
                partition=output.partition,
                offset=output.offset,
                seq=place[0] or None,
                index=place[1] or None,
                actual=excerpt(output.value),
            )
        )


def _is_follow_up(record: object) -> bool:
    """Return True if a decoded record is a transaction that takes a batch."""
    if not isinstance(record, Transaction) or record.call is UNSET:
        return False
    return record.call.batch is not UNSET


def _follow_up(value: bytes) -> tuple[int, int]:
    """The seq and index in the id of a follow-up; zeros if it has none."""
    begin = len(FOLLOW_UP_MARK)
    seq, _, index = value[begin : max(value.find(b'"', begin), 0)].partition(b"/")
    return (int(seq), int(index)) if seq.isdigit() and index.isdigit() else (0, 0)

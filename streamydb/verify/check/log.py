"""The log as the check reads it: all of it, in the total order, any number of times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from streamydb.kafka import TopicNames
from streamydb.kafka.reader import TopicReader
from streamydb.verify.check.expected import Output
from streamydb.verify.check.logorder import LogOrder
from streamydb.verify.oracle.order import LogRecord, Ordered

if TYPE_CHECKING:
    from streamydb.backup.pieces import LogSource, Piece

PREFETCH_KB = 131_072
"""Memory for records that were fetched ahead, shared by the readers of one topic."""


class CheckError(RuntimeError):
    """The check cannot be made; the message says why and what to do."""


class Log:
    """The log up to the end that it had when the check began.

    Args:
        partitions: of the log at the database's creation; None = as many as now.
        trimmed: has what was trimmed: a backup.

    Attributes:
        ends: per partition, one past the last offset.
        order: of what was read last.

    Raises CheckError: part of the log is gone and not in ``trimmed``. Raises ReadingError: the
    topic is missing or the broker does not answer.
    """

    def __init__(
        self,
        connection: Mapping[str, str],
        database: str,
        partitions: int | None,
        trimmed: LogSource | None,
    ) -> None:
        self._connection = connection
        self._trimmed = trimmed
        self.topic = TopicNames(database).transactions
        with TopicReader(connection, self.topic) as reader:
            spans = reader.spans()
        self._starts = {number: span.low for number, span in spans.items() if span.low > 0}
        if self._starts and trimmed is None:
            raise CheckError(
                f"{self.topic} was trimmed (or retention deleted the beginning of the partitions "
                f"{list(self._starts)}), so the log alone cannot be replayed: name the backup that "
                "it was trimmed behind (`streamydb check --backup FOLDER`)"
            )
        self.ends = {number: span.high for number, span in spans.items()}
        initial = partitions or len(spans)
        if initial > len(spans):
            raise CheckError(
                f"{self.topic} has {len(spans)} partitions, fewer than the {initial} that the "
                "database was created with: the topic was deleted and made again"
            )
        self._initial = initial
        self.order = LogOrder(initial)

    @property
    def records(self) -> int:
        """Offsets in the log, markers included."""
        return sum(self.ends.values())

    def ordered(self) -> Iterator[list[Ordered]]:
        """The released transactions in their total order, in batches, from the beginning."""
        self.order = order = LogOrder(self._initial)
        with ExitStack() as stack:
            parts = {number: self._part(number, stack) for number in self.ends}
            unfinished = {number for number, end in self.ends.items() if end > 0}
            yield from order.released(unfinished, lambda number: parts[number].batch())

    def trimmed(self) -> Iterator[Output]:
        for number in self._starts:
            for piece in self._before(number):
                for offset, _, key, value in piece.rows():
                    yield Output(number, offset, key, value)

    @property
    def unjoined(self) -> int:
        """Offsets in partitions that were added and that no marker has let into the order yet."""
        return sum(end for number, end in self.ends.items() if number >= self.order.joined)

    def grown(self) -> int:
        """Return how many records the log has got since the check began."""
        with TopicReader(self._connection, self.topic) as reader:
            now = reader.spans()
        return sum(span.high for span in now.values()) - self.records

    def _part(self, number: int, stack: ExitStack) -> _LogPart:
        """A partition, at its beginning."""
        share = max(1024, PREFETCH_KB // len(self.ends))
        options = {**self._connection, "queued.max.messages.kbytes": str(share)}
        reader = stack.enter_context(TopicReader(options, self.topic))
        reader.assign({number: self._starts.get(number, 0)})
        return _LogPart(self._before(number), reader, number, self.ends[number])

    def _before(self, number: int) -> Iterator[Piece]:
        """Yield the records that a partition does not have any more."""
        start = self._starts.get(number, 0)
        return self._trimmed.pieces(number, 0, start) if self._trimmed and start else iter(())


class _LogPart:
    """A partition that is being read: what was trimmed, then what is there."""

    def __init__(self, before: Iterator[Piece], reader: TopicReader, number: int, end: int) -> None:
        self._before = before
        self._reader = reader
        self._number = number
        self._end = end

    def batch(self) -> list[LogRecord] | None:
        for piece in self._before:
            return [LogRecord(offset, at_ms, value) for offset, at_ms, _, value in piece.rows()]
        for batch in self._reader.until({self._number: self._end}):
            return [
                LogRecord(message.offset(), message.timestamp()[1], message.value())
                for message in batch
                if message.offset() < self._end
            ]
        return None

"""Find an old result in the results topic.

Results are read on from the time their transaction was appended, if that is known. Otherwise the
newest are read first, back to the beginning of the topic or until the time is up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from streamydb.errors import ID_REUSED, RecordError
from streamydb.facade.payloads import time_of_id
from streamydb.facade.ports import LogPosition, NoResult
from streamydb.facade.result_batch import position_of, result_in
from streamydb.facade.results import REFUSED_COPIES
from streamydb.kafka.clients import CLOCK_SKEW_MS, FOLLOWING, reader
from streamydb.kafka.errors import KafkaException, KafkaUnavailableError, LogFaultError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import SpanReader, assign, at_end, offsets_at, spans
from streamydb.records import Result
from streamydb.settings import Settings

SEARCH_S: Final = 8.0  # how long results are searched for one transaction
_STRETCH: Final = 50_000  # records of a partition that are read at a time on the way back
_RECORD_S: Final = 3.0
_Span = tuple[int, int]


def search_result(
    settings: Settings, txn_id: str, position: LogPosition | None
) -> Result | NoResult:
    """Search the results from when the transaction was appended; waits for Kafka.

    That time is the record's if its position is known, else what a UUID of version 7 says; that is
    the word of whoever made the id, so that without a find there all other results follow.
    Raises KafkaUnavailableError: Kafka does not answer; LogFaultError: a result of the id cannot be
    read by this release.
    """
    names = TopicNames(settings.database)
    consumer = reader(settings.client_config(), FOLLOWING, eof=True)
    try:
        since_ms = _appended_ms(consumer, names.transactions, position)
        if since_ms is None:
            since_ms = time_of_id(txn_id)
        search = _Search(consumer, names.results, txn_id, position)
        # An id holds the time of its client's clock, which may be ahead of the brokers'.
        return search.run(None if since_ms is None else since_ms - CLOCK_SKEW_MS)
    except KafkaException as error:
        raise KafkaUnavailableError(error.args[0].str()) from error
    finally:
        consumer.close()


def _appended_ms(consumer: Any, topic: str, position: LogPosition | None) -> int | None:
    if position is None:
        return None
    low, high = spans(consumer, topic).get(position.partition, (0, 0))
    if not low <= position.offset < high:
        return None
    assign(consumer, topic, {position.partition: position.offset})
    message = consumer.poll(_RECORD_S)
    if message is not None and at_end(message):  # it was trimmed meanwhile
        return None
    if message is None or message.error() is not None:
        raise KafkaUnavailableError(f"{topic} cannot be read")
    stamp: int = message.timestamp()[1]
    return stamp


class _Search:
    def __init__(
        self, consumer: Any, topic: str, txn_id: str, position: LogPosition | None
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._key = txn_id.encode()
        self._position = position
        self._deadline = time.monotonic() + SEARCH_S
        self._refused: Result | None = None
        self._firsts_ms: dict[int, int] = {}  # of the stretch that is being read, by partition
        self._since_ms: dict[int, int] = {}  # all of a partition that came since was looked at

    def run(self, since_ms: int | None) -> Result | NoResult:
        """Read on from a time to the ends as they are now, then back from there."""
        kept = spans(self._consumer, self._topic)
        places = {number: high for number, (_, high) in kept.items()}
        if since_ms is not None:
            places = offsets_at(self._consumer, self._topic, since_ms)
            result = self._read({n: (places[n], high) for n, (_, high) in kept.items()})
            if result is not None:
                return result
            if self._has_time():
                self._since_ms = dict.fromkeys(kept, since_ms)
        while self._has_time() and any(places[n] > low for n, (low, _) in kept.items()):
            starts = {n: max(low, places[n] - _STRETCH) for n, (low, _) in kept.items()}
            result = self._read({n: (start, places[n]) for n, start in starts.items()})
            if result is not None:
                return result
            if self._has_time():
                places = starts  # what lies before may have the same millisecond
                self._since_ms |= {n: first_ms + 1 for n, first_ms in self._firsts_ms.items()}
        complete = self._has_time()
        if self._refused is not None and (complete or self._refused.code == ID_REUSED):
            return self._refused
        unread = [n for n, (low, _) in kept.items() if places[n] > low]
        return NoResult(complete, None if complete else self._looked_at_since(unread))

    def _looked_at_since(self, unread: list[int]) -> int | None:
        """Return the time since when all results were looked at; None: nobody knows."""
        known = [self._since_ms[n] for n in unread if n in self._since_ms]
        return max(known) if known and len(known) == len(unread) else None

    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline

    def _read(self, wanted: Mapping[int, _Span]) -> Result | None:
        self._firsts_ms = {}
        for message in SpanReader(self._consumer, self._topic, wanted).records(self._has_time):
            self._firsts_ms.setdefault(message.partition(), message.timestamp()[1])
            result = self._looked_at(message)
            if result is not None:
                return result
        return None

    def _looked_at(self, message: Any) -> Result | None:
        if message.key() != self._key:
            return None
        try:
            result = result_in(message.value() or b"")
        except RecordError as error:
            raise LogFaultError(str(error)) from error
        if result is not None and self._position not in {None, position_of(result)}:
            return None
        if result is not None and self._position is None and result.code in REFUSED_COPIES:
            self._refused = self._refused or result
            return None
        return result

"""The streams of procedures on Kafka: the latest records as they come, older ones on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from streamydb.facade.ports import PageBounds, StreamRow, StreamSpan
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.waiting import run_in
from streamydb.kafka.clients import CLOCK_SKEW_MS, FOLLOWING, reader
from streamydb.kafka.columns import Record
from streamydb.kafka.follower import TopicFollower
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import SpanReader, offsets_at, spans
from streamydb.kafka.strangers import Strangers
from streamydb.records.emission import is_strange_emission, place_of
from streamydb.settings import Settings


class KafkaStreams:
    """A database's streams on Kafka; see `StreamSource`."""

    def __init__(self, settings: Settings, facade: FacadeSettings) -> None:
        self._settings = settings
        self._topic = TopicNames(settings.database).streams
        self._strangers = Strangers(self._topic)
        self._executor = ThreadPoolExecutor(facade.catch_ups_max + 1, "streamydb-streams")
        self._tail: TopicFollower[list[StreamRow]] | None = None

    async def start(self, publish: Callable[[Sequence[StreamRow]], None]) -> Mapping[int, int]:
        if self._tail is not None:
            await run_in(self._executor, self._tail.close)
            self._tail = None
        ends = await run_in(self._executor, self._ends)
        self._tail = TopicFollower(
            self._settings, self._topic, ends, lambda records: [*self._rows(records)], publish
        )
        return ends

    async def stop(self) -> None:
        if self._tail is not None:
            await run_in(self._executor, self._tail.close)
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def offset_after(self, partition: int, seq: int, ts_ms: int, patience_s: float) -> int:
        """Return an offset from which on all records after a seq come, perhaps earlier ones too."""
        return await run_in(self._executor, self._offset_after, partition, seq, ts_ms, patience_s)

    async def history(self, wanted: StreamSpan, bounds: PageBounds) -> tuple[list[StreamRow], int]:
        return await run_in(self._executor, self._read, wanted, bounds)

    def fault(self) -> str | None:
        """Return what is wrong, if something is; an outage of Kafka is not: readers wait."""
        return None if self._tail is None else self._tail.obstacle()

    def failed(self) -> bool:
        return self._tail is None or self._tail.failed()

    def _ends(self) -> dict[int, int]:
        with closing(reader(self._settings.client_config(), FOLLOWING)) as consumer:
            kept_spans = spans(consumer, self._topic)
            return {number: high for number, (_, high) in kept_spans.items()}

    def _offset_after(self, partition: int, seq: int, ts_ms: int, patience_s: float) -> int:
        """The place of the commit timestamp, if a record there shows that clocks were sane. A
        record is appended after its commit timestamp, unless a clock had jumped ahead.
        """
        with closing(reader(self._settings.client_config(), FOLLOWING, eof=True)) as consumer:
            low, high = spans(consumer, self._topic)[partition]
            if ts_ms <= CLOCK_SKEW_MS:
                return low
            at = offsets_at(consumer, self._topic, ts_ms - CLOCK_SKEW_MS)[partition]
            if at <= low:
                return low
            until = time.monotonic() + patience_s
            reading = SpanReader(consumer, self._topic, {partition: (min(at, high - 1), high)})
            for row in self._rows(reading.records(lambda: time.monotonic() < until)):
                return at if place_of(row.value)[0] <= seq else low
            return low

    def _read(self, span: StreamSpan, bounds: PageBounds) -> tuple[list[StreamRow], int]:
        with closing(reader(self._settings.client_config(), FOLLOWING, eof=True)) as consumer:
            low, _ = spans(consumer, self._topic)[span.partition]
            begin, after = max(span.begin, low), span.after
            until = time.monotonic() + bounds.patience_s
            reading = SpanReader(consumer, self._topic, {span.partition: (begin, span.end)})
            rows: list[StreamRow] = []
            size = 0
            for row in self._rows(reading.records(lambda: time.monotonic() < until)):
                if row.key != span.stream:
                    continue
                place = place_of(row.value)
                if place <= after:  # again, after a crash of the pipeline
                    continue
                size += len(row.value)
                if rows and (len(rows) >= bounds.records_max or size > bounds.bytes_max):
                    return rows, row.offset
                rows.append(row)
                after = place
            return rows, min(reading.positions[span.partition], span.end)

    def _rows(self, records: Iterable[Record]) -> Iterator[StreamRow]:
        for record in records:
            value = record.value() or b""
            if is_strange_emission(value):
                self._strangers.pass_over(record.partition(), record.offset())
            else:
                yield StreamRow(record.partition(), record.offset(), record.key() or b"", value)

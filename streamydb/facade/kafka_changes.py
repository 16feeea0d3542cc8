"""The change feed on Kafka: the changes topic, merged to the order of the transactions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final

from streamydb.errors import RecordError, StreamyError
from streamydb.facade.feed import Merger
from streamydb.facade.feed_index import FeedIndex
from streamydb.facade.ports import ChangeBatch, FollowedModel, PageBounds, StreamRow, StreamSpan
from streamydb.facade.problems import ProblemError
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.waiting import ThreadsEndedError, run_in
from streamydb.kafka.changes import GONE, HOPELESS, PARTITIONS_CHECK_S
from streamydb.kafka.clients import CLOCK_SKEW_MS, FOLLOWING, reader
from streamydb.kafka.columns import Record
from streamydb.kafka.errors import KafkaException
from streamydb.kafka.follower import TopicFollower
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import (
    REQUEST_S,
    SpanReader,
    assign,
    offsets_at,
    pause,
    receive,
    resume,
    seek,
    spans,
)
from streamydb.kafka.strangers import ChangeRecords, Strangers
from streamydb.read_model.progress import PartitionProgress
from streamydb.records import Resolved
from streamydb.records.emission import is_strange_emission, place_of
from streamydb.settings import Settings

_POLL_S: Final = 0.25
_BATCH: Final = 2_000
_AHEAD_BYTES_MAX: Final = 8_388_608
_BACK: Final = 1_000
"""So many records before the first guess lies the second one."""

_FURTHER: Final = 4
"""Each step back is so many times as long as the one before."""

_NEVER_SKIPPING: Final = {**FOLLOWING, "auto.offset.reset": "error"}


@dataclass(slots=True)
class _Guess:
    """A place to begin that has not been proved; ``step``: how far before it the next one lies."""

    place: int
    step: int = field(default_factory=lambda: _BACK)

    def earlier(self) -> int:
        """Return the next place."""
        self.place -= self.step
        self.step *= _FURTHER
        return self.place


class ChangeReader:
    """Reads the changes after a seq, from its commit timestamp on.

    A change after a seq was appended after that seq's commit timestamp, so that this is a good
    place to begin (less an allowance for clocks). An index may know a better one.

    Whatever the clocks say, the records after a place tell whether some that are wanted lie before
    it. A micro-batch says among its own changes what the one before resolved, so the first resolved
    seq tells nothing of the changes in front of it. One that is above what the first record tells
    does, if it is not above the wanted one: then none is missing. If none comes, the reader goes
    back, further each time.

    Kafka deletes old changes. A partition that does not begin at offset 0 has all that is wanted if
    a read model has read all that was deleted, and met no change of a higher seq; or if its first
    records tell so. Otherwise changes may be missing: an error.
    """

    def __init__(
        self,
        settings: Settings,
        since: int,
        ts_ms: int | None,
        followed: Mapping[int, PartitionProgress] | None = None,
        newest: int = 0,
        *,
        index: FeedIndex | None = None,
        notes: FeedIndex | None = None,
    ) -> None:
        """Connect, to read the changes after seq `since`, whose commit timestamp is `ts_ms` if that
        is known. ``followed``: how far a read model has read. ``newest``: the largest seq that it
        met there. ``index``: of the topic. ``notes``: is told what is read.
        Raises KafkaUnavailableError: Kafka does not answer; ProblemError: snapshot-gone: Kafka has
        deleted some of the changes.
        """
        topic = TopicNames(settings.database).changes
        self._topic = topic
        self._records = ChangeRecords(topic)
        self._since = since
        self._lock = threading.Lock()
        self._closed = False
        self._paused: set[int] = set()
        self._first: dict[int, int] = {}
        self._consumer = reader(settings.client_config(), _NEVER_SKIPPING, eof=True)
        try:
            kept = spans(self._consumer, topic)
            self._lows = {number: low for number, (low, _) in kept.items()}
            self._trimmed = _trimmed_partitions(self._lows, followed or {}, since, newest)
            starts = dict(self._lows)
            if ts_ms is not None:
                starts |= offsets_at(self._consumer, topic, ts_ms - CLOCK_SKEW_MS)
            known = {} if index is None else self._known_places(index)
        except StreamyError:
            self._consumer.close()
            raise
        self._counted_s = time.monotonic()
        guessed = {n: at for n, at in starts.items() if n not in known and at > self._lows[n]}
        self._guesses = {n: _Guess(at) for n, at in guessed.items()}
        starts |= known
        self._trimmed -= known.keys()
        self._merger = Merger(len(starts), since)
        self._notes = notes
        if notes is not None:
            notes.begin(starts)
        assign(self._consumer, topic, starts)

    def poll(self) -> list[ChangeBatch]:
        """Return the batches that have become complete; waits for a moment if there are none.
        Raises ProblemError: snapshot-gone: Kafka has deleted some of the changes; log-unavailable:
        they cannot be read, or lie in partitions that nobody here reads; RecordError: a change is
        of a release that this one cannot read.
        """
        with self._lock:
            if self._closed:
                return []
            self._check_partitions()
            batches = []
            late: set[int] = set()
            messages, failures = receive(self._consumer, _BATCH, _POLL_S)
            for error, _, _ in failures:
                if error.code() in GONE:
                    raise _snapshot_gone()
                if error.code() in HOPELESS:
                    raise ProblemError(
                        "log-unavailable", f"The changes cannot be read: {error.name()}."
                    )
            ended = {failure.partition for failure in failures if failure.is_end}
            for message in messages:
                number = message.partition()
                if number in late:
                    continue
                record = self._records.read(number, message.offset(), message.value())
                if record is None:
                    continue
                if number not in self._first:
                    self._first[number] = (
                        record.resolved if isinstance(record, Resolved) else record.source.seq - 1
                    )
                if isinstance(record, Resolved) and self._begins_late(number, record.resolved):
                    late.add(number)  # what follows here comes again, after what lies before
                else:
                    if self._notes is not None:
                        self._notes.note(number, message.offset(), record)
                    batch = self._merger.take(number, message.key(), record)
                    batches += [] if batch is None else [batch]
            for number in ended & self._guesses.keys():
                self._go_back(number)
            # Stop reading partitions that are far ahead, until the others have come after them.
            for number in self._lows:
                ahead = self._merger.is_ahead(number, _AHEAD_BYTES_MAX)
                if ahead and number not in self._paused:
                    pause(self._consumer, self._topic, number)
                    self._paused.add(number)
                elif not ahead and number in self._paused:
                    resume(self._consumer, self._topic, number)
                    self._paused.discard(number)
            return batches

    def close(self) -> None:
        """End; waits for a poll that is under way."""
        with self._lock:
            self._closed = True
            self._consumer.close()

    def _known_places(self, index: FeedIndex) -> dict[int, int]:
        """Return where to begin in the partitions of which an index knows it, whatever the clocks
        say; of these, Kafka has deleted nothing of what is wanted.
        """
        places = {number: index.place(number, self._since) for number in self._lows}
        return {n: at for n, at in places.items() if at is not None and at >= self._lows[n]}

    def _begins_late(self, number: int, resolved: int) -> bool:
        """Return True if what is resolved comes too early: changes may lie before what was read.
        Raises ProblemError: Kafka has deleted them.
        """
        if resolved <= self._since:
            if resolved > self._first[number]:
                self._trimmed.discard(number)
                self._guesses.pop(number, None)
            return False
        if number in self._guesses:
            self._go_back(number)
            return True
        if number in self._trimmed:
            raise _snapshot_gone()
        return False

    def _go_back(self, number: int) -> None:
        """Read a partition from an earlier place, at last from its beginning."""
        guess, low = self._guesses[number], self._lows[number]
        place = guess.earlier()
        if place <= low:
            del self._guesses[number]
        self._first.pop(number, None)
        seek(self._consumer, self._topic, number, max(place, low))

    def _check_partitions(self) -> None:
        """Refuse to go on when the topic has grown: then changes lie where nobody reads."""
        now_s = time.monotonic()
        if now_s - self._counted_s < PARTITIONS_CHECK_S:
            return
        self._counted_s = now_s
        with suppress(KafkaException):
            cluster = self._consumer.list_topics(self._topic, timeout=REQUEST_S)
            if len(cluster.topics[self._topic].partitions) > len(self._lows):
                detail = "The topic of the changes has been given more partitions."
                raise ProblemError("log-unavailable", detail)


def _trimmed_partitions(
    lows: Mapping[int, int], followed: Mapping[int, PartitionProgress], since: int, newest: int
) -> set[int]:
    """The partitions of which changes after a seq may have been deleted. A read model that has
    passed what was deleted may have met changes there that are not resolved. Raises ProblemError:
    some have been.
    """
    trimmed = set()
    for number, low in lows.items():
        part = followed.get(number, PartitionProgress())
        if part.resolved.seq > since and part.position <= low:
            raise _snapshot_gone()
        if low > 0 and (part.position < low or max(part.resolved.seq, newest) > since):
            trimmed.add(number)
    return trimmed


def _snapshot_gone() -> ProblemError:
    detail = (
        "Kafka has deleted some of the changes after this seq (retention.ms): read the present "
        "state, and follow the changes after its seq."
    )
    return ProblemError("snapshot-gone", detail)


class KafkaChanges:
    """A database's changes on Kafka; `model` knows the commit timestamps of seqs."""

    def __init__(self, settings: Settings, facade: FacadeSettings, model: FollowedModel) -> None:
        self._settings = settings
        self._model = model
        self._executor = ThreadPoolExecutor(facade.catch_ups_max + 2, "streamydb-changes")
        self._publishing: asyncio.Task[None] | None = None
        self._index: FeedIndex | None = None
        self.streams = KafkaStreams(settings, facade)

    async def start(self, publish: Callable[[ChangeBatch], None]) -> int:
        followed = self._model.progress().parts
        latest = self._model.latest()
        known = latest.ts_ms if latest.seq else None
        reader = await run_in(self._executor, self._following, latest.seq, known, followed)
        self._publishing = asyncio.create_task(self._publish(reader, publish))
        return latest.seq

    async def stop(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait([self._publishing])
        await self.streams.stop()
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def history(self, since: int) -> AsyncGenerator[ChangeBatch, None]:
        followed = self._model.progress().parts
        reader = await run_in(self._executor, self._reader, since, self._time_of(since), followed)
        try:
            while True:
                for batch in await run_in(self._executor, reader.poll):
                    yield batch
        finally:
            await asyncio.shield(run_in(self._executor, reader.close))

    def fault(self) -> str | None:
        task = self._publishing
        if task is None or not task.done() or task.cancelled():
            return None
        ended_by = task.exception()
        if ended_by is None:  # the program ends
            return None
        if isinstance(ended_by, ProblemError):
            return f"the changes cannot be followed: {ended_by.detail}"
        if isinstance(ended_by, RecordError):  # its text shows nothing of the record
            return f"the changes cannot be followed: {ended_by}"
        return f"the changes cannot be followed ({type(ended_by).__name__})"

    def _reader(
        self, since: int, ts_ms: int | None, followed: Mapping[int, PartitionProgress]
    ) -> ChangeReader:
        newest = self._model.newest()  # asked after what was followed, so that it is of no less
        # Once the follower has ended, the topic may have been made anew: then the index is wrong.
        index = None if self._publishing is None or self._publishing.done() else self._index
        return ChangeReader(self._settings, since, ts_ms, followed, newest, index=index)

    def _following(
        self, since: int, ts_ms: int | None, followed: Mapping[int, PartitionProgress]
    ) -> ChangeReader:
        """Return the reader of what is published, which fills the index."""
        newest = self._model.newest()
        notes = self._index = FeedIndex(followed, newest)
        return ChangeReader(self._settings, since, ts_ms, followed, newest, notes=notes)

    async def _publish(self, reader: ChangeReader, publish: Callable[[ChangeBatch], None]) -> None:
        """Publish until cancelled, or until a program ends that has not closed its client."""
        with suppress(ThreadsEndedError):
            try:
                while True:
                    for batch in await run_in(self._executor, reader.poll):
                        publish(batch)
            finally:
                await asyncio.shield(run_in(self._executor, reader.close))

    def _time_of(self, since: int) -> int | None:
        if since < 1:
            return None
        try:
            with self._model.snapshot(since) as snapshot:
                return snapshot.ts_ms
        except StreamyError:
            return None


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

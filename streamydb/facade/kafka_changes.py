"""The change feed on Kafka: the changes topic, merged to the order of the transactions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from streamydb.errors import RecordError, StreamyError
from streamydb.facade.feed import Merger
from streamydb.facade.kafka_streams import KafkaStreams
from streamydb.facade.ports import ChangeBatch, FollowedModel
from streamydb.facade.problems import ProblemError
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.waiting import ThreadsEndedError, run_in
from streamydb.kafka.changes import GONE, HOPELESS, PARTITIONS_CHECK_S
from streamydb.kafka.clients import CLOCK_SKEW_MS, FOLLOWING, reader
from streamydb.kafka.errors import KafkaException
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import (
    REQUEST_S,
    assign,
    offsets_at,
    pause,
    receive,
    resume,
    seek,
    spans,
)
from streamydb.kafka.strangers import ChangeRecords
from streamydb.read_model.progress import PartitionProgress
from streamydb.records import Resolved
from streamydb.settings import Settings

_POLL_S: Final = 0.25
_BATCH: Final = 2_000
_AHEAD_BYTES_MAX: Final = 8_388_608
_NEVER_SKIPPING: Final = {**FOLLOWING, "auto.offset.reset": "error"}


class ChangeReader:
    """Reads the changes after a seq, from its commit timestamp on.

    A change after a seq was appended after that seq's commit timestamp, so that it is enough to
    begin there (less an allowance for clocks). Should a partition's first resolved seq be above
    the wanted one nevertheless, or all of it be older, clocks were wilder than that, and the
    partition is read from its beginning.

    Kafka deletes old changes. A partition that does not begin at offset 0 has all that is wanted if
    a read model has read all that was deleted, and met no change of a higher seq; or if it tells
    so. A micro-batch says among its own changes what the one before resolved, so the first resolved
    seq tells nothing of the changes in front of it. One that is above what the partition begins
    with does, if it is not above the wanted one. Otherwise changes may be missing: an error.
    """

    def __init__(
        self,
        settings: Settings,
        since: int,
        ts_ms: int | None,
        followed: Mapping[int, PartitionProgress] | None = None,
        newest: int = 0,
    ) -> None:
        """Connect, to read the changes after seq `since`, whose commit timestamp is `ts_ms` if that
        is known. ``followed``: how far a read model has read. ``newest``: the largest seq that it
        met there. Raises KafkaUnavailableError: Kafka does not answer; ProblemError: snapshot-gone:
        Kafka has deleted some of the changes.
        """
        topic = TopicNames(settings.database).changes
        self._topic = topic
        self._records = ChangeRecords(topic)
        self._since = since
        self._lock = threading.Lock()
        self._closed = False
        self._paused: set[int] = set()
        self._first: dict[int, int] = {}
        self._consumer = reader(settings.client_config(), _NEVER_SKIPPING)
        try:
            kept = spans(self._consumer, topic)
            self._lows = {number: low for number, (low, _) in kept.items()}
            self._trimmed = _trimmed_partitions(self._lows, followed or {}, since, newest)
            starts = self._lows
            if ts_ms is not None:
                later = offsets_at(self._consumer, topic, ts_ms - CLOCK_SKEW_MS)
                starts = {n: at if at < kept[n][1] else kept[n][0] for n, at in later.items()}
        except StreamyError:
            self._consumer.close()
            raise
        self._counted_s = time.monotonic()
        self._unsure = {n for n, start in starts.items() if start > self._lows[n]}
        self._merger = Merger(len(starts), since)
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
            for message in receive(self._consumer, _BATCH, _POLL_S):
                number = message.partition()
                error = message.error()
                if error is not None and error.code() in GONE:
                    raise _snapshot_gone()
                if error is not None and error.code() in HOPELESS:
                    raise ProblemError(
                        "log-unavailable", f"The changes cannot be read: {error.name()}."
                    )
                if error is not None or number in late:
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
                    batch = self._merger.take(number, message.key(), record)
                    batches += [] if batch is None else [batch]
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

    def _begins_late(self, number: int, resolved: int) -> bool:
        """Return True if what is resolved shows that a partition must be read from the beginning.
        Raises ProblemError: the beginning is not there any more.
        """
        if resolved <= self._since:
            if number in self._unsure or resolved > self._first[number]:
                self._trimmed.discard(number)
            self._unsure.discard(number)
            return False
        if number not in self._unsure:
            if number in self._trimmed:
                raise _snapshot_gone()
            return False
        self._unsure.discard(number)
        del self._first[number]
        seek(self._consumer, self._topic, number, self._lows[number])
        return True

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
        self.streams = KafkaStreams(settings, facade)

    async def start(self, publish: Callable[[ChangeBatch], None]) -> int:
        followed = self._model.progress().parts
        latest = self._model.latest()
        known = latest.ts_ms if latest.seq else None
        reader = await run_in(self._executor, self._reader, latest.seq, known, followed)
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
        return ChangeReader(self._settings, since, ts_ms, followed, newest)

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

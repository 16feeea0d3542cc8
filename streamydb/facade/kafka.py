"""The transaction log on Kafka: appending, following results, looking at the ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Final

from streamydb.facade.clocks import Clocks, LogClock
from streamydb.facade.kafka_appends import KafkaAppends, facade_producer
from streamydb.facade.kafka_search import search_result
from streamydb.facade.ports import FollowedModel, LogPosition, NoResult, ResultsEnd
from streamydb.facade.result_batch import (
    ResultBatch,
    batch_of,
    count_in,
    ends_in,
    hash_of,
    newest_in,
)
from streamydb.facade.results import ResultIndex
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.waiting import SingleFlight, run_in
from streamydb.kafka.clients import FOLLOWING, reader
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.creation import changes_begun
from streamydb.kafka.errors import KafkaUnavailableError, LogFaultError
from streamydb.kafka.follower import TopicFollower
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import NextRecord, NextRecords, TopicEnds, spans
from streamydb.read_model.errors import StoreMismatchError
from streamydb.records import Result
from streamydb.settings import Settings

# The newest results are read at the start: clients that were cut off ask for them first.
_PRELOAD: Final = 10_000
_LOG: Final = logging.getLogger(__name__)


class FollowedResults:
    """Follows the results topic.

    Attributes:
        index: the results that were seen lately.
        newest: the largest seq that was seen; the index takes in a batch later.
        starts: the offsets from which on results are followed; empty until they are found.
    """

    def __init__(
        self,
        settings: Settings,
        facade: FacadeSettings,
        clock: LogClock,
        model: FollowedModel | None,
    ) -> None:
        self.index = ResultIndex(facade.results_bytes_max)
        self.newest = 0
        self.starts: dict[int, int] = {}
        self._settings = settings
        self._topic = TopicNames(settings.database).results
        self._clock = clock
        self._model = model
        self._tail: TopicFollower[ResultBatch] | None = None
        self._skipped = 0

    def find_starts(self) -> None:
        """Find the offsets from which on the results are followed; waits for Kafka. Raises
        KafkaUnavailableError: Kafka does not answer, or the database does not exist;
        StoreMismatchError: what is read is of an earlier database; TopicsError: Kafka does not tell
        whether it is.
        """
        consumer = reader(self._settings.client_config(), FOLLOWING)
        try:
            kept_spans = spans(consumer, self._topic)
        finally:
            consumer.close()
        if self._model is not None:
            # Refuse a read model that has followed changes which are not the database's any more.
            # Its seqs would be taken for those of the present database, and be shown as the
            # present.
            followed = self._model.progress().topic_id
            database = self._settings.database
            present = changes_begun(self._settings.client_config(), database)
            if followed and followed not in present:
                raise StoreMismatchError(
                    f"the read model in {self._model.folder} has followed "
                    f"{TopicNames(database).changes} with Kafka's id {followed}; now that topic "
                    f"has the id {', '.join(present)}, so the database was made anew. Stop its "
                    "follower, delete the folder, and start both again"
                )
        self.starts = {n: max(low, high - _PRELOAD) for n, (low, high) in kept_spans.items()}

    def start(self, on_decided: Callable[[Mapping[int, int]], None]) -> None:
        """Follow the results from the starts on; call it in the event loop.

        ``on_decided``: called before those who wait for results hear of them, with the ends of
        these results in the log, as `ends_in` has them.
        """

        def take(batch: ResultBatch) -> Iterator[None]:
            for ends in ends_in(batch):
                on_decided(ends)
            yield from self.index.take(batch)

        self._tail = TopicFollower(self._settings, self._topic, self.starts, self._batch, take)

    def close(self) -> None:
        """End, and wait for the end; not to be called in the event loop."""
        if self._tail is not None:
            self._tail.close()

    def fault(self) -> str | None:
        return "not started" if self._tail is None else self._tail.fault

    def partitions(self) -> tuple[int, ...]:
        return () if self._tail is None else self._tail.partitions()

    async def passed(self, ends: Mapping[int, int]) -> None:
        """Wait until `newest` is of all results before the ends; call it in the event loop.
        Raises LogFaultError: nothing is read, any more or now.
        """
        if self._tail is None:
            raise LogFaultError("not started")
        await self._tail.passed(ends)

    def counts(self) -> Mapping[tuple[str, str], int]:
        skipped = {("unreadable", ""): self._skipped} if self._skipped else {}
        return {**self.index.counts, **skipped}

    def _batch(self, records: RecordColumns) -> ResultBatch:
        """Return the results in records. Raises RecordError: this release cannot read one."""
        batch = batch_of(records)
        skipped = len(records) - count_in(batch)
        if skipped and not self._skipped:
            _LOG.warning(
                "%s has records that are no results, they are passed over: does something else "
                "write to it?", self._topic,
            )  # fmt: skip
        self._skipped += skipped
        if batch:
            seq, ts_ms = newest_in(batch)
            self.newest = max(self.newest, seq)
            self._clock.decided(ts_ms)
        return batch


_CLOSE_S: Final = 10.0
_THREADS: Final = 6


class KafkaLog:
    """A database's log and results on Kafka; refuses the `model` of an earlier database."""

    def __init__(
        self, settings: Settings, facade: FacadeSettings, model: FollowedModel | None = None
    ) -> None:
        self._settings = settings
        self._names = TopicNames(settings.database)
        self._clock = LogClock()
        self._results = FollowedResults(settings, facade, self._clock, model)
        self._executor = ThreadPoolExecutor(_THREADS, "streamydb-facade")
        self._looks = ThreadPoolExecutor(1, "streamydb-ends")
        self._next = NextRecords(settings, self._names.transactions)
        self._appends: KafkaAppends | None = None
        self._ends: TopicEnds | None = None
        self._published = SingleFlight(self._look_at_published)

    async def start(self) -> None:
        """Connect and follow the results, the last ones before now included. Raises
        KafkaUnavailableError: Kafka does not answer, or the database does not exist;
        StoreMismatchError: what is read is of an earlier database; TopicsError: Kafka does not tell
        whether it is.
        """
        if not self._results.starts:
            await run_in(self._executor, self._results.find_starts)
        # Their kernels are loaded, or compiled.
        await run_in(self._executor, batch_of, RecordColumns.of(()))
        await run_in(self._executor, hash_of, b"")
        self._ends = TopicEnds(self._settings.client_config())
        producer = facade_producer(self._settings)
        self._appends = KafkaAppends(producer, self._clock, self._executor)
        self._results.start(self._appends.decided)

    def check(self) -> None:
        """Try whether Kafka answers and has the database; `start` then does not ask again.
        Raises StreamyError: as `start`, and without a server around it.
        """
        self._results.find_starts()

    async def stop(self) -> None:
        """Wait until what was appended is in the log, for some seconds, and end."""
        async with AsyncExitStack() as ending:  # the last one first; all, whatever fails
            ending.push_async_callback(self._end)
            for part in (self._next, self._results):
                ending.push_async_callback(run_in, self._executor, part.close)

    async def _end(self) -> None:
        if self._appends is not None:
            await self._appends.close(_CLOSE_S)
        self._executor.shutdown(wait=False, cancel_futures=True)
        ends, self._ends = self._ends, None
        if ends is not None:
            self._looks.submit(ends.close)  # behind a look that is under way
        self._looks.shutdown(wait=False)

    async def append(
        self,
        txn_id: str,  # noqa: ARG002 - the port
        payload: bytes,
        headers: Mapping[str, bytes] | None = None,
    ) -> LogPosition:
        """Append a transaction; see `TransactionLog`. An error before the record is handed to the
        client library means that it was not appended; any error after that leaves it open.
        """
        appends = self._appends
        if appends is None:
            raise LogFaultError("not started")
        self._check_fault()
        return await appends.append(payload, headers)

    async def result(self, txn_id: str, position: LogPosition) -> Result:  # noqa: ARG002 - the port
        return await self._results.index.wait(position)

    def time_ms(self) -> int:
        return self._clock.now_ms()

    def clocks(self) -> Clocks:
        return self._clock.clocks()

    def recent(self, txn_id: str, position: LogPosition | None) -> Result | None:
        index = self._results.index
        return index.of(txn_id) if position is None else index.at(position)

    async def search(self, txn_id: str, position: LogPosition | None) -> Result | NoResult:
        return await run_in(self._executor, search_result, self._settings, txn_id, position)

    async def published(self) -> int:
        self._check_fault()
        await self._results.passed(await self._published.look())
        return self._results.newest

    async def ends(self) -> Mapping[int, int]:
        self._check_fault()
        return await run_in(self._looks, self._look, self._names.transactions)

    async def next_records(self, places: Mapping[int, int]) -> Mapping[int, NextRecord]:
        self._check_fault()
        return await run_in(self._executor, self._next.find, places)

    def decided(self) -> ResultsEnd:
        return self._results.index.decided()

    def fault(self) -> str | None:
        return self._results.fault()

    def counts(self) -> Mapping[tuple[str, str], int]:
        return self._results.counts()

    def _check_fault(self) -> None:
        if (fault := self.fault()) is not None:
            raise LogFaultError(fault)

    async def _look_at_published(self) -> dict[int, int]:
        known = self._results.partitions()
        return await run_in(self._looks, self._look, self._names.results, known)

    def _look(self, topic: str, known: Sequence[int] = ()) -> dict[int, int]:
        """The ends of these partitions of a topic; of all, if none are given."""
        if self._ends is None:
            raise KafkaUnavailableError("not started")
        return self._ends.look(topic, known)

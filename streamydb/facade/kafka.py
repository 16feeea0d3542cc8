"""The transaction log on Kafka: appending, following results, looking at the ends."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from streamydb.facade.clocks import Clocks, LogClock
from streamydb.facade.commit_columns import hash_of
from streamydb.facade.kafka_search import search_result
from streamydb.facade.looks import Looks
from streamydb.facade.ports import Decided, FollowedModel, LogPosition, Missing
from streamydb.facade.result_batch import ResultBatch, batch_of, count_in, newest_in
from streamydb.facade.results import ResultIndex
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.threads import run_in
from streamydb.kafka.appends import Appended, AppendError, AppendUnknownError
from streamydb.kafka.clients import FOLLOWING, reader
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.creation import changes_begun
from streamydb.kafka.ends import TopicEnds
from streamydb.kafka.errors import KafkaUnavailableError, LogFaultError
from streamydb.kafka.follower import TopicFollower
from streamydb.kafka.names import TopicNames
from streamydb.kafka.next_records import NextRecord, NextRecords
from streamydb.kafka.producer import Producer
from streamydb.kafka.receiving import spans
from streamydb.read_model.errors import StoreMismatchError
from streamydb.records import Result
from streamydb.settings import Settings

__all__ = ["KafkaLog"]

# The newest results are read at the start: clients that were cut off ask for them first.
_PRELOAD: Final = 10_000
_TRIED_S: Final = 30.0
_CLOSE_S: Final = 10.0
_THREADS: Final = 6
_LOG: Final = logging.getLogger(__name__)


class KafkaLog:
    """A database's log and results on Kafka.

    Args:
        settings: the database and the connection.
        facade: the facade's limits.
        model: what is read beside it; one of an earlier database of that name is refused.
    """

    def __init__(
        self, settings: Settings, facade: FacadeSettings, model: FollowedModel | None = None
    ) -> None:
        """Connect at `start`."""
        self._settings = settings
        self._model = model
        self._facade = facade
        self._names = TopicNames(settings.database)
        self._index = ResultIndex(facade.results_bytes_max)
        self._executor = ThreadPoolExecutor(_THREADS, "streamydb-facade")
        self._looks = ThreadPoolExecutor(1, "streamydb-ends")
        self._next = NextRecords(settings, self._names.transactions)
        self._producer: Producer | None = None
        self._ends: TopicEnds | None = None
        self._tail: TopicFollower[ResultBatch] | None = None
        self._starts: dict[int, int] = {}
        self._newest = 0  # ahead of what the index has, which takes in a batch later
        self._published = Looks(self._look_at_published)
        self._clock = LogClock()
        self._skipped = 0

    async def start(self) -> None:
        """Connect and follow the results, the last ones before now included.

        Raises:
            KafkaUnavailableError: Kafka does not answer, or the database does not exist.
            StoreMismatchError: what is read is of an earlier database.
            TopicsError: Kafka does not tell whether it is.
        """
        self._starts = self._starts or await run_in(self._executor, self._found_starts)
        # Their kernels are loaded, or compiled.
        await run_in(self._executor, batch_of, RecordColumns.of(()))
        await run_in(self._executor, hash_of, b"")
        self._ends = TopicEnds(self._settings.client_config())
        self._producer = Producer(self._settings, timeout_s=_TRIED_S, validate=False)
        self._tail = TopicFollower(
            self._settings, self._names.results, self._starts, self._batch, self._index.take
        )

    def check(self) -> None:
        """Try whether Kafka answers and has the database; `start` then does not ask again.

        Raises:
            StreamyError: as `start`, and without a server around it.
        """
        self._starts = self._found_starts()

    async def stop(self) -> None:
        """Wait until what was appended is in the log, for some seconds, and end."""
        async with AsyncExitStack() as ending:  # the last one first; all, whatever fails
            ending.push_async_callback(self._end)
            for part in (self._next, self._tail):
                if part is not None:
                    ending.push_async_callback(run_in, self._executor, part.close)

    async def _end(self) -> None:
        """End the producer, then the threads."""
        if self._producer is not None:
            with suppress(AppendError):
                await run_in(self._executor, self._producer.close, _CLOSE_S)
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
        """Append a transaction; see `TransactionLog`.

        An error before the record is handed to the client library means that it was not appended;
        any error after that leaves it open.
        """
        producer = self._producer
        if producer is None:
            raise LogFaultError("not started")
        self._check_fault()
        loop, sent_ms = asyncio.get_running_loop(), self._clock.local_ms()
        future: asyncio.Future[LogPosition] = loop.create_future()

        def delivered(appended: Appended | None, error: AppendError | None) -> None:
            if appended is not None:
                self._clock.appended(appended.timestamp_ms, sent_ms)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, future, appended, error)

        more: dict[str, Any] = {"headers": headers} if headers else {}
        if not producer.append_at_once(payload, delivered, **more):
            send = functools.partial(producer.append_async, **more)
            try:
                await run_in(self._executor, send, payload, delivered)
            except AppendError as error:
                raise KafkaUnavailableError(str(error)) from error
        return await future

    async def result(self, txn_id: str, position: LogPosition) -> Result:  # noqa: ARG002 - the port
        """Wait for a result; see `TransactionLog`."""
        return await self._index.wait(position)

    def time_ms(self) -> int:
        """Return the log's time; see `TransactionLog`."""
        return self._clock.now_ms()

    def clocks(self) -> Clocks:
        """Return what the clocks say; see `TransactionLog`."""
        return self._clock.clocks()

    def recent(self, txn_id: str, position: LogPosition | None) -> Result | None:
        """Return a result that was seen lately; see `TransactionLog`."""
        return self._index.of(txn_id) if position is None else self._index.at(position)

    async def search(self, txn_id: str, position: LogPosition | None) -> Result | Missing:
        """Search the results topic; see `TransactionLog`."""
        return await run_in(self._executor, search_result, self._settings, txn_id, position)

    async def published(self) -> int:
        """Look how far the results go; see `TransactionLog`."""
        if self._tail is None:
            raise LogFaultError("not started")
        self._check_fault()
        await self._tail.passed(await self._published.look())
        return self._newest

    async def ends(self) -> Mapping[int, int]:
        """Look at the ends of the log; see `TransactionLog`."""
        self._check_fault()
        return await run_in(self._looks, self._look, self._names.transactions)

    async def next_records(self, places: Mapping[int, int]) -> Mapping[int, NextRecord]:
        """Look for the records that come next; see `TransactionLog`."""
        self._check_fault()
        return await run_in(self._executor, self._next.find, places)

    def decided(self) -> Decided:
        """Return how far the results go that were seen; see `TransactionLog`."""
        return self._index.decided()

    def fault(self) -> str | None:
        """Return what is wrong with the connection."""
        return "not started" if self._tail is None else self._tail.fault

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return how many results were seen; see `TransactionLog`."""
        skipped = {("unreadable", ""): self._skipped} if self._skipped else {}
        return {**self._index.counts, **skipped}

    def _check_fault(self) -> None:
        """Refuse to go on with a fault.

        Raises:
            LogFaultError: there is one.
        """
        if (fault := self.fault()) is not None:
            raise LogFaultError(fault)

    def _found_starts(self) -> dict[int, int]:
        """Return the offsets from which on the results are followed."""
        consumer = reader(self._settings.client_config(), FOLLOWING)
        try:
            found = spans(consumer, self._names.results)
        finally:
            consumer.close()
        if self._model is not None:
            self._must_be_present(self._model)
        return {number: max(low, high - _PRELOAD) for number, (low, high) in found.items()}

    def _must_be_present(self, model: FollowedModel) -> None:
        """Refuse a read model that has followed changes which are not the database's any more.

        Its seqs would be taken for those of the present database, and be shown as the present.
        """
        followed = model.progress().topic_id
        present = changes_begun(self._settings.client_config(), self._settings.database)
        if followed and followed not in present:
            raise StoreMismatchError(
                f"the read model in {model.folder} has followed {self._names.changes} with Kafka's "
                f"id {followed}; now that topic has the id {', '.join(present)}, so the database "
                "was made anew. Stop its follower, delete the folder, and start both again"
            )

    async def _look_at_published(self) -> dict[int, int]:
        """The ends of the results."""
        known = () if self._tail is None else self._tail.partitions()
        return await run_in(self._looks, self._look, self._names.results, known)

    def _look(self, topic: str, known: Sequence[int] = ()) -> dict[int, int]:
        """The ends of these partitions of a topic; of all, if none are given."""
        if self._ends is None:
            raise KafkaUnavailableError("not started")
        return self._ends.look(topic, known)

    def _batch(self, records: RecordColumns) -> ResultBatch:
        """The results in records; note how far they go.

        Raises:
            RecordError: one is a result that this release cannot read.
        """
        batch = batch_of(records)
        self._count_skipped(len(records), batch)
        if batch:
            seq, ts_ms = newest_in(batch)
            self._newest = max(self._newest, seq)
            self._clock.decided(ts_ms)
        return batch

    def _count_skipped(self, count: int, batch: ResultBatch) -> None:
        """Count what is no result; tell of it once."""
        skipped = count - count_in(batch)
        if skipped and not self._skipped:
            _LOG.warning(
                "%s has records that are no results, they are passed over: does something else "
                "write to it?", self._names.results,
            )  # fmt: skip
        self._skipped += skipped


def _settle(
    future: asyncio.Future[LogPosition], appended: Appended | None, error: AppendError | None
) -> None:
    """Tell a waiting request the position of its record, or that it is not known."""
    if future.done():
        return
    if appended is not None:
        future.set_result(LogPosition(appended.partition, appended.offset))
    else:
        future.set_exception(AppendUnknownError(str(error)))

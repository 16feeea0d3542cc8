"""The transaction log on Kafka: appending, following results, looking at the ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from streamydb.facade.clocks import Clocks, LogClock
from streamydb.facade.commit_columns import hash_of
from streamydb.facade.kafka_results import FollowedResults
from streamydb.facade.kafka_search import search_result
from streamydb.facade.looks import Looks
from streamydb.facade.ports import Decided, FollowedModel, LogPosition, Missing
from streamydb.facade.result_batch import batch_of
from streamydb.facade.settings import FacadeSettings
from streamydb.facade.threads import run_in
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.errors import KafkaUnavailableError, LogFaultError
from streamydb.kafka.names import TopicNames
from streamydb.kafka.producer import Appended, AppendError, AppendUnknownError, Producer
from streamydb.kafka.receiving import NextRecord, NextRecords, TopicEnds
from streamydb.records import Result
from streamydb.settings import Settings

__all__ = ["KafkaLog"]

_TRIED_S: Final = 30.0
_CLOSE_S: Final = 10.0
_THREADS: Final = 6


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
        self._names = TopicNames(settings.database)
        self._clock = LogClock()
        self._results = FollowedResults(settings, facade, self._clock, model)
        self._executor = ThreadPoolExecutor(_THREADS, "streamydb-facade")
        self._looks = ThreadPoolExecutor(1, "streamydb-ends")
        self._next = NextRecords(settings, self._names.transactions)
        self._producer: Producer | None = None
        self._ends: TopicEnds | None = None
        self._published = Looks(self._look_at_published)

    async def start(self) -> None:
        """Connect and follow the results, the last ones before now included.

        Raises:
            KafkaUnavailableError: Kafka does not answer, or the database does not exist.
            StoreMismatchError: what is read is of an earlier database.
            TopicsError: Kafka does not tell whether it is.
        """
        if not self._results.starts:
            await run_in(self._executor, self._results.find_starts)
        # Their kernels are loaded, or compiled.
        await run_in(self._executor, batch_of, RecordColumns.of(()))
        await run_in(self._executor, hash_of, b"")
        self._ends = TopicEnds(self._settings.client_config())
        self._producer = Producer(self._settings, timeout_s=_TRIED_S, validate=False)
        self._results.start()

    def check(self) -> None:
        """Try whether Kafka answers and has the database; `start` then does not ask again.

        Raises:
            StreamyError: as `start`, and without a server around it.
        """
        self._results.find_starts()

    async def stop(self) -> None:
        """Wait until what was appended is in the log, for some seconds, and end."""
        async with AsyncExitStack() as ending:  # the last one first; all, whatever fails
            ending.push_async_callback(self._end)
            for part in (self._next, self._results):
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
        return await self._results.index.wait(position)

    def time_ms(self) -> int:
        """Return the log's time; see `TransactionLog`."""
        return self._clock.now_ms()

    def clocks(self) -> Clocks:
        """Return what the clocks say; see `TransactionLog`."""
        return self._clock.clocks()

    def recent(self, txn_id: str, position: LogPosition | None) -> Result | None:
        """Return a result that was seen lately; see `TransactionLog`."""
        index = self._results.index
        return index.of(txn_id) if position is None else index.at(position)

    async def search(self, txn_id: str, position: LogPosition | None) -> Result | Missing:
        """Search the results topic; see `TransactionLog`."""
        return await run_in(self._executor, search_result, self._settings, txn_id, position)

    async def published(self) -> int:
        """Look how far the results go; see `TransactionLog`."""
        self._check_fault()
        await self._results.passed(await self._published.look())
        return self._results.newest

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
        return self._results.index.decided()

    def fault(self) -> str | None:
        """Return what is wrong with the connection."""
        return self._results.fault()

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return how many results were seen; see `TransactionLog`."""
        return self._results.counts()

    def _check_fault(self) -> None:
        """Refuse to go on with a fault.

        Raises:
            LogFaultError: there is one.
        """
        if (fault := self.fault()) is not None:
            raise LogFaultError(fault)

    async def _look_at_published(self) -> dict[int, int]:
        """The ends of the results."""
        known = self._results.partitions()
        return await run_in(self._looks, self._look, self._names.results, known)

    def _look(self, topic: str, known: Sequence[int] = ()) -> dict[int, int]:
        """The ends of these partitions of a topic; of all, if none are given."""
        if self._ends is None:
            raise KafkaUnavailableError("not started")
        return self._ends.look(topic, known)


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

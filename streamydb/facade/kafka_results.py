"""The results of a database as they come: an index of the last ones, and how far they go."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from streamydb.facade.clocks import LogClock
from streamydb.facade.ports import FollowedModel
from streamydb.facade.result_batch import ResultBatch, batch_of, count_in, newest_in
from streamydb.facade.results import ResultIndex
from streamydb.facade.settings import FacadeSettings
from streamydb.kafka.clients import FOLLOWING, reader
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.creation import changes_begun
from streamydb.kafka.errors import LogFaultError
from streamydb.kafka.follower import TopicFollower
from streamydb.kafka.names import TopicNames
from streamydb.kafka.receiving import spans
from streamydb.read_model.errors import StoreMismatchError
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
        """Find the offsets from which on the results are followed; waits for Kafka.

        Raises:
            KafkaUnavailableError: Kafka does not answer, or the database does not exist.
            StoreMismatchError: what is read is of an earlier database.
            TopicsError: Kafka does not tell whether it is.
        """
        consumer = reader(self._settings.client_config(), FOLLOWING)
        try:
            found = spans(consumer, self._topic)
        finally:
            consumer.close()
        if self._model is not None:
            self._must_be_present(self._model)
        self.starts = {n: max(low, high - _PRELOAD) for n, (low, high) in found.items()}

    def _must_be_present(self, model: FollowedModel) -> None:
        """Refuse a read model that has followed changes which are not the database's any more.

        Its seqs would be taken for those of the present database, and be shown as the present.
        """
        followed = model.progress().topic_id
        database = self._settings.database
        present = changes_begun(self._settings.client_config(), database)
        if followed and followed not in present:
            raise StoreMismatchError(
                f"the read model in {model.folder} has followed {TopicNames(database).changes} "
                f"with Kafka's id {followed}; now that topic has the id {', '.join(present)}, so "
                "the database was made anew. Stop its follower, delete the folder, and start both "
                "again"
            )

    def start(self) -> None:
        """Follow the results from the starts on; call it in the event loop."""
        self._tail = TopicFollower(
            self._settings, self._topic, self.starts, self._batch, self.index.take
        )

    def close(self) -> None:
        """End, and wait for the end; not to be called in the event loop."""
        if self._tail is not None:
            self._tail.close()

    def fault(self) -> str | None:
        """Return what is wrong with the connection."""
        return "not started" if self._tail is None else self._tail.fault

    def partitions(self) -> tuple[int, ...]:
        """The partitions that are read; call it in the event loop."""
        return () if self._tail is None else self._tail.partitions()

    async def passed(self, ends: Mapping[int, int]) -> None:
        """Wait until `newest` is of all results before the ends; call it in the event loop.
        Raises LogFaultError: nothing is read, any more or now.
        """
        if self._tail is None:
            raise LogFaultError("not started")
        await self._tail.passed(ends)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return how many results were seen; see `TransactionLog`."""
        skipped = {("unreadable", ""): self._skipped} if self._skipped else {}
        return {**self.index.counts, **skipped}

    def _batch(self, records: RecordColumns) -> ResultBatch:
        """The results in records; note how far they go.
        Raises RecordError: one is a result that this release cannot read.
        """
        batch = batch_of(records)
        self._count_skipped(len(records), batch)
        if batch:
            seq, ts_ms = newest_in(batch)
            self.newest = max(self.newest, seq)
            self._clock.decided(ts_ms)
        return batch

    def _count_skipped(self, count: int, batch: ResultBatch) -> None:
        """Count what is no result; tell of it once."""
        skipped = count - count_in(batch)
        if skipped and not self._skipped:
            _LOG.warning(
                "%s has records that are no results, they are passed over: does something else "
                "write to it?", self._topic,
            )  # fmt: skip
        self._skipped += skipped

"""The loop of a read model's writer: fetch, plan, commit data and position together."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Final

from streamydb.errors import ConfigurationError, StreamyError
from streamydb.kafka import TopicNames, log_id, recall
from streamydb.kafka.changes import (
    BATCH_RECORDS_MAX,
    ChangesExpiredError,
    ChangesTopic,
    KafkaSource,
    SourceError,
    TopicState,
)
from streamydb.kafka.connection import KafkaRetry, StopRequestedError, is_transient
from streamydb.kafka.strangers import ChangeRecords
from streamydb.read_model.core import PartitionProgress, Retention, StoreBatch, TopicProgress, plan
from streamydb.read_model.errors import StoreMismatchError
from streamydb.read_model.model import ReadModel
from streamydb.records.generation import FIRST
from streamydb.settings import Settings

RETENTION_S: Final = 3600.0
"""How far back snapshots are kept by default, in seconds of commit time before the latest."""

RETENTION_SEQS: Final = 100_000
"""How far back snapshots are kept by default, in seqs before the latest."""

COMMIT_RECORDS_MAX: Final = 50_000  # records committed at once
_POLL_S: Final = 0.2
_UNRESOLVED_S: Final = 0.05  # what nothing has resolved for so long is committed

_log = logging.getLogger(__name__)


class Follower:
    """Keeps a read model up to date with a database's changes."""

    def __init__(
        self,
        model: ReadModel,
        settings: Settings,
        *,
        retention_s: float = RETENTION_S,
        retention_seqs: float = RETENTION_SEQS,
        source: ChangesTopic | None = None,
    ) -> None:
        """Nothing is read yet.

        ``model``: opened with ``write=True``; stays its owner's to close. ``retention_s``:
        snapshots are kept for at least so many seconds of commit time before the latest; infinite:
        for good. ``retention_seqs``: and for at least so many seqs. ``source``: where the changes
        come from, if not from Kafka; taken over. Raises ConfigurationError: the read model is
        another database's, or open for reading only. Raises ValueError: a retention is negative.
        """
        if not model.writable:
            raise ConfigurationError("a follower needs a read model that is open with write=True")
        if model.database != settings.database:
            raise ConfigurationError(
                f"the read model is of the database {model.database!r}, the settings are of "
                f"{settings.database!r}"
            )
        self._model = model
        self._retention = Retention(retention_s, retention_seqs)
        self._addresses = settings.bootstrap_servers if source is None else None
        topic = TopicNames(settings.database).changes
        self._source = source or KafkaSource(settings.client_config(), topic)
        self._generation = partial(_recorded, settings) if source is None else lambda: FIRST
        self._belongs = False
        self._changes = ChangeRecords(topic)
        self._progress: TopicProgress | None = None
        self._more = True  # the one before may have left something to merge

    def run(self, stop: threading.Event) -> None:
        """Follow until ``stop`` is set; close what was opened. Waits for Kafka when it is away.
        Raises StreamyError: as `step`, but for what passes.
        """
        retry = KafkaRetry(stop.wait, addresses=self._addresses)
        try:
            while not stop.is_set():
                with suppress(StopRequestedError):
                    retry.call(partial(self.step, _POLL_S), look=self._progress is None)
        finally:
            self.close()

    def step(self, timeout_s: float) -> int:
        """Fetch, waiting up to ``timeout_s`` seconds for a record, and commit; how many records.

        After an error the next step begins anew where the store is.

        Raises:
            ChangesExpiredError: the topic no longer has what comes next.
            SourceError: the topic cannot be read, or is another one.
            RecordError: a record of ours is not what the topic should hold.
            InvariantViolation: the records contradict what was read before.
            StoreFailedError: the store cannot be written.
        """
        progress, self._progress = self._progress or self._start(), None
        try:
            batch, count = self._read(progress, 0 if self._more else timeout_s)
        except ChangesExpiredError as fault:
            _log.warning("%s", fault)
            return 0
        if self._more or batch.progress != progress:
            self._belong(batch, count)
            hurry = count >= BATCH_RECORDS_MAX
            self._more = self._model.store.apply(batch, self._retention, hurry=hurry)
        self._progress = batch.progress
        if batch.strange:
            self._changes.pass_over(*batch.strange[0], len(batch.strange))
        return count

    def _read(self, progress: TopicProgress, timeout_s: float) -> tuple[StoreBatch, int]:
        """Fetch what is there, as much as is committed at once; the writes, and how many records.

        Nobody can read what is not resolved, and that comes a moment later: it waits for that.
        """
        batch, count, ends_s = StoreBatch(progress), 0, math.inf
        while count < COMMIT_RECORDS_MAX:
            fetched = self._source.fetch(timeout_s)
            planned = plan(fetched.records, fetched.ends, batch.progress, self._model.database)
            batch = batch.followed_by(planned)
            count += len(fetched.records)
            timeout_s = 0
            if len(fetched.records) < BATCH_RECORDS_MAX:
                if not count or batch.progress.resolved() != progress.resolved():
                    break
                ends_s = min(ends_s, time.monotonic() + _UNRESOLVED_S)
                timeout_s = ends_s - time.monotonic()
                if timeout_s <= 0:
                    break
        return batch, count

    def _belong(self, batch: StoreBatch, count: int) -> None:
        """Record of which generation the store is, before it shows anything.

        The one of a store never changes: whoever begins another one makes the changes anew, or in
        another database.
        """
        if self._belongs or not (count or batch.progress.resolved().seq):
            return
        store = self._model.store
        if store.generation() is None and (generation := self._generation()) is not None:
            store.belong_to(generation)
        self._belongs = True

    def close(self) -> None:
        self._source.close()

    def _start(self) -> TopicProgress:
        """Continue from the position of the store, if the topic still has the next records."""
        progress = self._model.store.progress()
        if not progress.parts:
            topic = self._source.describe()
            progress = TopicProgress(
                topic.topic_id, {number: PartitionProgress() for number in topic.spans}
            )
            self._check(topic, progress)
            self._model.store.adopt(progress)
        else:
            self._check(self._source.describe(), progress)
        positions = {number: part.position for number, part in progress.parts.items()}
        self._source.assign(positions)
        _log.info("following %s from %s", TopicNames(self._model.database).changes, positions)
        return progress

    def _check(self, topic: TopicState, progress: TopicProgress) -> None:
        """Refuse a topic that is another one, or that lacks the next records."""
        name = TopicNames(self._model.database).changes
        if topic.topic_id != progress.topic_id or topic.spans.keys() != progress.parts.keys():
            raise StoreMismatchError(
                f"the read model in {self._model.folder} has followed the topic {name} with id "
                f"{progress.topic_id} and {len(progress.parts)} partitions; now its id is "
                f"{topic.topic_id} and it has {len(topic.spans)}. If the database was made anew, "
                "delete the folder and load it again"
            )
        if topic.compacted:
            raise SourceError(
                f"{name} is compacted: changes that are needed vanish. Set cleanup.policy=delete "
                "(`streamydb doctor` has the command) and load a new read model"
            )
        for number, (low, high) in sorted(topic.spans.items()):
            position = progress.parts[number].position
            if position < low:
                raise _re_bootstrap(
                    f"{name}, partition {number}: the read model needs the records from offset "
                    f"{position} on, and those before {low} have expired"
                )
            if position > high:
                raise SourceError(
                    f"{name}, partition {number}: the read model has read up to offset {position}, "
                    f"and the topic ends at {high}: records that were acknowledged are lost. "
                    "Restore the topic, or delete the folder and load it again"
                )


def _recorded(settings: Settings) -> str | None:
    """The generation that is recorded beside a database's log; None: we may not read it."""
    connection = settings.client_config()
    try:
        log = log_id(connection, settings.database)
        return recall(connection, settings.database, log).generation
    except StreamyError as error:
        if is_transient(error):
            raise
        _log.warning(
            "whether this database was restored or forked cannot be read (%s): grant this user the "
            "rights of `streamydb acls read-model`, and start it again", error,
        )  # fmt: skip
        return None


def _re_bootstrap(what: str) -> ChangesExpiredError:
    """The error for a read model that cannot be loaded from where it is."""
    return ChangesExpiredError(
        f"{what}. Nothing was skipped: deleted keys would come back. Begin with a new folder and a "
        "copy of a read model that has them: `streamydb read-model --copy-from <that "
        "read model's folder> --folder <a new one> …`, or with a snapshot (--from-snapshot); and "
        "keep the topic longer (retention.ms)"
    )

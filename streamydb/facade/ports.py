"""The interfaces that the facade needs: a read model, the transaction log, changes, and streams.

The adapters to Kafka are in `facade.kafka` and `facade.kafka_changes`, those for tests in
`testing.memory`; the read model is `streamydb.read_model`. All methods are called in the
event loop; those that are not coroutines must return at once.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from streamydb.facade.clocks import Clocks
from streamydb.kafka.receiving import NextRecord
from streamydb.read_model.ports import JsonPage, Scannable, StoredEntry
from streamydb.read_model.progress import TopicProgress
from streamydb.records import Result
from streamydb.records.ranges import ScanRange


class LogPosition(NamedTuple):
    """The place of a record in the log."""

    partition: int
    offset: int


class ResultsEnd(NamedTuple):
    """The end of the results that were seen, anybody's.

    Attributes:
        seq: the largest.
        ts_ms: its commit time.
        offsets: partition of the log -> offset after the last record whose result was seen.
    """

    seq: int
    ts_ms: int
    offsets: Mapping[int, int]


class NoResult(NamedTuple):
    """A search has found no result.

    Attributes:
        complete: whether all results that are kept were looked at.
        since_ms: otherwise, all that were written since were looked at; None: maybe not even those.
    """

    complete: bool
    since_ms: int | None


class ModelPosition(Protocol):
    """The position of a read model."""

    @property
    def seq(self) -> int:
        """All transactions up to this one are visible."""

    @property
    def ts_ms(self) -> int:
        """Its commit timestamp."""

    @property
    def offsets(self) -> Mapping[int, int]:
        """Partition of the log -> first offset that is not covered."""


class ModelSnapshot(Scannable, Protocol):
    """The state after one transaction."""

    @property
    def seq(self) -> int:
        """The transaction after which this is the state."""

    @property
    def ts_ms(self) -> int:
        """Its commit timestamp."""

    def first_end(self) -> int | None:
        """Return the earliest end of its keys (ms); None: no key ends. It may take a second."""

    def get(self, key: str) -> StoredEntry | None:
        """Return a key's entry, if it is there."""

    def get_many(self, keys: Sequence[str]) -> Sequence[StoredEntry | None]:
        """Return the entries of several keys."""

    def get_json(self, keys: Sequence[str], bytes_max: int) -> bytes | None:
        """Return the members of a JSON object: each key once, with its entry or null. None if their
        values have more than ``bytes_max`` bytes.
        """

    def scan_json(
        self, keys: ScanRange, *, limit: int, bytes_max: int, at_once: bool = False
    ) -> JsonPage:
        """Return a page: at most ``limit`` entries, and ``bytes_max`` bytes of values, but one.
        With ``at_once`` it is not `whole` if that takes long.
        """

    def __enter__(self) -> Self:
        """Return the snapshot itself."""

    def __exit__(self, *_error: object) -> bool | None:
        """Let go of the snapshot."""


class ServedModel(Protocol):
    """The database as of the transactions whose changes have arrived."""

    def latest(self) -> ModelPosition:
        """Return how far it is."""

    @property
    def generation(self) -> str:
        """The generation of the history that it shows (`records.generation`)."""

    def oldest(self) -> int:
        """Return the smallest seq of which there is a snapshot."""

    def snapshot(self, at: int | None = None) -> ModelSnapshot:
        """Return the state at a seq, by default the latest; a `StreamyError` if there is none."""


class FollowedModel(ServedModel, Protocol):
    """A read model that somebody keeps up to date with the topic of the changes."""

    folder: Path

    def progress(self) -> TopicProgress:
        """Return how far the topic is read."""

    def newest(self) -> int:
        """Return the largest seq of what was read there, resolved or not."""


class TransactionLog(Protocol):
    """The log and the results that come of it."""

    async def start(self) -> None:
        """Connect."""

    async def stop(self) -> None:
        """End; no results come any more, and those who wait for one are not told."""

    async def append(
        self, txn_id: str, payload: bytes, headers: Mapping[str, bytes] | None = None
    ) -> LogPosition:
        """Append a transaction and return where it durably is. `headers` go into the record beside
        its value; they mean nothing to the database. Raises KafkaUnavailableError: it was not
        appended; AppendUnknownError: nobody knows.
        """

    async def result(self, txn_id: str, position: LogPosition) -> Result:
        """Wait, without an end, for the result of the record at `position`."""

    def recent(self, txn_id: str, position: LogPosition | None) -> Result | None:
        """Return the result of the record at `position`, or of the id, if it is at hand."""

    async def search(self, txn_id: str, position: LogPosition | None) -> Result | NoResult:
        """Look for the same among all results that are kept, within bounds of time."""

    async def published(self) -> int:
        """Return the largest seq that a result told at some time after this call. Of the results of
        before the log was started, only a part counts. Raises KafkaUnavailableError: Kafka does not
        answer.
        """

    async def ends(self) -> Mapping[int, int]:
        """Return the end of each partition: the offset that the next record gets. What lies before
        it may be a record that is none of ours, such as the end of a Kafka transaction;
        `next_records` passes those. Raises KafkaUnavailableError: Kafka does not answer.
        """

    async def next_records(self, places: Mapping[int, int]) -> Mapping[int, NextRecord]:
        """Return the first record at or after a place, for each partition where that was found out.
        Raises KafkaUnavailableError: Kafka does not answer.
        """

    def time_ms(self) -> int:
        """Return the later of the newest commit time and the brokers' clock (ms). A commit that
        comes later may be before it.
        """

    def clocks(self) -> Clocks:
        """Return what this machine's clock, commit times and the brokers' clock say."""

    def decided(self) -> ResultsEnd:
        """Return how far the results go that were seen."""

    def fault(self) -> str | None:
        """Return what is wrong, if something is."""

    def counts(self) -> Mapping[tuple[str, str], int]:
        """Return how many results were seen, anybody's, by status and reason code ("": none)."""


class ChangeEvent(NamedTuple):
    """A change for an event stream, the `number`th of its transaction; `data` is JSON."""

    seq: int
    number: int
    key: str
    data: bytes


class ChangeBatch(NamedTuple):
    """All changes after the batch before, up to seq `resolved`, in order."""

    resolved: int
    changes: tuple[ChangeEvent, ...]


class PageBounds(NamedTuple):
    """The most records and bytes of a page, which has one record in any case.

    ``patience_s``: how long each read of Kafka for it may take.
    """

    records_max: int
    bytes_max: int
    patience_s: float = math.inf


class StreamRow(NamedTuple):
    """A record of a stream as it lies in the topic; its key is the stream's name."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class StreamSpan(NamedTuple):
    """The records of a stream from offset ``begin`` on, before ``end``, after (seq, index)."""

    stream: bytes
    partition: int
    begin: int
    end: int
    after: tuple[int, int]


class StreamSource(Protocol):
    """The topic of the records that procedures emit, with each stream in one partition."""

    async def start(self, publish: Callable[[Sequence[StreamRow]], None]) -> Mapping[int, int]:
        """Publish all records from now on, in the event loop; return the offsets of the first ones.
        Raises KafkaUnavailableError: Kafka does not answer, or has no such topic.
        """

    async def stop(self) -> None:
        """End."""

    async def offset_after(self, partition: int, seq: int, ts_ms: int, patience_s: float) -> int:
        """Return an offset at or before the first record that is of a transaction after a seq.
        ``ts_ms``: its commit timestamp, 0 if nobody knows. After ``patience_s`` it is an early one.
        Raises KafkaUnavailableError: Kafka does not answer.
        """

    async def history(self, wanted: StreamSpan, bounds: PageBounds) -> tuple[list[StreamRow], int]:
        """Return a stream's records in a span, each once, and the offset where it has stopped.

        It stops early at the bounds.
        Raises KafkaUnavailableError: Kafka does not answer.
        """

    def fault(self) -> str | None:
        """Return what is wrong, if something is."""

    def failed(self) -> bool:
        """Return True if it publishes nothing any more, until it is started again."""


class ChangeSource(Protocol):
    """The changes, in batches that end at resolved seqs; and the streams, which end with them."""

    @property
    def streams(self) -> StreamSource:
        """The source of streams; stopped with this."""

    async def start(self, publish: Callable[[ChangeBatch], None]) -> int:
        """Publish, in the event loop, all batches after a seq; return that seq."""

    async def stop(self) -> None:
        """End."""

    def history(self, since: int) -> AsyncGenerator[ChangeBatch, None]:
        """Yield the batches after seq `since`, for those that came too late for the published.

        The generator never ends by itself; close it. Raises ProblemError: snapshot-gone: some of
        those changes are not kept any more. Raises RecordError: a change is of a release that this
        one cannot read.
        """

    def fault(self) -> str | None:
        """Return what is wrong, if something is."""

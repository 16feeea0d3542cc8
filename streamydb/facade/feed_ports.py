"""The interfaces of the feed that the facade needs: batches of changes, and streams.

The methods are called in the event loop; those that are not coroutines must return at once.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


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
    """Of a page: most records, most bytes (one record is given in any case).

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

        Raises:
            KafkaUnavailableError: Kafka does not answer.
        """

    async def history(self, wanted: StreamSpan, bounds: PageBounds) -> tuple[list[StreamRow], int]:
        """Return a stream's records in a span, each once, and the offset where it has stopped.

        It stops early at the bounds.

        Raises:
            KafkaUnavailableError: Kafka does not answer.
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

        The generator never ends by itself; close it.

        Raises:
            ProblemError: snapshot-gone: some of those changes are not kept any more.
            KafkaUnavailableError: Kafka does not answer.
            RecordError: a change is of a release that this one cannot read.
        """

    def fault(self) -> str | None:
        """Return what is wrong, if something is."""

"""A source of the records of a changes topic: Kafka, or a test's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from streamydb.errors import ReadModelError
from streamydb.kafka.columns import RecordColumns


class TopicSpan(NamedTuple):
    """Offsets of a partition: the first that is still there, and one past the last."""

    low: int
    high: int


class Topic(NamedTuple):
    """The topic as it is now.

    Attributes:
        topic_id: Kafka's id of it; another one after it was deleted and made again.
        compacted: whether Kafka removes records before they expire.
        spans: every partition.
    """

    topic_id: str
    compacted: bool
    spans: Mapping[int, TopicSpan]


class Fetched(NamedTuple):
    """Records, each partition's in order, and the partitions that were read to an end (offset)."""

    records: RecordColumns
    ends: Mapping[int, int]


class ChangesTopic(Protocol):
    """A changes topic. What is raised derives from `streamydb.errors.StreamyError`."""

    def describe(self) -> Topic:
        """The topic as it is now."""

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read each partition from its position on."""

    def fetch(self, timeout_s: float) -> Fetched:
        """Return the records that are there; wait if there are none.

        Raises:
            ChangesExpiredError: a position is not in the topic any more, or not yet.
        """

    def close(self) -> None:
        """Read no more."""


class SourceError(ReadModelError):
    """The changes topic cannot be read, or is not the one that this read model has followed."""


class ChangesExpiredError(SourceError):
    """Changes that this read model needs have been deleted from the topic."""

"""Errors of Kafka: Confluent's own, ours for a log that is away, and what a reader meets."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from streamydb.errors import StreamyError

__all__ = ["KafkaError", "KafkaException", "KafkaUnavailableError", "LogFaultError", "ReadFailure"]

PARTITION_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name


class KafkaUnavailableError(StreamyError):
    """Kafka does not answer or refuses; nothing was written."""


class LogFaultError(KafkaUnavailableError):
    """The log cannot be used. The text holds no address and no record: everybody may see it."""


class ReadFailure(NamedTuple):
    """Something that came in place of a record: an error, or the end of a partition.

    Attributes:
        error: what Confluent calls an error, also at an end.
        partition: of the record; -1 if the error is about none.
        offset: likewise.
    """

    error: KafkaError
    partition: int
    offset: int

    @property
    def is_end(self) -> bool:
        """True if the partition ends at the offset; Kafka's own records may lie before that."""
        return bool(self.error.code() == PARTITION_EOF)

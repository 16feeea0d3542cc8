"""Errors of Kafka that other rooms catch: Confluent's own, and ours for a log that is away."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from streamydb.errors import StreamyError

__all__ = ["KafkaError", "KafkaException", "KafkaUnavailableError", "LogFaultError"]


class KafkaUnavailableError(StreamyError):
    """Kafka does not answer or refuses; nothing was written."""


class LogFaultError(KafkaUnavailableError):
    """The log cannot be used. The text holds no address and no record: everybody may see it."""

"""How the sequencer's Kafka clients are configured, beyond the connection."""

from __future__ import annotations

import uuid
from typing import Any

from confluent_kafka import KafkaError

from streamydb.settings import Settings

__all__ = [
    "MSG_TIMED_OUT",
    "PARTITION_EOF",
    "PURGE_INFLIGHT",
    "REQUEST_BYTES_MAX",
    "UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC",
    "consumer_config",
    "producer_config",
]

# Confluent names the errors of its own client, as against those of the broker, with an underscore.
MSG_TIMED_OUT = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
PARTITION_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001
PURGE_INFLIGHT = KafkaError._PURGE_INFLIGHT  # noqa: SLF001
UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001
UNKNOWN_TOPIC = KafkaError._UNKNOWN_TOPIC  # noqa: SLF001

REQUEST_BYTES_MAX = 1_000_000
"""What a producer sends in one batch: a transaction of the largest size, its key and overhead.

It stays below `max.message.bytes` of the topics, so that what passes here passes the broker.
"""

_QUIET = {"log_level": 0}


def producer_config(settings: Settings, timeout_ms: int, linger_ms: float) -> dict[str, Any]:
    """Return the configuration of a producer that neither loses, doubles nor reorders.

    Args:
        settings: the connection.
        timeout_ms: after how long a record that could not be written is given up.
        linger_ms: how long a record waits for others to share its batch.
    """
    return {
        **settings.client_config(),
        **_QUIET,
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "lz4",
        "partitioner": "murmur2_random",  # as Java's clients: a key means the same partition
        "linger.ms": linger_ms,
        "batch.size": REQUEST_BYTES_MAX,
        "message.max.bytes": REQUEST_BYTES_MAX,
        "message.timeout.ms": timeout_ms,
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 65_536,
        "reconnect.backoff.max.ms": 1_000,
        "retry.backoff.ms": 50,
    }


def consumer_config(settings: Settings, *, eof: bool = False) -> dict[str, Any]:
    """Return the configuration of a consumer that is assigned its partitions and commits nothing.

    A fetch returns as soon as one of its partitions has a record; with none, a broker is asked ten
    times a second. The first fetch after an assignment may lack some of the partitions, so that
    what lies in those waits for it to end: hence not longer.
    """
    return {
        **settings.client_config(),
        **_QUIET,
        "group.id": f"streamydb-{uuid.uuid4().hex}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "enable.partition.eof": eof,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "queued.max.messages.kbytes": 16_384,
    }

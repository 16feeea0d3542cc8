"""Finding an old result in the results topic, from the time its transaction was appended."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition

from streamydb.errors import ID_REUSED, RecordError
from streamydb.facade.kafka_tail import connect, offsets_at, receive, spans
from streamydb.facade.payloads import time_of_id
from streamydb.facade.ports import LogUnavailableError, Position
from streamydb.facade.results import position_of
from streamydb.records import Result, decode_result
from streamydb.settings import Settings
from streamydb.topics.names import TopicNames

__all__ = ["search_result"]

SEARCH_S: Final = 8.0
"""How long results are searched for one transaction."""

_SKEW_MS: Final = 120_000
_BATCH: Final = 5_000
_POLL_S: Final = 0.25
_RECORD_S: Final = 3.0


def search_result(settings: Settings, txn_id: str, position: Position | None) -> Result | None:
    """Search the results from when the transaction was appended; waits for Kafka.

    That time is the record's if its position is known, else what a UUID of version 7 says. Without
    either there is no search.

    Raises:
        LogUnavailableError: Kafka does not answer.
    """
    names = TopicNames(settings.database)
    consumer = connect(settings)
    try:
        since_ms = _appended_ms(consumer, names.transactions, position)
        if since_ms is None:
            since_ms = time_of_id(txn_id)
        if since_ms is None:
            return None
        return _scan(consumer, names.results, since_ms - _SKEW_MS, txn_id, position)
    except KafkaException as error:
        raise LogUnavailableError(error.args[0].str()) from error
    finally:
        consumer.close()


def _appended_ms(consumer: Any, topic: str, position: Position | None) -> int | None:
    """When the record at a position was appended; None if there is none."""
    if position is None:
        return None
    low, high = spans(consumer, topic).get(position.partition, (0, 0))
    if not low <= position.offset < high:
        return None
    consumer.assign([TopicPartition(topic, position.partition, position.offset)])
    message = consumer.poll(_RECORD_S)
    if message is None or message.error() is not None:
        raise LogUnavailableError(f"{topic} cannot be read")
    stamp: int = message.timestamp()[1]
    return stamp


def _scan(
    consumer: Any, topic: str, since_ms: int, txn_id: str, position: Position | None
) -> Result | None:
    """Read on to the ends as they are now, or until it is found or the time is up."""
    starts = offsets_at(consumer, topic, since_ms)
    ends = {number: high for number, (_, high) in spans(consumer, topic).items()}
    left = {number for number, start in starts.items() if start < ends[number]}
    consumer.assign([TopicPartition(topic, number, starts[number]) for number in left])
    deadline = time.monotonic() + SEARCH_S
    refused: Result | None = None
    key = txn_id.encode()
    while left and time.monotonic() < deadline:
        for message in receive(consumer, _BATCH, _POLL_S):
            if message.error() is not None:
                continue
            if message.offset() + 1 >= ends[message.partition()]:
                left.discard(message.partition())
            result = _wanted(message, key, position)
            if result is not None and (position is not None or result.code != ID_REUSED):
                return result
            refused = refused or result
    return refused


def _wanted(message: Any, key: bytes, position: Position | None) -> Result | None:
    """The result in a record, if it is of this id and position."""
    if message.key() != key or message.value() is None:
        return None
    try:
        result = decode_result(message.value())
    except RecordError:
        return None
    return result if position is None or position_of(result) == position else None

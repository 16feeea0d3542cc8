"""Appends to the log: the record that is checked before, its place, or why it has none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError

from streamydb.errors import INVALID_JSON, REJECTED_CODES, TRANSACTION_TOO_LARGE, StreamyError
from streamydb.kafka.clients import UNKNOWN_PARTITION, UNKNOWN_TOPIC
from streamydb.kafka.connection import PURGE_QUEUE, Contact
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.records import Marker, Rejection, decode

_NEVER_APPENDED: Final = {
    PURGE_QUEUE, UNKNOWN_PARTITION, UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_REQUIRED_ACKS, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}  # fmt: skip
"""Dropped unsent, or refused before the broker writes. After any other error a record may be there.

A broker whose disk is full, say, tells "unknown error", and may have written some of a batch.
"""


class AppendError(StreamyError):
    """A transaction was not appended."""


class TransactionRefusedError(AppendError):
    """A record that would be rejected in the log is not written to it.

    Attributes:
        code: the reason code that its result would have.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AppendUnknownError(AppendError):
    """It is not known whether a transaction was appended; appending it again is safe."""


class Appended(NamedTuple):
    """The place of a transaction in the log, and when the broker appended it (ms since 1970)."""

    partition: int
    offset: int
    timestamp_ms: int


def encode(transaction: bytes | Mapping[str, Any], *, validate: bool = True) -> bytes:
    """Return a transaction's record, checked unless `validate` is False.

    Raises:
        TransactionRefusedError: it would be rejected in the log.
    """
    value = transaction if isinstance(transaction, bytes) else _to_json(transaction)
    if not validate:
        return value
    if len(value) > TRANSACTION_BYTES_MAX:
        raise _too_large(len(value))
    decoded = decode(value)
    if isinstance(decoded, Rejection):
        named = "" if decoded.id is None else f" {decoded.id!r}"
        msg = f"transaction{named} refused, {decoded.code}: {REJECTED_CODES[decoded.code]}"
        raise TransactionRefusedError(decoded.code, msg)
    if isinstance(decoded, Marker):
        msg = "the record is an epoch marker; only sequencers write those"
        raise TransactionRefusedError("invalid-transaction", msg)
    return value


def _to_json(transaction: Mapping[str, Any]) -> bytes:
    """Encode a mapping, strictly: nothing that JSON lacks is turned into something else."""
    try:
        text = json.dumps(transaction, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"the transaction cannot be written as JSON: {error}"
        raise TransactionRefusedError(INVALID_JSON, msg) from error


def _too_large(size: int) -> TransactionRefusedError:
    shown = f"{size} bytes, " if size else ""
    msg = f"the transaction has {shown}more than {TRANSACTION_BYTES_MAX} bytes: split it"
    return TransactionRefusedError(TRANSACTION_TOO_LARGE, msg)


def explain(
    error: KafkaError, topic: str, size: int, contact: Contact, *, sent: bool = True
) -> AppendError:
    """Turn Kafka's error into one that says what to do.

    Args:
        error: what the client library says of a record.
        topic: the log.
        size: the record's bytes; 0 if that is not known.
        contact: of the client; it knows why the brokers refuse us, if they do, and which error
            ended the client, so that what it had not sent yet was dropped.
        sent: False if the client did not take the record.
    """
    known = not sent or error.code() in _NEVER_APPENDED
    error = contact.cause(error)
    code, text = error.code(), f"{topic}: {error.str()}"
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return _too_large(size)
    if not known:
        text = contact.refusal or text
        msg = f"{text}; it may be in the log or not: append the same bytes again"
        return AppendUnknownError(msg)
    if code == UNKNOWN_PARTITION:
        return AppendError(f"{text}; the topic has fewer partitions")
    if code in (UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
        database = topic.removesuffix(".transactions")
        return AppendError(f"{text}; run `streamydb create --database {database}`")
    if "authorization failed" in text:
        return AppendError(f"{text}; grant this user the rights of its role (`streamydb acls`)")
    return AppendError(text)

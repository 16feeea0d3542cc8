"""What is appended to the log: a checked record, where it is then, or why it is not there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from streamydb.errors import INVALID_JSON, REJECTED_CODES, TRANSACTION_TOO_LARGE, StreamyError
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.records import Marker, Rejection, decode

__all__ = [
    "AppendError",
    "AppendUnknownError",
    "Appended",
    "TransactionRefusedError",
    "encode",
    "too_large",
]


class AppendError(StreamyError):
    """A transaction was not appended."""


class TransactionRefusedError(AppendError):
    """A record that would be rejected in the log is not written to it.

    Attributes:
        code: the reason code that its result would have.
    """

    def __init__(self, code: str, message: str) -> None:
        """Keep the reason `code` beside the message."""
        super().__init__(message)
        self.code = code


class AppendUnknownError(AppendError):
    """It is not known whether a transaction was appended; appending it again is safe."""


class Appended(NamedTuple):
    """Where a transaction is in the log, and when the broker appended it (ms since 1970)."""

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
        raise too_large(len(value))
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


def too_large(size: int) -> TransactionRefusedError:
    """Return the error of a record above the limit."""
    shown = f"{size} bytes, " if size else ""
    msg = f"the transaction has {shown}more than {TRANSACTION_BYTES_MAX} bytes: split it"
    return TransactionRefusedError(TRANSACTION_TOO_LARGE, msg)

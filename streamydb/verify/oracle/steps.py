"""Checks, updates and deadlines of the serial oracle: one value before, one value after."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from msgspec import UNSET

from streamydb import errors, limits
from streamydb.records import (
    Add,
    Append,
    Check,
    DeadLetter,
    Delete,
    Expiring,
    Marker,
    Max,
    Min,
    Put,
    Rejection,
    Touch,
    Transaction,
    Update,
    canonical,
    canonical_number,
    decode,
    decode_value,
    end_of,
    identity,
    is_number,
)
from streamydb.records.updates import UpdateFailed


def holds(check: Check, value: bytes | None, version: int) -> bool:
    """Return True if all comparators of a check hold for a value (None: absent) and its version."""
    return (
        (check.version is UNSET or version == check.version)
        and (check.exists is UNSET or check.exists == (value is not None))
        and (check.eq is UNSET or value == check.eq)
        and (check.ne is UNSET or value != check.ne)
        and (check.lt is UNSET or _compares(value, check.lt, (-1,)))
        and (check.le is UNSET or _compares(value, check.le, (-1, 0)))
        and (check.gt is UNSET or _compares(value, check.gt, (1,)))
        and (check.ge is UNSET or _compares(value, check.ge, (1, 0)))
    )


def _compares(value: bytes | None, operand: Any, wanted: tuple[int, ...]) -> bool:
    """Return True if the sign of value - operand is wanted;
    False unless both are numbers or text.
    """
    if value is None:
        return False
    actual = decode_value(value)
    if is_number(actual) != is_number(operand) or isinstance(actual, str) != isinstance(
        operand, str
    ):
        return False
    return (actual > operand) - (actual < operand) in wanted


def updated(update: Update, before: bytes | None) -> bytes | None:
    """The value after an update of a value (None = absent).
    Raises UpdateFailed: with the reason code, when the update cannot be made.
    """
    if isinstance(update, Put):
        return update.value
    if isinstance(update, Delete):
        return None
    if isinstance(update, Append):
        return _appended(update, before)
    if isinstance(update, Touch):
        return before
    if before is None and isinstance(update, Max | Min):
        return canonical(update.value)
    number = 0 if before is None else decode_value(before)
    if not is_number(number):
        raise UpdateFailed(errors.NOT_A_NUMBER)
    if isinstance(update, Add):
        # The sum within 64 bits and within the bounds of the update.
        total = _in_range(number + update.by)
        if update.min is not UNSET and total < update.min:
            raise UpdateFailed(errors.BOUND_VIOLATED)
        if update.max is not UNSET and total > update.max:
            raise UpdateFailed(errors.BOUND_VIOLATED)
        return canonical(total)
    if isinstance(update, Max):
        return canonical(max(number, update.value))
    if isinstance(update, Min):
        return canonical(min(number, update.value))
    if not isinstance(number, int):
        raise UpdateFailed(errors.NOT_A_NUMBER)
    return canonical(_in_range(number + 1))


def ended(update: Update, before: bytes | None, after: bytes | None, ts_ms: int) -> bytes | None:
    """The value that an update leaves, with the time at which its key ends, if it does.

    A time to live counts from the commit. Without one, `put` and `touch` are for good, and all
    others leave the end as it was.
    """
    if after is None:
        return None
    if isinstance(update, Put | Append | Touch) and update.ttl_ms is not UNSET:
        end: int | None = ts_ms + update.ttl_ms
    else:
        end = None if isinstance(update, Put | Touch) else end_of(before)
    return bytes(after) if end is None else Expiring(after, end)


def _in_range(number: float) -> float:
    """The number in canonical form, unless it is an integer beyond 64 bits or not finite."""
    if isinstance(number, int):
        if not limits.INTEGER_MIN <= number <= limits.INTEGER_MAX:
            raise UpdateFailed(errors.OVERFLOW)
    elif not math.isfinite(number):
        raise UpdateFailed(errors.OVERFLOW)
    return canonical_number(number)


def _appended(update: Append, before: bytes | None) -> bytes:
    """The list with the value at its end."""
    items = [] if before is None else decode_value(before)
    if not isinstance(items, list):
        raise UpdateFailed(errors.NOT_A_LIST)
    items_before = before[1:-1] + b"," if before is not None and items else b""
    after = b"[" + items_before + update.value + b"]"  # deeper than what `canonical` takes, perhaps
    if len(after) > limits.VALUE_BYTES_MAX:
        raise UpdateFailed(errors.VALUE_TOO_LARGE)
    return after


def payload_hash_of(raw: bytes, record: Transaction | Marker | Rejection | DeadLetter) -> bytes:
    """By what payloads with one id are compared: the bytes, whatever the deadline."""
    if isinstance(record, DeadLetter):
        record = decode(raw)
    dated = isinstance(record, Transaction) and record.deadline > 0
    return hashlib.sha256(identity(raw) if dated else raw).digest()


def untimely(txn: Transaction, ts_ms: int) -> str | None:
    """The reason code of a transaction that comes after its deadline, or too long before it."""
    if not txn.deadline:
        return None
    if ts_ms > txn.deadline:
        return errors.DEADLINE_PASSED
    if txn.deadline - ts_ms > limits.DEADLINE_AHEAD_MS_MAX:
        return errors.DEADLINE_TOO_FAR
    return None

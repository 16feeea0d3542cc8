"""The updates of transactions as the serial oracle makes them, one value after the other."""

from __future__ import annotations

import math

from msgspec import UNSET

from streamydb import errors, limits
from streamydb.procedures.view import UpdateFailed
from streamydb.records import (
    Add,
    Append,
    Delete,
    Max,
    Min,
    Put,
    Update,
    canonical,
    canonical_number,
    decode_value,
    is_number,
)

__all__ = ["updated"]


def updated(update: Update, before: bytes | None) -> bytes | None:
    """The value after an update of a value (None = absent).

    Raises:
        UpdateFailed: with the reason code, when the update cannot be made.
    """
    if isinstance(update, Put):
        return update.value
    if isinstance(update, Delete):
        return None
    if isinstance(update, Append):
        return _appended(update, before)
    if before is None and isinstance(update, Max | Min):
        return canonical(update.value)
    number = 0 if before is None else decode_value(before)
    if not is_number(number):
        raise UpdateFailed(errors.NOT_A_NUMBER)
    if isinstance(update, Add):
        return _added(update, number)
    if isinstance(update, Max):
        return canonical(max(number, update.value))
    if isinstance(update, Min):
        return canonical(min(number, update.value))
    if not isinstance(number, int):
        raise UpdateFailed(errors.NOT_A_NUMBER)
    return canonical(_in_range(number + 1))


def _added(update: Add, number: float) -> bytes:
    """The sum within 64 bits and within the bounds of the update."""
    total = _in_range(number + update.by)
    if update.min is not UNSET and total < update.min:
        raise UpdateFailed(errors.BOUND_VIOLATED)
    if update.max is not UNSET and total > update.max:
        raise UpdateFailed(errors.BOUND_VIOLATED)
    return canonical(total)


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
    after = canonical([*items, decode_value(update.value)])
    if len(after) > limits.VALUE_BYTES_MAX:
        raise UpdateFailed(errors.VALUE_TOO_LARGE)
    return after

"""Updates: the effect of each operation on a value, as canonical JSON in and out."""

from __future__ import annotations

from typing import Any

import msgspec

from streamydb import errors
from streamydb import records as r
from streamydb.limits import INTEGER_MAX, INTEGER_MIN, VALUE_BYTES_MAX
from streamydb.records.expiry import after_update


class UpdateFailed(Exception):  # noqa: N818 - a verdict, not an error
    """An update cannot be made; ``code`` is the reason code."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def apply_update(update: r.Update, before: bytes | None, ts_ms: int) -> bytes | None:
    """The value after ``update`` of a value (None: absent), with its end (`records.expiry`).

    ``ts_ms``: the commit time.
    Raises UpdateFailed: it cannot be made.
    """
    return after_update(update, before, _applied(update, before), ts_ms)


def _applied(update: r.Update, before: bytes | None) -> bytes | None:
    if isinstance(update, r.Put):
        return update.value
    if isinstance(update, r.Delete):
        return None
    if isinstance(update, r.Touch):
        return before
    old = None if before is None else r.decode_value(before)
    if isinstance(update, r.Append):
        return _appended(update, before, old)
    if old is not None and not r.is_number(old):
        raise UpdateFailed(errors.NOT_A_NUMBER)
    if isinstance(update, r.NextId):
        if isinstance(old, float):
            raise UpdateFailed(errors.NOT_A_NUMBER)
        return _sum(old or 0, 1)
    if isinstance(update, r.Add):
        value = _sum(0 if old is None else old, update.by)
        number = r.decode_value(value)
        unset = msgspec.UNSET
        below = update.min is not unset and number < update.min
        if below or (update.max is not unset and number > update.max):
            raise UpdateFailed(errors.BOUND_VIOLATED)
        return value
    keep = old is not None and (
        old >= update.value if isinstance(update, r.Max) else old <= update.value
    )
    return before if keep else r.canonical(update.value)


def _appended(update: r.Append, before: bytes | None, old: Any) -> bytes:
    if before is None:
        value = b"[" + update.value + b"]"
    elif isinstance(old, list):
        value = before[:-1] + (b"," if old else b"") + update.value + b"]"
    else:
        raise UpdateFailed(errors.NOT_A_LIST)
    if len(value) > VALUE_BYTES_MAX:
        raise UpdateFailed(errors.VALUE_TOO_LARGE)
    return value


def _sum(left: float, right: float) -> bytes:
    """The canonical sum; raises UpdateFailed when it leaves 64 bits or is not finite."""
    try:
        total = left + right
        if isinstance(total, int) and not INTEGER_MIN <= total <= INTEGER_MAX:
            raise UpdateFailed(errors.OVERFLOW)
        return r.canonical(total)
    except (errors.ValueRejected, OverflowError):
        raise UpdateFailed(errors.OVERFLOW) from None

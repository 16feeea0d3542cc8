"""Values that end: canonical bytes with a time, from which on their key is absent."""

from __future__ import annotations

import hashlib
from typing import Final, Self

from msgspec import UNSET

from streamydb.records.transaction import Append, Delete, Put, Touch, Update

EXPIRY_ID: Final = "$expiry"
"""In the place of a transaction's id, where a change is a removal by time."""

_FIRST_REMOVAL: Final = 1 << 20
_REMOVALS: Final = 1 << 52


class Expiring(bytes):
    """A canonical value that ends at ``expires_ms``: then, and from then on, its key is absent.

    It is equal to the value alone: what compares ends, too, asks `same`.
    """

    expires_ms: int

    def __new__(cls, value: bytes, expires_ms: int) -> Self:
        instance = super().__new__(cls, value)
        instance.expires_ms = expires_ms
        return instance

    __hash__ = bytes.__hash__


def end_of(value: bytes | None) -> int | None:
    """Return when a value ends; None: never, or it is absent."""
    return value.expires_ms if isinstance(value, Expiring) else None


def is_over(value: bytes | None, ts_ms: int) -> bool:
    """Return True if a value has ended at a commit time or before."""
    return isinstance(value, Expiring) and value.expires_ms <= ts_ms


def same(left: bytes | None, right: bytes | None) -> bool:
    """Return True if two values are equal, and end at the same time."""
    return left == right and end_of(left) == end_of(right)


def ending(value: bytes, expires_ms: int | None) -> bytes:
    """Return a value with this end, or without one."""
    return bytes(value) if expires_ms is None else Expiring(value, expires_ms)


def after_update(
    update: Update, before: bytes | None, after: bytes | None, ts_ms: int
) -> bytes | None:
    """Return what an update leaves, with its end: its own, or none (`put`), or that of before.

    ``after``: what it makes of the value alone. ``ts_ms``: its commit time.
    """
    if after is None or isinstance(update, Delete):
        return None
    if isinstance(update, Put | Append | Touch) and update.ttl_ms is not UNSET:
        return Expiring(after, ts_ms + update.ttl_ms)
    if isinstance(update, Put | Touch):
        return ending(after, None)
    return ending(after, end_of(before))


def is_removal(number: int) -> bool:
    """Return True if the number of a change tells that it is a removal by time."""
    return number >= _FIRST_REMOVAL


def removal_number(key: bytes) -> int:
    """Return the number of a key's removal by time among the changes of a seq.

    No transaction has so many writes of its own. Two keys may have one number: who looks for
    repetitions compares the keys as well (`records.change.ChangeName`).
    """
    digest = hashlib.blake2b(key, digest_size=8).digest()
    return _FIRST_REMOVAL + int.from_bytes(digest, "big") % _REMOVALS

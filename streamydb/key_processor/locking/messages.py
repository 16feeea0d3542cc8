"""The names of locks in `grouping=single`, and the forms of values that travel with them.

Locks are named by bytes: the keys of users in one namespace, the ids of transactions in another,
and the ranges of a transaction in a third, together a lock a shard.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from streamydb.errors import RecordError
from streamydb.frames.lock_messages import Granted, Payload
from streamydb.records.expiry import Expiring
from streamydb.records.formats import UNREADABLE

T = TypeVar("T")
_KEY: Final = b"k"
_ID: Final = b"i"
_RANGE: Final = b"r"
_ENDS: Final = b"\x00"
_OVER: Final = b"\x01"
_MARKS: Final = (_ENDS, _OVER)
_END: Final = Struct("<q")
_PLACE: Final = Struct("<5q")


def key_lock(key: bytes) -> bytes:
    """The lock of a user's key (UTF-8)."""
    return _KEY + key


def id_lock(id_: bytes) -> bytes:
    """The lock of a transaction's id (UTF-8): so that two records with one id run one by one."""
    return _ID + id_


def is_id_lock(name: bytes) -> bool:
    """Return True if a lock is that of an id."""
    return name.startswith(_ID)


def range_lock(shard: int) -> bytes:
    """The lock of all ranges of a transaction in one shard."""
    return _RANGE + b"%d" % shard


def is_key_lock(name: bytes) -> bool:
    """Return True if a lock is that of a key."""
    return name.startswith(_KEY)


def is_range_lock(name: bytes) -> bool:
    """Return True if a lock is that of ranges."""
    return name.startswith(_RANGE)


def locked_name(name: bytes) -> bytes:
    """The key or id of a lock."""
    return name[1:]


class Arrived(msgspec.Struct, array_like=True, gc=False):
    """The payloads and grants that have come for some transactions."""

    payloads: list[Payload]
    grants: list[Granted]


class RemovedAt(NamedTuple):
    """The place at which a key is to be removed: that of the first record not before its end."""

    seq: int
    ts: int
    part: int
    off: int


def packed(value: bytes | None, removed: RemovedAt | None = None) -> bytes | None:
    """Return a value with its end, if it has one, and with the place where that removes it.

    No canonical value begins with the marks of these.
    """
    if not isinstance(value, Expiring):
        return value
    if removed is None:
        return _ENDS + _END.pack(value.expires_ms) + value
    return _OVER + _PLACE.pack(value.expires_ms, *removed) + value


def is_packed(data: bytes | None) -> bool:
    """Return True if a value was given an end."""
    return data is not None and data[:1] in _MARKS


def unpacked(data: bytes | None) -> tuple[bytes | None, RemovedAt | None]:
    """Return what was packed."""
    if data is None or not is_packed(data):
        return data, None
    if data[:1] == _ENDS:
        return Expiring(data[1 + _END.size :], *_END.unpack_from(data, 1)), None
    end, *place = _PLACE.unpack_from(data, 1)
    return Expiring(data[1 + _PLACE.size :], end), RemovedAt(*place)


def encode_list(items: list[Any]) -> bytes:
    """Messages as bytes."""
    return msgspec.msgpack.encode(items)


def decode_list(data: bytes, kind: type[T]) -> list[T]:
    """Messages of one kind from bytes. Raises RecordError: they are not such messages."""
    try:
        items: list[T] = _decoder(kind).decode(data)  # type: ignore[arg-type]
    except UNREADABLE as error:
        raise RecordError(f"not a list of {kind.__name__}: {error}") from error
    return items


@lru_cache(maxsize=16)
def _decoder(kind: type) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]

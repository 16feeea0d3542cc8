"""Changes: every effective write of every committed transaction, on ``<db>.changes``.

The record key is the user's key. The envelope is Debezium's without its schema wrapper. Resolved
records say how far the changes are complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from streamydb.records.formats import decoded, later_format, record_decoder

CONNECTOR = "streamydb"


class ChangeOrigin(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The database, and the log position and seq of the transaction that wrote."""

    connector: str
    db: str
    partition: int
    offset: int
    seq: int


class ChangeTransaction(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The transaction's id, and the place of the change among its changes, from 1."""

    id: str
    total_order: int
    data_collection_order: int


class ChangeName(NamedTuple):
    """The identity of a change: what has one name is one change, and has equal bytes.

    ``number``: `transaction.total_order`. The key is a part of it: the number of a removal by time
    is a hash of its key, which two keys may share.
    """

    seq: int
    number: int
    key: bytes


class Change(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """One write: created, updated or deleted, with the values before and after.

    ``expires_ms``: the commit time at which the key ends, if it does.
    """

    op: Literal["c", "u", "d"]
    before: Raw
    after: Raw
    ts_ms: int
    source: ChangeOrigin
    transaction: ChangeTransaction
    expires_ms: int | UnsetType = UNSET


def change_name(key: bytes | None, change: Change) -> ChangeName:
    """The identity of a change with its record key."""
    return ChangeName(change.source.seq, change.transaction.total_order, key or b"")


class Resolved(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """Every change up to seq ``resolved`` has been written.

    ``offsets`` maps a partition of the log, as text, to its first offset that is not covered.
    """

    resolved: int
    ts_ms: int
    offsets: dict[str, int]


class _Origin(msgspec.Struct, gc=False):
    connector: str


class _AnyChange(msgspec.Struct, gc=False):
    """The fields by which a record is known, whatever release wrote it."""

    resolved: int | UnsetType = UNSET
    source: _Origin | UnsetType = UNSET


encode_change: Final[Callable[[Change], bytes]] = msgspec.json.Encoder().encode
encode_resolved: Final[Callable[[Resolved], bytes]] = msgspec.json.Encoder().encode
_decode_change: Final[Callable[[bytes], Change]] = record_decoder(Change, "change")
_decode_resolved: Final[Callable[[bytes], Resolved]] = record_decoder(Resolved, "change")
_decode_any = msgspec.json.Decoder(_AnyChange).decode


def decode_change(value: bytes) -> Change | Resolved:
    """The change or resolved record in a record value. A tombstone has no value: look for None
    before. Raises RecordError: the bytes are neither.
    """
    if value.startswith(b'{"resolved"'):
        return _decode_resolved(value)
    return _decode_change(value)


def is_strange_change(value: bytes) -> bool:
    """Return True if a record that cannot be read is none of any release: something else wrote it.

    Who passed over one of a later release would lack a change.
    """
    if later_format(value) is not None:
        return False
    record = decoded(_decode_any, value)
    if record is None:
        return True
    ours = record.source is not UNSET and record.source.connector == CONNECTOR
    return record.resolved is UNSET and not ours

"""Changes as Kafka Connect reads them, on ``<db>.connect``: keys and values bring their schemas.

They are what Connect's JsonConverter makes records of (`schemas.enable=true`). The payload of a
value is Debezium's envelope, that of a key a struct. The value of a key of the database is JSON
text, of Debezium's type for it: a sink makes a column of JSON of it.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from streamydb.records.change import Change, ChangeOrigin, ChangeTransaction

Schema = dict[str, object]


class CopyProgress(NamedTuple):
    """The header of each record: from where a copier goes on after it.

    Attributes:
        topic: Kafka's id of the changes topic.
        position: the offset there, in the partition of the same number, to read on from.
        seq: everything up to it has been copied; the seq of this record.
    """

    topic: str
    position: int
    seq: int


class _ConnectRow(msgspec.Struct, gc=False):
    """A key with its value; its seq and its end: None where they are not known, or it has none."""

    key: str
    value: str
    version: int | None
    expires_ms: int | None


class _ConnectEnvelope(msgspec.Struct, gc=False):
    """A change, in the order of Debezium's fields."""

    before: _ConnectRow | None
    after: _ConnectRow | None
    source: ChangeOrigin
    op: Literal["c", "u", "d"]
    ts_ms: int
    transaction: ChangeTransaction


def _field(field: str, kind: str, *, optional: bool = False, **named: object) -> Schema:
    return {"type": kind, "optional": optional, **named, "field": field}


_KEY_FIELD: Final = _field("key", "string")
_ROW: Final = [
    _KEY_FIELD,
    _field("value", "string", name="io.debezium.data.Json", version=1),
    _field("version", "int64", optional=True),
    _field("expires_ms", "int64", optional=True),
]
_SOURCE: Final = [
    _field("connector", "string"), _field("db", "string"), _field("partition", "int32"),
    _field("offset", "int64"), _field("seq", "int64"),
]  # fmt: skip
_TRANSACTION: Final = [
    _field("id", "string"), _field("total_order", "int64"),
    _field("data_collection_order", "int64"),
]  # fmt: skip


def key_schema() -> Schema:
    return {"type": "struct", "fields": [_KEY_FIELD], "optional": False, "name": "streamydb.Key"}


def value_schema() -> Schema:
    """Return Connect's schema of all values; sinks tell an envelope by the end of its name."""
    row = {"fields": _ROW, "name": "streamydb.Value"}
    fields = [
        _field("before", "struct", optional=True, **row),
        _field("after", "struct", optional=True, **row),
        _field("source", "struct", fields=_SOURCE, name="streamydb.Source"),
        _field("op", "string"),
        _field("ts_ms", "int64"),
        _field("transaction", "struct", fields=_TRANSACTION, name="event.block", version=1),
    ]
    return {
        "type": "struct", "fields": fields, "optional": False, "name": "streamydb.Envelope",
        "version": 1,
    }  # fmt: skip


_encode = msgspec.json.Encoder().encode


def _head(schema: Schema) -> bytes:
    return b'{"schema":%b,"payload":' % _encode(schema)


_KEY_HEAD: Final = _head(key_schema()) + b'{"key":'
_VALUE_HEAD: Final = _head(value_schema())
_NULL: Final = b"null"


def connect_key(key: str) -> bytes:
    return _KEY_HEAD + _encode(key) + b"}}"


def connect_value(key: str, change: Change) -> bytes:
    expires_ms = None if change.expires_ms is UNSET else change.expires_ms
    envelope = _ConnectEnvelope(
        _row(key, change.before, None, None),
        _row(key, change.after, change.source.seq, expires_ms),
        change.source, change.op, change.ts_ms, change.transaction,
    )  # fmt: skip
    return _VALUE_HEAD + _encode(envelope) + b"}"


def _row(
    key: str, value: msgspec.Raw, version: int | None, expires_ms: int | None
) -> _ConnectRow | None:
    text = bytes(value)
    return None if text == _NULL else _ConnectRow(key, text.decode(), version, expires_ms)


def encode_progress(progress: CopyProgress) -> bytes:
    """Return the header's value: plain text, because sinks take JSON in headers for a schema."""
    return " ".join(map(str, progress)).encode()


def decode_progress(value: bytes) -> CopyProgress:
    """Return the progress in a header. Raises ValueError: it is none."""
    topic, position, seq = value.decode().split(" ")
    return CopyProgress(topic, int(position), int(seq))

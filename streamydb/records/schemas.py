"""JSON Schemas (2020-12) of the records on the wire, published in ``docs/schemas``.

``python -m streamydb.records.schemas docs/schemas`` writes the files; a test checks that
they are up to date and that every record the oracle emits fits. A schema cannot say everything
that a transaction is checked for: it counts characters where the limits are bytes, it does not
tell an integer of 70 bits from a float, and it knows no nesting, no size, and no key that is
named twice.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from streamydb import limits
from streamydb.errors import ABORTED_CODES, INTERNAL, REJECTED_CODES
from streamydb.records.change import CONNECTOR
from streamydb.records.names import NAME
from streamydb.records.transaction_schema import (
    ANY,
    COUNT,
    ID,
    KEY,
    NOT_NULL,
    RANGE,
    SEQ,
    TEXT,
    TIME,
    Schema,
    array,
    object_of,
    or_null,
    transaction,
)

_PLACE: Final = object_of({"partition": COUNT, "offset": COUNT})
_ORDER: Final[Schema] = {
    **SEQ,
    "description": "Its place among its transaction's changes, from 1; of a key that has ended a "
    "hash of the key, which two keys may share. seq, total_order and key are a change's identity.",
}
_FAILED: Final = object_of(
    {
        "check": {"enum": ["assert", "check", "update", "constraint", "lock", "range"]},
        "index": COUNT,
        "key": KEY,
        "value": ANY,
        "version": COUNT,
    },
    {"truncated": {"const": True}, "constraint": TEXT, "violated": TEXT, "count": COUNT},
)
_READ_RANGE: Final = object_of(
    {"range": RANGE, "entries": array(object_of({"key": KEY, "value": NOT_NULL, "version": SEQ}))}
)


def _marker() -> Schema:
    number = {"type": "integer", "minimum": 0, "maximum": limits.MARKER_NUMBER_MAX}
    partitions = {"type": "integer", "minimum": 1, "maximum": limits.PARTITIONS_MAX}
    return object_of({"marker": number, "partitions": partitions, "sequencer": TEXT})


def _result() -> Schema:
    schema = object_of(
        {
            "id": or_null(ID),
            "seq": SEQ,
            "ts_ms": TIME,
            "status": {"enum": ["committed", "aborted", "rejected"]},
            "reads": {"type": "object", "propertyNames": KEY},
            "failed": {**array(_FAILED), "maxItems": limits.FAILED_ENTRIES_MAX},
            "code": {"type": ["string", "null"]},
            "source": _PLACE,
        },
        {
            "ranges": array(_READ_RANGE),
            "returned": ANY,
            "reason": TEXT,
            "duplicate": object_of(
                {"seq": SEQ, "ts_ms": TIME, "partition": COUNT, "offset": COUNT}
            ),
        },
    )
    nothing_failed = {"maxItems": 0}
    nothing_read = {"maxProperties": 0}
    schema["oneOf"] = [
        _status("committed", id=ID, failed=nothing_failed, code={"type": "null"}),
        _status("aborted", id=ID, reads=nothing_read, code={"enum": sorted(ABORTED_CODES)}),
        _status(
            "rejected",
            reads=nothing_read,
            failed=nothing_failed,
            code={"enum": sorted(REJECTED_CODES)},
        ),
    ]
    return schema


def _status(status: str, **fields: Schema) -> Schema:
    return {"properties": {"status": {"const": status}, **fields}}


def _change() -> Schema:
    source = object_of(
        {
            "connector": {"const": CONNECTOR},
            "db": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,47}$"},
            "partition": COUNT,
            "offset": COUNT,
            "seq": SEQ,
        }
    )
    schema = object_of(
        {
            "op": {"enum": ["c", "u", "d"]},
            "before": ANY,
            "after": ANY,
            "ts_ms": TIME,
            "source": source,
            "transaction": object_of(
                {"id": ID, "total_order": _ORDER, "data_collection_order": SEQ}
            ),
        },
        {"expires_ms": {**TIME, "description": "The commit time (ms) from which on it is absent."}},
    )
    null = {"type": "null"}
    schema["oneOf"] = [
        {"properties": {"op": {"const": "c"}, "before": null, "after": NOT_NULL}},
        {"properties": {"op": {"const": "u"}, "before": NOT_NULL, "after": NOT_NULL}},
        {"properties": {"op": {"const": "d"}, "before": NOT_NULL, "after": null}},
    ]
    return schema


def _resolved() -> Schema:
    offsets = {
        "type": "object",
        "propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"},
        "additionalProperties": COUNT,
    }
    return object_of({"resolved": COUNT, "ts_ms": TIME, "offsets": offsets})


def _deadletter() -> Schema:
    return object_of(
        {
            "seq": SEQ,
            "ts_ms": TIME,
            "code": {"enum": [*sorted(REJECTED_CODES), INTERNAL]},
            "id": or_null(ID),
            "source": _PLACE,
            "payload": {"type": ["string", "null"], "contentEncoding": "base64"},
            "truncated": {"type": "boolean"},
            "error": {"type": ["string", "null"]},
        }
    )


def _stream() -> Schema:
    return object_of(
        {
            "stream": {"type": "string", "pattern": rf"^{NAME}\.{NAME}$"},
            "seq": SEQ,
            "index": SEQ,
            "ts_ms": TIME,
            "id": ID,
            "batch": SEQ,
            "record": ANY,
        }
    )


def _digest() -> Schema:
    return object_of(
        {
            "seq": SEQ,
            "shard": {"type": "integer", "minimum": 0, "maximum": limits.SHARDS_MAX - 1},
            "interval": SEQ,
            "state": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "outcomes": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
            "shards": {"type": "integer", "minimum": 1, "maximum": limits.SHARDS_MAX},
        }
    )


_TITLES: Final = {
    "transaction": (transaction, "A transaction: the value of a record in <db>.transactions"),
    "marker": (_marker, "An epoch marker: the value of a record in <db>.transactions"),
    "result": (_result, "A verdict: the value of a record in <db>.results"),
    "change": (_change, "A write: the value of a record in <db>.changes"),
    "resolved": (_resolved, "Progress of the changes: the value of a record in <db>.changes"),
    "stream": (_stream, "What a procedure emitted: the value of a record in <db>.streams"),
    "deadletter": (_deadletter, "A bad record: the value of a record in <db>.deadletters"),
    "digest": (_digest, "A digest of a shard's state: the value of a record in <db>.digests"),
}


def schemas() -> dict[str, Schema]:
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **make()}
        for name, (make, title) in _TITLES.items()
    }


def files() -> dict[str, str]:
    """File name -> content of every published schema."""
    return {
        f"{name}.json": json.dumps(schema, indent=2) + "\n" for name, schema in schemas().items()
    }


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))

"""JSON Schemas (2020-12) of the records on the wire, published in ``docs/schemas``.

``python -m streamydb.records.schemas docs/schemas`` writes the files; a test checks that
they are up to date and that every record the oracle emits fits. A schema cannot say everything
that a transaction is checked for: it counts characters where the limits are bytes, it does not
tell an integer of 70 bits from a float, and it knows no nesting, no size, and no key that is
named twice.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

from streamydb import limits
from streamydb.errors import ABORTED_CODES, INTERNAL, REJECTED_CODES
from streamydb.records.change import CONNECTOR
from streamydb.records.names import HASH, NAME, UNIQUE_PREFIX

Schema: TypeAlias = dict[str, Any]

_ANY: Final[Schema] = {}
_NOT_NULL: Final[Schema] = {"not": {"type": "null"}}
_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {
    "description": "An integer of 64 bits or a double.",
    "type": "number",
}
_OPERAND: Final[Schema] = {"type": ["number", "string"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": limits.INTEGER_MAX}
_SEQ: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": limits.INTEGER_MAX}
_TIME: Final[Schema] = {"description": "Milliseconds since 1970.", "type": "integer"}
_ID: Final[Schema] = {
    "description": f"At most {limits.ID_BYTES_MAX} bytes of UTF-8, no control characters.",
    "type": "string",
    "minLength": 1,
    "maxLength": limits.ID_BYTES_MAX,
    "pattern": "^[^\\u0000-\\u001f]*$",
}
_KEY: Final[Schema] = {
    "description": f"At most {limits.KEY_BYTES_MAX} bytes of UTF-8.",
    "type": "string",
    "minLength": 1,
    "maxLength": limits.KEY_BYTES_MAX,
}

_WRITTEN_KEY: Final[Schema] = {
    **_KEY,
    "description": f"At most {limits.KEY_BYTES_MAX} bytes of UTF-8, not beginning with $.",
    "pattern": "^[^$]",
}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: Schema, optional: Schema | None = None, **more: Any) -> Schema:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def _update(op: str, fields: Schema | None = None, optional: Schema | None = None) -> Schema:
    return _object({"op": {"const": op}, "key": _WRITTEN_KEY, **(fields or {})}, optional)


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_PLACE: Final = _object({"partition": _COUNT, "offset": _COUNT})
_UPDATE: Final[Schema] = {
    "oneOf": [
        _update("put", {"value": _NOT_NULL}),
        _update("delete"),
        _update("add", {"by": _NUMBER}, {"min": _NUMBER, "max": _NUMBER}),
        _update("max", {"value": _NUMBER}),
        _update("min", {"value": _NUMBER}),
        _update("append", {"value": _ANY}),
        _update("next_id"),
    ]
}
_CHECK: Final = _object(
    {"key": _KEY},
    {
        "version": _COUNT,
        "exists": {"type": "boolean"},
        "eq": _ANY,
        "ne": _ANY,
        "lt": _OPERAND,
        "le": _OPERAND,
        "gt": _OPERAND,
        "ge": _OPERAND,
    },
    minProperties=2,
)
_FAILED: Final = _object(
    {
        "check": {"enum": ["assert", "check", "update", "constraint", "lock"]},
        "index": _COUNT,
        "key": _KEY,
        "value": _ANY,
        "version": _COUNT,
    },
    {"truncated": {"const": True}, "constraint": _TEXT, "violated": _TEXT},
)
_NAMED: Final[Schema] = {"type": "string", "pattern": f"^{NAME}$"}
_BATCH: Final[Schema] = {
    "description": "In follow-ups, which only the database appends.",
    **_object({"id": _SEQ, "stream": _NAMED, "number": _SEQ, "depth": _SEQ}),
}
_CALL_KEY: Final[Schema] = {
    **_KEY,
    "description": "As other written keys, or a reserved one of the call's own module.",
    "pattern": rf"^([^$]|\$(flows/{NAME}|windows/{NAME}\.{NAME})$)",
}
_CALL: Final = _object(
    {"procedure": {"type": "string", "pattern": rf"^{NAME}\.{NAME}$"}},
    {
        "args": {"type": "object"},
        "keys": _array(_CALL_KEY),
        "reads": _array(_KEY),
        "batch": _BATCH,
    },
)
_DEPLOY: Final = _object(
    {
        "module": {"type": "string", "pattern": f"^{NAME}$"},
        "hash": {"type": "string", "pattern": f"^{HASH}$"},
        "procedures": {
            "type": "object",
            "propertyNames": {"pattern": f"^{NAME}$"},
            "additionalProperties": _array(_TEXT),
        },
    }
)

_CONSTRAIN: Final[Schema] = {
    "oneOf": [
        _object({"declare": {"type": "object"}}),
        _object({"drop": _TEXT}),
        _object({"validate": {"type": "object"}}),
    ]
}


def _transaction() -> Schema:
    return _object(
        {"id": _ID},
        {
            "asserts": {"type": "object", "propertyNames": _KEY},
            "checks": _array(_CHECK),
            "reads": _array(_KEY),
            "updates": {**_array(_UPDATE), "maxItems": limits.KEYS_PER_TRANSACTION_MAX},
            "call": _CALL,
            "deploy": _DEPLOY,
            "constrain": _CONSTRAIN,
            "locks": _array({**_KEY, "pattern": f"^{re.escape(UNIQUE_PREFIX)}"}),
            "deadline_ms": {
                **_SEQ,
                "description": "The last commit time (ms since 1970) at which it is executed.",
            },
        },
    )


def _marker() -> Schema:
    number = {"type": "integer", "minimum": 0, "maximum": limits.MARKER_NUMBER_MAX}
    partitions = {"type": "integer", "minimum": 1, "maximum": limits.PARTITIONS_MAX}
    return _object({"marker": number, "partitions": partitions, "sequencer": _TEXT})


def _result() -> Schema:
    schema = _object(
        {
            "id": _or_null(_ID),
            "seq": _SEQ,
            "ts_ms": _TIME,
            "status": {"enum": ["committed", "aborted", "rejected"]},
            "reads": {"type": "object", "propertyNames": _KEY},
            "failed": {**_array(_FAILED), "maxItems": limits.FAILED_ENTRIES_MAX},
            "code": {"type": ["string", "null"]},
            "source": _PLACE,
        },
        {
            "returned": _ANY,
            "reason": _TEXT,
            "duplicate": _object(
                {"seq": _SEQ, "ts_ms": _TIME, "partition": _COUNT, "offset": _COUNT}
            )
        },
    )
    nothing_failed = {"maxItems": 0}
    nothing_read = {"maxProperties": 0}
    schema["oneOf"] = [
        _status("committed", id=_ID, failed=nothing_failed, code={"type": "null"}),
        _status("aborted", id=_ID, reads=nothing_read, code={"enum": sorted(ABORTED_CODES)}),
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
    source = _object(
        {
            "connector": {"const": CONNECTOR},
            "db": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,47}$"},
            "partition": _COUNT,
            "offset": _COUNT,
            "seq": _SEQ,
        }
    )
    schema = _object(
        {
            "op": {"enum": ["c", "u", "d"]},
            "before": _ANY,
            "after": _ANY,
            "ts_ms": _TIME,
            "source": source,
            "transaction": _object({"id": _ID, "total_order": _SEQ, "data_collection_order": _SEQ}),
        }
    )
    null = {"type": "null"}
    schema["oneOf"] = [
        {"properties": {"op": {"const": "c"}, "before": null, "after": _NOT_NULL}},
        {"properties": {"op": {"const": "u"}, "before": _NOT_NULL, "after": _NOT_NULL}},
        {"properties": {"op": {"const": "d"}, "before": _NOT_NULL, "after": null}},
    ]
    return schema


def _resolved() -> Schema:
    offsets = {
        "type": "object",
        "propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"},
        "additionalProperties": _COUNT,
    }
    return _object({"resolved": _COUNT, "ts_ms": _TIME, "offsets": offsets})


def _deadletter() -> Schema:
    return _object(
        {
            "seq": _SEQ,
            "ts_ms": _TIME,
            "code": {"enum": [*sorted(REJECTED_CODES), INTERNAL]},
            "id": _or_null(_ID),
            "source": _PLACE,
            "payload": {"type": ["string", "null"], "contentEncoding": "base64"},
            "truncated": {"type": "boolean"},
            "error": {"type": ["string", "null"]},
        }
    )


def _stream() -> Schema:
    return _object(
        {
            "stream": {"type": "string", "pattern": rf"^{NAME}\.{NAME}$"},
            "seq": _SEQ,
            "index": _SEQ,
            "ts_ms": _TIME,
            "id": _ID,
            "batch": _SEQ,
            "record": _ANY,
        }
    )


def _digest() -> Schema:
    return _object(
        {
            "seq": _SEQ,
            "shard": {"type": "integer", "minimum": 0, "maximum": limits.SHARDS_MAX - 1},
            "interval": _SEQ,
            "state": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "outcomes": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
            "shards": {"type": "integer", "minimum": 1, "maximum": limits.SHARDS_MAX},
        }
    )


_TITLES: Final = {
    "transaction": (_transaction, "A transaction: the value of a record in <db>.transactions"),
    "marker": (_marker, "An epoch marker: the value of a record in <db>.transactions"),
    "result": (_result, "A verdict: the value of a record in <db>.results"),
    "change": (_change, "A write: the value of a record in <db>.changes"),
    "resolved": (_resolved, "Progress of the changes: the value of a record in <db>.changes"),
    "stream": (_stream, "What a procedure emitted: the value of a record in <db>.streams"),
    "deadletter": (_deadletter, "A bad record: the value of a record in <db>.deadletters"),
    "digest": (_digest, "A digest of a shard's state: the value of a record in <db>.digests"),
}


def schemas() -> dict[str, Schema]:
    """The schema of every record, by name."""
    return {
        name: {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": title,
            **make(),
        }
        for name, (make, title) in _TITLES.items()
    }


def files() -> dict[str, str]:
    """File name -> content of every published schema."""
    return {
        f"{name}.json": json.dumps(schema, indent=2) + "\n" for name, schema in schemas().items()
    }


def write(folder: Path) -> None:
    """Write the schemas to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))

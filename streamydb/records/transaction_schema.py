"""The JSON Schema of a transaction."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from streamydb import limits
from streamydb.records.names import HASH, NAME, UNIQUE_PREFIX

Schema: TypeAlias = dict[str, Any]

ANY: Final[Schema] = {}
NOT_NULL: Final[Schema] = {"not": {"type": "null"}}
TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": limits.INTEGER_MAX}
SEQ: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": limits.INTEGER_MAX}
TIME: Final[Schema] = {"description": "Milliseconds since 1970.", "type": "integer"}
ID: Final[Schema] = {
    "description": f"At most {limits.ID_BYTES_MAX} bytes of UTF-8, no control characters.",
    "type": "string",
    "minLength": 1,
    "maxLength": limits.ID_BYTES_MAX,
    "pattern": "^[^\\u0000-\\u001f]*$",
}
KEY: Final[Schema] = {
    "description": f"At most {limits.KEY_BYTES_MAX} bytes of UTF-8.",
    "type": "string",
    "minLength": 1,
    "maxLength": limits.KEY_BYTES_MAX,
}


RANGE: Final[Schema] = {
    "description": "The keys with a prefix, or those from a start up to an end, by their bytes.",
    "type": "object",
    "properties": {"prefix": KEY, "start": KEY, "end": KEY},
    "dependentRequired": {"start": ["end"], "end": ["start"]},
    "not": {"required": ["prefix", "start"]},
    "minProperties": 1,
    "additionalProperties": False,
}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def object_of(required: Schema, optional: Schema | None = None, **more: Any) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_NUMBER: Final[Schema] = {"description": "An integer of 64 bits or a double.", "type": "number"}
_OPERAND: Final[Schema] = {"type": ["number", "string"]}

_WRITTEN_KEY: Final[Schema] = {
    **KEY,
    "description": f"At most {limits.KEY_BYTES_MAX} bytes of UTF-8, not beginning with $.",
    "pattern": "^[^$]",
}


_TTL: Final[Schema] = {
    "type": "integer",
    "minimum": 1,
    "maximum": limits.TTL_MS_MAX,
    "description": "The key is absent from so long (ms) after the commit time on.",
}


def _update(op: str, fields: Schema | None = None, optional: Schema | None = None) -> Schema:
    return object_of({"op": {"const": op}, "key": _WRITTEN_KEY, **(fields or {})}, optional)


_UPDATE: Final[Schema] = {
    "oneOf": [
        _update("put", {"value": NOT_NULL}, {"ttl_ms": _TTL}),
        _update("delete"),
        _update("add", {"by": _NUMBER}, {"min": _NUMBER, "max": _NUMBER}),
        _update("max", {"value": _NUMBER}),
        _update("min", {"value": _NUMBER}),
        _update("append", {"value": ANY}, {"ttl_ms": _TTL}),
        _update("next_id"),
        _update("touch", {}, {"ttl_ms": _TTL}),
    ]
}
_OF_KEYS: Final[Schema] = {
    "version": COUNT,
    "eq": ANY,
    "ne": ANY,
    "lt": _OPERAND,
    "le": _OPERAND,
    "gt": _OPERAND,
    "ge": _OPERAND,
}
_OF_RANGES: Final[Schema] = {
    "count": COUNT,
    "count_le": COUNT,
    "count_ge": COUNT,
    "version_le": COUNT,
}
_CHECK: Final[Schema] = {
    "type": "object",
    "properties": {
        "key": KEY,
        "range": RANGE,
        "exists": {"type": "boolean"},
        **_OF_KEYS,
        **_OF_RANGES,
    },
    "dependentRequired": {
        **{name: ["key"] for name in _OF_KEYS},
        **{name: ["range"] for name in _OF_RANGES},
    },
    "not": {"required": ["key", "range"]},
    "minProperties": 2,
    "additionalProperties": False,
}
_READ: Final[Schema] = {"oneOf": [KEY, object_of({"range": RANGE})]}
_LOCK: Final[Schema] = {
    "oneOf": [{**KEY, "pattern": f"^{re.escape(UNIQUE_PREFIX)}"}, object_of({"range": RANGE})]
}
_NAMED: Final[Schema] = {"type": "string", "pattern": f"^{NAME}$"}
_BATCH: Final[Schema] = {
    "description": "In follow-ups, which only the database appends.",
    **object_of({"id": SEQ, "stream": _NAMED, "number": SEQ, "depth": SEQ}),
}
_CALL_KEY: Final[Schema] = {
    **KEY,
    "description": "As other written keys, or a reserved one of the call's own module.",
    "pattern": rf"^([^$]|\$(flows/{NAME}|windows/{NAME}\.{NAME})$)",
}
_CALL: Final = object_of(
    {"procedure": {"type": "string", "pattern": rf"^{NAME}\.{NAME}$"}},
    {
        "args": {"type": "object"},
        "keys": array(_CALL_KEY),
        "reads": array(KEY),
        "ranges": array(RANGE),
        "batch": _BATCH,
    },
)
_DEPLOY: Final = object_of(
    {
        "module": {"type": "string", "pattern": f"^{NAME}$"},
        "hash": {"type": "string", "pattern": f"^{HASH}$"},
        "procedures": {
            "type": "object",
            "propertyNames": {"pattern": f"^{NAME}$"},
            "additionalProperties": array(TEXT),
        },
    }
)

_CONSTRAIN: Final[Schema] = {
    "oneOf": [
        object_of({"declare": {"type": "object"}}),
        object_of({"drop": TEXT}),
        object_of({"validate": {"type": "object"}}),
    ]
}


def transaction() -> Schema:
    return object_of(
        {"id": ID},
        {
            "asserts": {"type": "object", "propertyNames": KEY},
            "checks": array(_CHECK),
            "reads": array(_READ),
            "updates": {**array(_UPDATE), "maxItems": limits.KEYS_PER_TRANSACTION_MAX},
            "call": _CALL,
            "deploy": _DEPLOY,
            "constrain": _CONSTRAIN,
            "locks": array(_LOCK),
            "deadline_ms": {
                **SEQ,
                "description": "The last commit time (ms since 1970) at which it is executed.",
            },
        },
    )

"""Parts of JSON Schemas that those of several records share."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from streamydb import limits

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

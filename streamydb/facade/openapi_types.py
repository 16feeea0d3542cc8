"""The schemas of the OpenAPI document, in the words that generators of clients understand.

The schemas of the records (`docs/schemas`) say all that a schema can say. Generators take some of
their words for types: `type: null` for a class, an object without properties for one that has none,
an integer for one of 32 bits. Here the same shapes are said in other words. Left out is only which
values of a verdict's or change's fields go together; and answers may have more fields one day.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from streamydb.records.schemas import schemas

_Json = dict[str, Any]

_REFERENCE: Final = "#/components/schemas/"
_NULL: Final[_Json] = {"type": "null"}
_FORMATS: Final = {"integer": "int64", "number": "double"}
_TYPES: Final = {str: "string", bool: "boolean", int: "integer"}
_KEY_OF_CHANGE: Final[_Json] = {"description": "The key that was written.", "type": "string"}
_PARTS: Final[dict[str, dict[str, str]]] = {
    "transaction": {
        "checks": "check", "call": "call", "deploy": "deploy", "constrain": "constrain",
        "updates": "update", "reads": "read", "locks": "lock",
    },
    "result": {
        "failed": "failed_check", "duplicate": "duplicate", "source": "place",
        "ranges": "read_range",
    },
    "change": {"source": "change_source", "transaction": "change_transaction"},
    "stream": {},
}  # fmt: skip
"""The records that the facade takes and gives; the objects in them that get a name of their own."""


def of(name: str) -> _Json:
    """Return the reference to a schema that has a name."""
    return {"$ref": _REFERENCE + name}


def record_schemas() -> dict[str, _Json]:
    """Return the schemas of the records that the facade takes and gives, and of their parts."""
    named: dict[str, _Json] = {}
    for name, parts in _PARTS.items():
        record = named[name] = plain(schemas()[name])
        record["description"] = record.pop("title")
        for field, part in parts.items():
            record["properties"][field] = _named(record["properties"][field], part, named)
    change = named["change"]
    change["properties"] = {"key": _KEY_OF_CHANGE, **change["properties"]}
    change["required"] = ["key", *change["required"]]
    del named["transaction"]["required"]  # the id may be left out here
    compared = {word: of("operand") for word in ("lt", "le", "gt", "ge")}
    named["operand"] = _alternatives(named["check"]["properties"]["lt"])
    named["check"]["properties"] |= compared
    named["range"] = named["check"]["properties"]["range"]
    key, named["range_read"] = named["read"]["oneOf"]
    named["read"] = {"oneOf": [key, of("range_read")]}
    named["lock"]["oneOf"][1] = of("range_read")
    for part in ("check", "range_read", "read_range"):
        named[part]["properties"]["range"] = of("range")
    named["call"]["properties"]["ranges"]["items"] = of("range")
    entries = named["read_range"]["properties"]["entries"]
    named["read_range"]["properties"]["entries"] = _named(entries, "range_entry", named)
    named["update"] = _discriminated(named["update"], named)
    named["constrain"] = _one_of_many(named["constrain"])
    for name in ("result", "change", "stream"):
        for part in (name, *_PARTS[name].values(), *(["range_entry"] if name == "result" else [])):
            del named[part]["additionalProperties"]  # a later release may say more
    return named


def plain(schema: Any) -> Any:
    """Return a schema in generators' words."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = _without_null({word: part for word, part in schema.items() if word != "$schema"})
    if "properties" in kept:
        kept.pop("oneOf", None)  # which values of the fields go together
        kept["properties"] = {name: plain(part) for name, part in kept["properties"].items()}
    elif kept.get("type") == "object":
        kept.setdefault("additionalProperties", {})
    for word in ("items", "additionalProperties", "oneOf"):
        if word in kept:
            kept[word] = plain(kept[word])
    return _typed(kept)


def _without_null(schema: _Json) -> _Json:
    """Say that a value may be null in its type, not beside it."""
    for word in ("anyOf", "oneOf"):
        others = [part for part in schema.get(word, ()) if part != _NULL]
        if len(others) == 1 and len(schema[word]) > 1 and "type" in others[0]:
            inner = others[0]
            rest = {name: part for name, part in schema.items() if name != word}
            return {**inner, **rest, "type": [inner["type"], "null"]}
    return schema


def _typed(schema: _Json) -> _Json:
    """Name the type of constants, and the size of numbers."""
    if "const" in schema:
        value = schema.pop("const")
        schema["type"] = _TYPES[type(value)]
        if isinstance(value, str):
            schema["enum"] = [value]
    elif "enum" in schema:
        schema.setdefault("type", "string")
    kinds = schema.get("type")
    for kind in [kinds] if isinstance(kinds, str) else kinds or []:
        if kind in _FORMATS:
            schema["format"] = _FORMATS[kind]
    return schema


def _named(schema: _Json, name: str, named: dict[str, _Json]) -> _Json:
    """Give a schema, or the one of an array's items, a name; return the reference to it."""
    if schema.get("type") == "array":
        return {**schema, "items": _named(schema["items"], name, named)}
    named[name] = schema
    return of(name)


def _alternatives(schema: _Json) -> _Json:
    """Say of which types a value may be by a schema for each."""
    return {"oneOf": [_typed({"type": kind}) for kind in schema["type"]]}


def _discriminated(schema: _Json, named: dict[str, _Json]) -> _Json:
    """Tell the kinds of updates apart by `op`."""
    mapping = {}
    for kind in schema["oneOf"]:
        (op,) = kind["properties"]["op"]["enum"]
        named[f"{op}_update"] = kind
        mapping[op] = of(f"{op}_update")["$ref"]
    return {
        "oneOf": [of(f"{op}_update") for op in mapping],
        "discriminator": {"propertyName": "op", "mapping": mapping},
    }


def _one_of_many(schema: _Json) -> _Json:
    """Say that exactly one of several fields is there."""
    fields: Iterator[tuple[str, _Json]] = (
        item for kind in schema["oneOf"] for item in kind["properties"].items()
    )
    return {
        "type": "object", "properties": dict(fields), "minProperties": 1, "maxProperties": 1,
        "additionalProperties": False,
    }  # fmt: skip

"""The schemas of the OpenAPI document that have a name, beside those of the records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from streamydb.facade.problems import ProblemDetails, type_of
from streamydb.records.gears import GEARS
from streamydb.records.problems import PROBLEMS
from streamydb.records.schemas import schemas

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


_Json = dict[str, Any]

VALUE: Final[_Json] = {"description": "Any JSON value but null."}
_SEQ: Final[_Json] = {"type": "integer", "minimum": 0}
_POSITION: Final[_Json] = {"type": "integer", "minimum": 1}
TEXT: Final[_Json] = {"type": "string"}
OPEN_OBJECT: Final[_Json] = {"type": "object", "additionalProperties": {}}
_ENTRY: Final[_Json] = {
    "type": "object",
    "required": ["key", "value", "version", "ts_ms"],
    "properties": {
        "key": TEXT,
        "value": VALUE,
        "version": _SEQ,
        "ts_ms": _SEQ,
        "expires_ms": {**_SEQ, "description": "The commit time from which on it is absent."},
    },
}
_LIST: Final[_Json] = {
    "type": "object",
    "required": ["seq", "entries", "cursor"],
    "properties": {
        "seq": _SEQ,
        "entries": {"type": "array", "items": of("entry")},
        "cursor": {"type": ["string", "null"]},
    },
}
_READS: Final[_Json] = {
    "type": "object",
    "required": ["seq", "entries"],
    "properties": {
        "seq": _SEQ,
        "entries": {
            "type": "object",
            "additionalProperties": {"anyOf": [of("entry"), {"type": "null"}]},
        },
    },
}
_CONSISTENCY: Final[_Json] = {"type": "string", "enum": ["strong", "session", "snapshot"]}
_PLACE: Final[_Json] = {"at": _POSITION, "consistency": _CONSISTENCY, "min_version": _POSITION}
_READ_BODY: Final[_Json] = {
    "type": "object",
    "required": ["keys"],
    "additionalProperties": False,
    "properties": {"keys": {"type": "array", "items": TEXT}, **_PLACE},
}
_QUERY_BODY: Final[_Json] = {
    "type": "object",
    "required": ["sql"],
    "additionalProperties": False,
    "properties": {
        "sql": TEXT,
        "params": {"type": "array", "items": {"description": "Text, a number, a boolean or null."}},
        "prefix": TEXT,
        **_PLACE,
    },
}
_SQL_BODY: Final[_Json] = {
    "type": "object",
    "required": ["statements"],
    "additionalProperties": False,
    "properties": {
        "statements": {"type": "array", "minItems": 1, "items": of("statement")},
        "tables": {**TEXT, "description": "Their name, a part of their keys; default: main."},
        **_PLACE,
    },
}
_STATEMENT: Final[_Json] = {
    "type": "object",
    "required": ["sql"],
    "additionalProperties": False,
    "properties": {
        "sql": TEXT,
        "params": {"description": "The values of ? or $1 as a list; those of $name as an object."},
    },
}
_SQL_ANSWER: Final[_Json] = {
    "type": "object",
    "required": ["seq", "id", "results"],
    "properties": {
        "seq": {**_SEQ, "description": "The transaction, or the state that was read."},
        "id": {"type": ["string", "null"], "description": "The transaction's; null: no writes."},
        "results": {"type": "array", "items": of("statement_result")},
    },
}
_STATEMENT_RESULT: Final[_Json] = {
    "type": "object",
    "required": ["columns", "rows", "changed"],
    "properties": {
        "columns": {"type": "array", "items": of("column")},
        "rows": {"type": "array", "items": {"type": "array", "items": {}}},
        "changed": {
            "type": ["integer", "null"],
            "description": "Rows written; null: it writes none.",
        },
    },
}
_TABLE: Final[_Json] = {
    "type": "object",
    "required": ["seq", "columns", "rows"],
    "properties": {
        "seq": _SEQ,
        "columns": {"type": "array", "items": of("column")},
        "rows": {"type": "array", "items": {"type": "array", "items": {}}},
    },
}
_COLUMN: Final[_Json] = {
    "type": "object", "required": ["name", "type"], "properties": {"name": TEXT, "type": TEXT},
}  # fmt: skip
_EMITTED: Final[_Json] = {
    "type": "object",
    "required": ["records", "more", "cursor"],
    "properties": {
        "records": {"type": "array", "items": of("stream")},
        "more": {"type": "boolean", "description": "Whether there is more by now."},
        "cursor": {"type": "string", "description": "Where to go on."},
    },
}
_PENDING: Final[_Json] = {
    "type": "object",
    "properties": {"id": TEXT, "status": {"type": "string", "enum": ["unknown"]}},
}
_OBJECTS: Final[_Json] = {"type": "array", "items": OPEN_OBJECT}
_EXPLANATION: Final[_Json] = {
    "type": "object",
    "required": [
        "id",
        "appends",
        "order",
        "transaction",
        "plan",
        "met",
        "checks",
        "verdict",
        "writes",
        "resolved",
        "digests",
        "unknown",
    ],
    "properties": {
        "id": {"type": ["string", "null"]},
        "appends": _OBJECTS,
        "order": OPEN_OBJECT,
        "transaction": {"description": "As it is in the log; null: unknown, or hidden."},
        "plan": {"description": "The plan and the conflict group; null: unknown."},
        "met": _OBJECTS,
        "checks": _OBJECTS,
        "verdict": of("result"),
        "writes": _OBJECTS,
        "resolved": {"description": "When its outputs were all written; null: unknown."},
        "digests": _OBJECTS,
        "unknown": {"type": "object", "additionalProperties": TEXT},
    },
}
_GEAR: Final[_Json] = {
    "type": ["object", "null"],
    "description": "Which gear of the pipeline leads; null: it has not told.",
    "required": ["gear", "since_ms", "why", "obstacle", "behind", "behind_records"],
    "properties": {
        "gear": {"type": "string", "enum": [*GEARS]},
        "since_ms": _SEQ,
        "why": TEXT,
        "worker": {"type": ["integer", "null"]},
        "obstacle": {
            "type": ["string", "null"], "description": "Why it has one gear; null: it has two.",
        },
        "behind": {
            "type": ["integer", "null"], "description": "Seqs that the other gear lacks.",
        },
        "behind_records": {
            "type": ["integer", "null"], "description": "Log records that it has not read.",
        },
    },
}  # fmt: skip
_WITH_GEAR: Final[_Json] = {**OPEN_OBJECT, "required": ["gear"], "properties": {"gear": _GEAR}}
_PIPELINES: Final[_Json] = {
    "type": "object",
    "required": ["database", "here", "heard", "digests", "why"],
    "properties": {
        "database": TEXT,
        "here": {"type": "array", "items": _WITH_GEAR},
        "heard": {"type": ["array", "null"], "items": _WITH_GEAR},
        "digests": {"type": ["array", "null"], "items": OPEN_OBJECT},
        "why": {"type": "array", "items": TEXT},
    },
}
_LIVE: Final[_Json] = {**OPEN_OBJECT, "required": ["status"], "properties": {"status": TEXT}}
_SERVED: Final = ("reads", "strong", "writes", "changes")
_HEALTH: Final[_Json] = {
    "type": "object",
    "required": ["status", *_SERVED, "seq", "ts_ms", "age_s", "waiting_s", "why"],
    "properties": {
        "status": {"type": "string", "enum": ["ready", "degraded"]},
        **{kind: {"type": "boolean"} for kind in _SERVED},
        "seq": {"description": "The seq that reads show; null: unknown."},
        "ts_ms": {"description": "Its commit time; null: unknown."},
        "age_s": {"description": "Reads show the state of so many seconds ago, or a newer one."},
        "waiting_s": {"description": "The oldest record without a result has waited so long."},
        "why": {"type": "array", "items": TEXT},
    },
}
_PROBLEM: Final[_Json] = {
    "type": "object",
    "required": ["slug", "type", "status", "title", "when"],
    "properties": {
        **dict.fromkeys(("slug", "type", "title", "when"), TEXT), "status": {"type": "integer"},
    },
}  # fmt: skip
_NAMED: Final[dict[str, _Json]] = {
    "entry": _ENTRY, "entries": _LIST, "reading": _READS, "read_request": _READ_BODY,
    "query_request": _QUERY_BODY, "sql_request": _SQL_BODY, "statement": _STATEMENT,
    "sql_answer": _SQL_ANSWER, "statement_result": _STATEMENT_RESULT,
    "table": _TABLE, "column": _COLUMN, "emissions": _EMITTED,
    "pending": _PENDING, "explanation": _EXPLANATION, "live": _LIVE, "health": _HEALTH,
    "pipelines": _PIPELINES, "problem_type": _PROBLEM,
}  # fmt: skip


def named_schemas() -> dict[str, _Json]:
    """Return the schemas by name."""
    own = {"ProblemDetails": _problem_details(), **_NAMED}
    return {**{name: plain(schema) for name, schema in own.items()}, **record_schemas()}


def _problem_details() -> _Json:
    _, named = msgspec.json.schema_components([ProblemDetails])
    schema: _Json = named["ProblemDetails"]
    del schema["description"]
    schema["required"] = sorted(schema["required"])
    for member in schema["properties"].values():
        member.pop("default", None)
    schema["properties"]["health"]["anyOf"][0]["additionalProperties"] = {}
    schema["properties"]["type"]["enum"] = [type_of(slug) for slug in PROBLEMS]
    return schema

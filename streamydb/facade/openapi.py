"""The OpenAPI document, made from the table of endpoints, in the words that generators understand.

The schemas of the records (`docs/schemas`) say all that a schema can say. Generators of clients
take some of their words for types: `type: null` for a class, an object without properties for one
that has none, an integer for one of 32 bits. Here the same shapes are said in other words. Left out
is only which values of a verdict's or change's fields go together; and answers may have more fields
one day.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from streamydb import __version__
from streamydb.facade.conditions import FIELD
from streamydb.facade.endpoint import Endpoint, Response
from streamydb.facade.problems import PROBLEM_MEDIA_TYPE, ProblemDetails, type_of
from streamydb.limits import ID_BYTES_MAX
from streamydb.records.gears import GEARS
from streamydb.records.generation import GENERATION
from streamydb.records.problems import PROBLEMS, Problem
from streamydb.records.schemas import schemas

_Json = dict[str, Any]

ANYWHERE: Final = (
    "invalid-parameter", "cross-origin", "no-such-endpoint", "method-not-allowed", "uri-too-long",
    "misdirected", "headers-too-large", "internal", "overloaded", "other-generation",
)  # fmt: skip
"""Problems that a request to any endpoint may meet."""

_INTRODUCTION: Final = """\
A strictly serializable key-value database over HTTP. Values are JSON. A key is the rest of the path
after `/v1/kv/`, percent-encoded; it may hold slashes. The version of a value is the `seq` of the
transaction that wrote it: the number in its ETag, and what `at`, `min_version` and `since` take.
A database that was restored or forked is of another *generation*, which answers tell in the header
`Streamydb-Generation`. Send it along with seqs: what is of another one is refused.

A failed request is answered with `application/problem+json` (RFC 9457). The types:

| type | status | when |
|---|---|---|
"""
_SYNTAX: Final = {
    "If-Match": f"^{FIELD}$",
    "If-None-Match": f"^{FIELD}$",
    "Idempotency-Key": rf"^[ -~]{{1,{ID_BYTES_MAX}}}$",
    "Deadline-Ms": "^[0-9]{1,19}$",
    "Last-Event-ID": f"^[0-9]{{1,19}}(@{GENERATION.pattern})?$",
}
"""What a header may hold; each may be sent once."""

_NAME: Final = re.compile(r"\{(\w+)\}")


def document(endpoints: Iterable[Endpoint]) -> _Json:
    rows = [f"| `{type_of(p.slug)}` | {p.status} | {p.when} |\n" for p in PROBLEMS.values()]
    bearer = {"type": "http", "description": "Off loopback, a token.", "scheme": "bearer"}
    paths: dict[str, _Json] = defaultdict(dict)
    for endpoint in endpoints:
        if endpoint.answers:
            # The name of the endpoint is what generated clients call a method.
            first, *others = endpoint.name.split("_")
            title = "".join(map(str.title, others))
            operation: _Json = {
                "summary": first.title() + title,
                "description": inspect.cleandoc(endpoint.answer.__doc__ or ""),
                "operationId": first + title,
                "deprecated": False,
                "responses": {
                    **_failures(endpoint),
                    **{str(status): _shown(answer) for status, answer in endpoint.answers.items()},
                },
            }
            parameters = [*_query(endpoint), *_path(endpoint), *_headers(endpoint)]
            if parameters:
                operation["parameters"] = parameters
            if endpoint.body is not None:
                content = {"application/json": {"schema": endpoint.body}}
                operation["requestBody"] = {"required": True, "content": content}
            paths[endpoint.path][endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "streamy-db", "version": __version__,
            "description": _INTRODUCTION + "".join(rows),
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": named_schemas(), "securitySchemes": {"bearer": bearer}},
        "security": [{"bearer": []}, {}],
    }  # fmt: skip


def _shown(answer: Response) -> _Json:
    content = {} if answer.schema is None else {answer.media_type: {"schema": answer.schema}}
    return {"description": answer.text, "content": content}


def _failures(endpoint: Endpoint) -> _Json:
    by_status: dict[int, list[Problem]] = defaultdict(list)
    for slug in dict.fromkeys((*endpoint.problems, *ANYWHERE)):
        by_status[PROBLEMS[slug].status].append(PROBLEMS[slug])
    return {
        str(status): {
            "description": "\n".join(f"- `{type_of(p.slug)}`: {p.when}" for p in problems),
            "content": {PROBLEM_MEDIA_TYPE: {"schema": of("ProblemDetails")}},
        }
        for status, problems in sorted(by_status.items())
    }


def _query(endpoint: Endpoint) -> list[_Json]:
    if endpoint.query is None:
        return []
    (reference,), named = msgspec.json.schema_components([endpoint.query])
    fields: _Json = named[reference["$ref"].rpartition("/")[2]].get("properties", {})
    return [_parameter(name, schema) for name, schema in fields.items()]


def _parameter(name: str, schema: _Json) -> _Json:
    """Return a parameter of a query; it may be left out."""
    for part in schema.get("anyOf", ()):
        if part != {"type": "null"}:  # which stands for a parameter that is left out
            schema = part
    shown = plain(schema)
    return {
        "name": name, "in": "query", "schema": shown, "description": shown["description"],
        "required": False, "deprecated": False, "allowEmptyValue": False, "allowReserved": False,
    }  # fmt: skip


def _path(endpoint: Endpoint) -> list[_Json]:
    text = "Percent-encoded; slashes may stand as they are."
    return [
        {"name": name, "in": "path", "schema": {"type": "string"}, "required": True,
         "deprecated": False, "description": text}
        for name in _NAME.findall(endpoint.path)
    ]  # fmt: skip


def _headers(endpoint: Endpoint) -> list[_Json]:
    return [
        {"name": name, "in": "header", "description": text,
         "schema": {"type": "string", **({"pattern": _SYNTAX[name]} if name in _SYNTAX else {})}}
        for name, text in endpoint.headers.items()
    ]  # fmt: skip


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
    return {"$ref": _REFERENCE + name}


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


def _discriminated(schema: _Json, named: dict[str, _Json]) -> _Json:
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


def _object(
    properties: _Json, *, optional: Iterable[str] = (), closed: bool = False, **more: Any
) -> _Json:
    """Return the schema of an object; ``closed``: it has no other properties."""
    required = [name for name in properties if name not in optional]
    schema: _Json = {"type": "object", **more, "properties": properties}
    if required:
        schema["required"] = required
    return schema | ({"additionalProperties": False} if closed else {})


def _array(items: _Json) -> _Json:
    return {"type": "array", "items": items}


def _nullable(kind: str, description: str | None = None, **more: Any) -> _Json:
    described = {} if description is None else {"description": description}
    return {"type": [kind, "null"], **described, **more}


VALUE: Final[_Json] = {"description": "Any JSON value but null."}
_SEQ: Final[_Json] = {"type": "integer", "minimum": 0}
_POSITION: Final[_Json] = {"type": "integer", "minimum": 1}
TEXT: Final[_Json] = {"type": "string"}
OPEN_OBJECT: Final[_Json] = {"type": "object", "additionalProperties": {}}
_OBJECTS: Final = _array(OPEN_OBJECT)
_COLUMNS: Final = {"columns": _array(of("column")), "rows": _array(_array({}))}
_STATE: Final[_Json] = {
    "at": _POSITION, "min_version": _POSITION,
    "consistency": {"type": "string", "enum": ["strong", "session", "snapshot"]},
}  # fmt: skip
_SERVED: Final = ("reads", "strong", "writes", "changes")
_GEAR: Final[_Json] = _object(
    {
        "gear": {"type": "string", "enum": [*GEARS]}, "since_ms": _SEQ, "why": TEXT,
        "worker": _nullable("integer"),
        "obstacle": _nullable("string", "Why it has one gear; null: it has two."),
        "behind": _nullable("integer", "Seqs that the other gear lacks."),
        "behind_records": _nullable("integer", "Log records that it has not read."),
    },
    optional=["worker"],
) | _nullable("object", "Which gear of the pipeline leads; null: it has not told.")  # fmt: skip
_WITH_GEAR: Final = OPEN_OBJECT | {"required": ["gear"], "properties": {"gear": _GEAR}}

_NAMED: Final[dict[str, _Json]] = {
    "entry": _object(
        {
            "key": TEXT, "value": VALUE, "version": _SEQ, "ts_ms": _SEQ,
            "expires_ms": {**_SEQ, "description": "The commit time from which on it is absent."},
        },
        optional=["expires_ms"],
    ),
    "entries": _object(
        {"seq": _SEQ, "entries": _array(of("entry")), "cursor": _nullable("string")}
    ),
    "reading": _object({
        "seq": _SEQ,
        "entries": {
            "type": "object",
            "additionalProperties": {"anyOf": [of("entry"), {"type": "null"}]},
        },
    }),
    "read_request": _object({"keys": _array(TEXT), **_STATE}, optional=_STATE, closed=True),
    "query_request": _object(
        {
            "sql": TEXT, "params": _array({"description": "Text, a number, a boolean or null."}),
            "prefix": TEXT, **_STATE,
        },
        optional=["params", "prefix", *_STATE], closed=True,
    ),
    "sql_request": _object(
        {
            "statements": {**_array(of("statement")), "minItems": 1},
            "tables": {**TEXT, "description": "Their name, a part of their keys; default: main."},
            **_STATE,
        },
        optional=["tables", *_STATE], closed=True,
    ),
    "statement": _object(
        {
            "sql": TEXT,
            "params": {
                "description": "The values of ? or $1 as a list; those of $name as an object."
            },
        },
        optional=["params"], closed=True,
    ),
    "sql_answer": _object({
        "seq": {**_SEQ, "description": "The transaction, or the state that was read."},
        "id": _nullable("string", "The transaction's; null: no writes."),
        "results": _array(of("statement_result")),
    }),
    "statement_result": _object(
        {**_COLUMNS, "changed": _nullable("integer", "Rows written; null: it writes none.")}
    ),
    "table": _object({"seq": _SEQ, **_COLUMNS}),
    "column": _object({"name": TEXT, "type": TEXT}),
    "emissions": _object({
        "records": _array(of("stream")),
        "more": {"type": "boolean", "description": "Whether there is more by now."},
        "cursor": {**TEXT, "description": "Where to go on."},
    }),
    "pending": _object(
        {"id": TEXT, "status": {**TEXT, "enum": ["unknown"]}}, optional=["id", "status"]
    ),
    "explanation": _object({
        "id": _nullable("string"), "appends": _OBJECTS, "order": OPEN_OBJECT,
        "transaction": {"description": "As it is in the log; null: unknown, or hidden."},
        "plan": {"description": "The plan and the conflict group; null: unknown."},
        "met": _OBJECTS, "checks": _OBJECTS, "verdict": of("result"), "writes": _OBJECTS,
        "resolved": {"description": "When its outputs were all written; null: unknown."},
        "digests": _OBJECTS, "unknown": {"type": "object", "additionalProperties": TEXT},
    }),
    "pipelines": _object({
        "database": TEXT, "here": _array(_WITH_GEAR),
        "heard": _nullable("array", items=_WITH_GEAR),
        "digests": _nullable("array", items=OPEN_OBJECT), "why": _array(TEXT),
    }),
    "live": OPEN_OBJECT | {"required": ["status"], "properties": {"status": TEXT}},
    "health": _object({
        "status": {"type": "string", "enum": ["ready", "degraded"]},
        **{kind: {"type": "boolean"} for kind in _SERVED},
        "seq": {"description": "The seq that reads show; null: unknown."},
        "ts_ms": {"description": "Its commit time; null: unknown."},
        "age_s": {"description": "Reads show the state of so many seconds ago, or a newer one."},
        "waiting_s": {"description": "The oldest record without a result has waited so long."},
        "why": _array(TEXT),
    }),
    "problem_type": _object({
        "slug": TEXT, "type": TEXT, "status": {"type": "integer"}, "title": TEXT, "when": TEXT,
    }),
}  # fmt: skip


def named_schemas() -> dict[str, _Json]:
    own = {"ProblemDetails": _problem_details(), **_NAMED}
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
    # Say of which types a value may be by a schema for each.
    schema = named["check"]["properties"]["lt"]
    named["operand"] = {"oneOf": [_typed({"type": kind}) for kind in schema["type"]]}
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
    return {**{name: plain(schema) for name, schema in own.items()}, **named}


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

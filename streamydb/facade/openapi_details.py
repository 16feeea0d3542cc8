"""The parts of the OpenAPI document that do not follow from handlers' signatures: bodies and
headers.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from streamydb.facade.conditions import FIELD
from streamydb.facade.openapi_types import absent, of, plain, record_schemas
from streamydb.facade.problems import type_of
from streamydb.limits import ID_BYTES_MAX
from streamydb.records.gears import GEARS
from streamydb.records.generation import GENERATION
from streamydb.records.problems import PROBLEMS

__all__ = ["completed"]

_Json = dict[str, Any]

_VALUE: Final[_Json] = {"description": "Any JSON value but null."}
_SEQ: Final[_Json] = {"type": "integer", "minimum": 0}
_POSITION: Final[_Json] = {"type": "integer", "minimum": 1}
_TEXT: Final[_Json] = {"type": "string"}
_OPEN: Final[_Json] = {"type": "object", "additionalProperties": {}}
_ENTRY: Final[_Json] = {
    "type": "object",
    "required": ["key", "value", "version", "ts_ms"],
    "properties": {
        "key": _TEXT, "value": _VALUE, "version": _SEQ, "ts_ms": _SEQ,
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
    "properties": {"keys": {"type": "array", "items": _TEXT}, **_PLACE},
}
_QUERY_BODY: Final[_Json] = {
    "type": "object",
    "required": ["sql"],
    "additionalProperties": False,
    "properties": {
        "sql": _TEXT,
        "params": {
            "type": "array",
            "items": {"description": "Text, a number, a boolean or null."},
        },
        "prefix": _TEXT,
        **_PLACE,
    },
}
_SQL_BODY: Final[_Json] = {
    "type": "object",
    "required": ["statements"],
    "additionalProperties": False,
    "properties": {
        "statements": {"type": "array", "minItems": 1, "items": of("statement")},
        "tables": {**_TEXT, "description": "Their name, a part of their keys; default: main."},
        **_PLACE,
    },
}
_STATEMENT: Final[_Json] = {
    "type": "object",
    "required": ["sql"],
    "additionalProperties": False,
    "properties": {
        "sql": _TEXT,
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
            "type": ["integer", "null"], "description": "Rows written; null: it writes none.",
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
    "type": "object", "required": ["name", "type"], "properties": {"name": _TEXT, "type": _TEXT},
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
    "properties": {"id": _TEXT, "status": {"type": "string", "enum": ["unknown"]}},
}
_OBJECTS: Final[_Json] = {"type": "array", "items": _OPEN}
_EXPLANATION: Final[_Json] = {
    "type": "object",
    "required": [
        "id", "appends", "order", "transaction", "plan", "met", "checks", "verdict", "writes",
        "resolved", "digests", "unknown",
    ],
    "properties": {
        "id": {"type": ["string", "null"]},
        "appends": _OBJECTS,
        "order": _OPEN,
        "transaction": {"description": "As it is in the log; null: unknown, or hidden."},
        "plan": {"description": "The plan and the conflict group; null: unknown."},
        "met": _OBJECTS,
        "checks": _OBJECTS,
        "verdict": of("result"),
        "writes": _OBJECTS,
        "resolved": {"description": "When its outputs were all written; null: unknown."},
        "digests": _OBJECTS,
        "unknown": {"type": "object", "additionalProperties": _TEXT},
    },
}
_GEAR: Final[_Json] = {
    "type": ["object", "null"],
    "description": "Which gear of the pipeline leads; null: it has not told.",
    "required": ["gear", "since_ms", "why", "obstacle", "behind", "behind_records"],
    "properties": {
        "gear": {"type": "string", "enum": [*GEARS]},
        "since_ms": _SEQ,
        "why": _TEXT,
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
_WITH_GEAR: Final[_Json] = {**_OPEN, "required": ["gear"], "properties": {"gear": _GEAR}}
_PIPELINES: Final[_Json] = {
    "type": "object",
    "required": ["database", "here", "heard", "digests", "why"],
    "properties": {
        "database": _TEXT,
        "here": {"type": "array", "items": _WITH_GEAR},
        "heard": {"type": ["array", "null"], "items": _WITH_GEAR},
        "digests": {"type": ["array", "null"], "items": _OPEN},
        "why": {"type": "array", "items": _TEXT},
    },
}
_LIVE: Final[_Json] = {**_OPEN, "required": ["status"], "properties": {"status": _TEXT}}
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
        "why": {"type": "array", "items": _TEXT},
    },
}
_PROBLEM: Final[_Json] = {
    "type": "object",
    "required": ["slug", "type", "status", "title", "when"],
    "properties": {
        **dict.fromkeys(("slug", "type", "title", "when"), _TEXT), "status": {"type": "integer"},
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

_BODIES: Final[dict[tuple[str, str], _Json]] = {
    ("put", "/v1/kv/{key}"): _VALUE,
    ("post", "/v1/transactions"): of("transaction"),
    ("post", "/v1/read"): of("read_request"),
    ("post", "/v1/query"): of("query_request"),
    ("post", "/v1/sql"): of("sql_request"),
}
_ANSWERS: Final[dict[tuple[str, str], dict[str, tuple[str, str, _Json]]]] = {
    ("get", "/v1/kv/{key}"): {
        "200": ("The value.", "application/json", _VALUE),
        "304": ("The client has this version.", "", {}),
    },
    ("put", "/v1/kv/{key}"): {
        "200": ("Committed.", "application/json", of("result")),
        "201": ("Committed, created.", "application/json", of("result")),
        "202": ("Appended; ask Location.", "application/json", of("pending")),
    },
    ("delete", "/v1/kv/{key}"): {
        "200": ("Committed.", "application/json", of("result")),
        "202": ("Appended; ask Location.", "application/json", of("pending")),
    },
    ("get", "/v1/kv"): {"200": ("A page.", "application/json", of("entries"))},
    ("post", "/v1/read"): {
        "200": ("The entries, null: absent.", "application/json", of("reading")),
    },
    ("post", "/v1/query"): {"200": ("The rows.", "application/json", of("table"))},
    ("post", "/v1/sql"): {"200": ("The results.", "application/json", of("sql_answer"))},
    ("post", "/v1/transactions"): {
        "200": ("The verdict, committed or aborted.", "application/json", of("result")),
        "202": ("Appended; ask Location.", "application/json", of("pending")),
    },
    ("get", "/v1/transactions/{id}"): {
        "200": ("The verdict.", "application/json", of("result")),
        "202": ("Not decided yet.", "application/json", of("pending")),
    },
    ("get", "/v1/explanations/{id}"): {
        "200": ("Its life.", "application/json", of("explanation")),
        "202": ("Not decided yet.", "application/json", of("pending")),
    },
    ("get", "/v1/changes"): {
        "200": ("Server-sent events; data is a change.", "text/event-stream", {"type": "string"}),
    },
    ("get", "/v1/streams/{name}"): {"200": ("A page.", "application/json", of("emissions"))},
    ("get", "/v1/history/{key}"): {
        "200": ("The versions.", "application/json", _OPEN),
    },
    ("get", "/v1/stats"): {"200": ("The figures.", "application/json", _OPEN)},
    ("get", "/v1/pipelines"): {
        "200": ("The pipelines.", "application/json", of("pipelines")),
    },
    ("get", "/v1/constraints"): {
        "200": ("The constraints by name.", "application/json", _OPEN)
    },
    ("get", "/v1/limits"): {"200": ("The limits.", "application/json", _OPEN)},
    ("get", "/health/live"): {"200": ("It runs.", "application/json", of("live"))},
    ("get", "/health/ready"): {"200": ("It is ready.", "application/json", of("health"))},
    ("get", "/problems"): {
        "200": ("The types.", "application/json", {"type": "array", "items": of("problem_type")}),
    },
    ("get", "/problems/{slug}"): {"200": ("The type.", "application/json", of("problem_type"))},
    ("get", "/metrics"): {"200": ("Metrics.", "text/plain", {"type": "string"})},
}
_CONDITIONS: Final = {
    "If-Match": 'Versions, as "41", "42", of which the key must have one; *: it must be there.',
    "If-None-Match": "Versions that the key must not have, on reads: that need no answer; *: any.",
}
_SENDING: Final = {
    "Idempotency-Key": "The transaction's id: send it again with the same content after a failure.",
    "Deadline-Ms": "The last commit time (ms since 1970) at which it may be executed.",
    "Prefer": "respond-async: answer once appended. wait=n, also with it: answer within n seconds.",
}
_HEADERS: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("get", "/v1/kv/{key}"): _CONDITIONS,
    ("put", "/v1/kv/{key}"): {**_CONDITIONS, **_SENDING},
    ("delete", "/v1/kv/{key}"): {**_CONDITIONS, **_SENDING},
    ("post", "/v1/transactions"): _SENDING,
    ("post", "/v1/sql"): {name: _SENDING[name] for name in ("Idempotency-Key", "Deadline-Ms")},
    ("get", "/v1/transactions/{id}"): {"Prefer": "wait=n: wait for the verdict n seconds."},
    ("get", "/v1/changes"): {"Last-Event-ID": "Go on after this event; goes before `since`."},
}


_SYNTAX: Final = {
    "If-Match": f"^{FIELD}$",
    "If-None-Match": f"^{FIELD}$",
    "Idempotency-Key": rf"^[ -~]{{1,{ID_BYTES_MAX}}}$",
    "Deadline-Ms": "^[0-9]{1,19}$",
    "Last-Event-ID": f"^[0-9]{{1,19}}(@{GENERATION.pattern})?$",
}
"""What a header may hold; each may be sent once."""


def completed(document: _Json) -> _Json:
    """Return the OpenAPI document with bodies, answers and headers."""
    full = copy.deepcopy(document)
    for path, item in full["paths"].items():
        for method, operation in item.items():
            _complete(operation, (method, path))
    named = full["components"]["schemas"]
    named["ProblemDetails"]["properties"]["type"]["enum"] = [type_of(slug) for slug in PROBLEMS]
    own = {**named, **_NAMED}
    full["components"]["schemas"] = {
        **{name: plain(schema) for name, schema in own.items()}, **record_schemas(),
    }  # fmt: skip
    return full


def _complete(operation: _Json, of: tuple[str, str]) -> None:
    """Add to one operation what is known of it."""
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = plain(absent(parameter["schema"]))
        if parameter["in"] == "path":
            parameter["schema"] = {"type": "string"}
            parameter["description"] = "Percent-encoded; slashes may stand as they are."
    if of in _BODIES:
        content = {"application/json": {"schema": _BODIES[of]}}
        operation["requestBody"] = {"required": True, "content": content}
    for status, (description, media_type, schema) in _ANSWERS.get(of, {}).items():
        content = {media_type: {"schema": schema}} if media_type else {}
        operation["responses"][status] = {"description": description, "content": content}
    for name, description in _HEADERS.get(of, {}).items():
        syntax = {"pattern": _SYNTAX[name]} if name in _SYNTAX else {}
        parameter = {"name": name, "in": "header", "schema": {"type": "string", **syntax}}
        operation.setdefault("parameters", []).append({**parameter, "description": description})

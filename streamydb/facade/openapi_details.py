"""The parts of the OpenAPI document that do not follow from handlers' signatures: bodies and
headers.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from streamydb.facade.problems import type_of
from streamydb.limits import ID_BYTES_MAX, INTEGER_MAX
from streamydb.records.problems import PROBLEMS
from streamydb.records.schema_parts import KEY, NOT_NULL
from streamydb.records.schemas import schemas

__all__ = ["completed"]

_Json = dict[str, Any]

_ANY: Final[_Json] = {"description": "Any JSON value but null.", **NOT_NULL}
_RESULT: Final[_Json] = {"$ref": "#/components/schemas/result"}
_SEQ: Final[_Json] = {"type": "integer", "minimum": 0}
_ENTRY: Final[_Json] = {
    "type": "object",
    "required": ["key", "value", "version", "ts_ms"],
    "properties": {"key": {"type": "string"}, "value": _ANY, "version": _SEQ, "ts_ms": _SEQ},
}
_LIST: Final[_Json] = {
    "type": "object",
    "properties": {
        "seq": _SEQ,
        "entries": {"type": "array", "items": _ENTRY},
        "cursor": {"type": ["string", "null"]},
    },
}
_READS: Final[_Json] = {
    "type": "object",
    "properties": {
        "seq": _SEQ,
        "entries": {
            "type": "object",
            "additionalProperties": {"anyOf": [_ENTRY, {"type": "null"}]},
        },
    },
}
_AT: Final[_Json] = {"type": ["integer", "null"], "minimum": 1, "maximum": INTEGER_MAX}
_FRESHNESS: Final[_Json] = {
    "at": {**_AT, "description": "The state after this seq; not with strong or session."},
    "consistency": {"enum": ["strong", "session", "snapshot", None]},
    "min_version": {**_AT, "description": "At most `at`; session needs it."},
}
_CONTRADICTIONS: Final[_Json] = {
    "anyOf": [
        {
            "required": ["at", "consistency"],
            "properties": {
                "at": {"type": "integer"}, "consistency": {"enum": ["strong", "session"]},
            },
        },
        {
            "required": ["consistency"],
            "properties": {"consistency": {"const": "session"}, "min_version": {"type": "null"}},
        },
    ]
}  # fmt: skip
"""Bodies that make no sense: `at` fixes the snapshot, and a session needs `min_version`."""
_READ_BODY: Final[_Json] = {
    "type": "object",
    "required": ["keys"],
    "additionalProperties": False,
    "not": _CONTRADICTIONS,
    "properties": {
        "keys": {"type": "array", "items": KEY},
        **_FRESHNESS,
    },
}
_QUERY_BODY: Final[_Json] = {
    "type": "object",
    "required": ["sql"],
    "additionalProperties": False,
    "not": _CONTRADICTIONS,
    "properties": {
        "sql": {"type": "string"},
        "params": {
            "type": "array",
            "items": {"type": ["string", "integer", "number", "boolean", "null"]},
        },
        "prefix": {"type": "string"},
        **_FRESHNESS,
    },
}
_TABLE: Final[_Json] = {
    "type": "object",
    "required": ["seq", "columns", "rows"],
    "properties": {
        "seq": _SEQ,
        "columns": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "type": {"type": "string"}},
            },
        },
        "rows": {"type": "array", "items": {"type": "array"}},
    },
}
_EMITTED: Final[_Json] = {
    "type": "object",
    "required": ["records", "more", "cursor"],
    "properties": {
        "records": {"type": "array", "items": {"$ref": "#/components/schemas/stream"}},
        "more": {"type": "boolean", "description": "Whether there is more by now."},
        "cursor": {"type": "string", "description": "Where to go on."},
    },
}
_PENDING: Final[_Json] = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "status": {"const": "unknown"}},
}
_LIVE: Final[_Json] = {"type": "object", "required": ["status"]}
_SERVED: Final = ("reads", "strong", "writes", "changes")
_HEALTH: Final[_Json] = {
    "type": "object",
    "required": ["status", *_SERVED, "seq", "ts_ms", "age_s", "waiting_s", "why"],
    "properties": {
        "status": {"enum": ["ready", "degraded"]},
        **{kind: {"type": "boolean"} for kind in _SERVED},
        "seq": {"type": ["integer", "null"], "description": "The seq that reads show."},
        "ts_ms": {"type": ["integer", "null"], "description": "Its commit time."},
        "age_s": {
            "type": ["number", "null"],
            "description": "Reads show the state of so many seconds ago, or a newer one.",
        },
        "waiting_s": {
            "type": ["number", "null"],
            "description": "The oldest record without a result has waited so long.",
        },
        "why": {"type": "array", "items": {"type": "string"}},
    },
}
_PROBLEM: Final[_Json] = {"type": "object", "required": ["type", "status", "title", "when"]}

_BODIES: Final[dict[tuple[str, str], _Json]] = {
    ("put", "/v1/kv/{key}"): _ANY,
    ("post", "/v1/transactions"): {"$ref": "#/components/schemas/transaction"},
    ("post", "/v1/read"): _READ_BODY,
    ("post", "/v1/query"): _QUERY_BODY,
}
_ANSWERS: Final[dict[tuple[str, str], dict[str, tuple[str, str, _Json]]]] = {
    ("get", "/v1/kv/{key}"): {
        "200": ("The value.", "application/json", _ANY),
        "304": ("The client has this version.", "", {}),
    },
    ("put", "/v1/kv/{key}"): {
        "200": ("Committed.", "application/json", _RESULT),
        "201": ("Committed, created (If-None-Match: *).", "application/json", _RESULT),
        "202": ("Appended; ask Location.", "application/json", _PENDING),
    },
    ("delete", "/v1/kv/{key}"): {
        "200": ("Committed.", "application/json", _RESULT),
        "202": ("Appended; ask Location.", "application/json", _PENDING),
    },
    ("get", "/v1/kv"): {"200": ("A page.", "application/json", _LIST)},
    ("post", "/v1/read"): {"200": ("The entries, null: absent.", "application/json", _READS)},
    ("post", "/v1/query"): {"200": ("The rows.", "application/json", _TABLE)},
    ("post", "/v1/transactions"): {
        "200": ("The verdict, committed or aborted.", "application/json", _RESULT),
        "202": ("Appended; ask Location.", "application/json", _PENDING),
    },
    ("get", "/v1/transactions/{id}"): {
        "200": ("The verdict.", "application/json", _RESULT),
        "202": ("Not decided yet.", "application/json", _PENDING),
    },
    ("get", "/v1/changes"): {
        "200": ("Server-sent events; data is a change.", "text/event-stream", {"type": "string"}),
    },
    ("get", "/v1/streams/{name}"): {"200": ("A page.", "application/json", _EMITTED)},
    ("get", "/v1/history/{key}"): {
        "200": ("The versions.", "application/json", {"type": "object"}),
    },
    ("get", "/v1/stats"): {"200": ("The figures.", "application/json", {"type": "object"})},
    ("get", "/v1/constraints"): {
        "200": ("The constraints by name.", "application/json", {"type": "object"})
    },
    ("get", "/v1/limits"): {"200": ("The limits.", "application/json", {"type": "object"})},
    ("get", "/health/live"): {"200": ("It runs.", "application/json", _LIVE)},
    ("get", "/health/ready"): {"200": ("It serves these.", "application/json", _HEALTH)},
    ("get", "/problems"): {
        "200": ("The types.", "application/json", {"type": "array", "items": _PROBLEM}),
    },
    ("get", "/problems/{slug}"): {"200": ("The type.", "application/json", _PROBLEM)},
    ("get", "/metrics"): {"200": ("Metrics.", "text/plain", {"type": "string"})},
}
_CONDITIONS: Final = {
    "If-Match": 'A version, as "41", or *: the key must have it, or be there.',
    "If-None-Match": "On reads: versions that need no answer. On writes: *, create only.",
}
_SENDING: Final = {
    "Idempotency-Key": "The transaction's id: send it again with the same content after a failure.",
    "Deadline-Ms": "The last commit time (ms since 1970) at which it may be executed.",
    "Prefer": "respond-async: answer once appended. wait=n: answer within n seconds.",
}
_HEADERS: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("get", "/v1/kv/{key}"): _CONDITIONS,
    ("put", "/v1/kv/{key}"): {**_CONDITIONS, **_SENDING},
    ("delete", "/v1/kv/{key}"): {**_CONDITIONS, **_SENDING},
    ("post", "/v1/transactions"): _SENDING,
    ("get", "/v1/transactions/{id}"): {"Prefer": "wait=n: wait for the verdict n seconds."},
    ("get", "/v1/changes"): {"Last-Event-ID": "Go on after this seq; goes before `since`."},
}


_TAG: Final = r'(W/)?"[^"\x00-\x20\x7f]*"'
_SYNTAX: Final = {
    "If-Match": rf"^(\*|{_TAG}( *, *{_TAG})*)$",
    "If-None-Match": rf"^(\*|{_TAG}( *, *{_TAG})*)$",
    "Idempotency-Key": rf"^[ -~]{{1,{ID_BYTES_MAX}}}$",
    "Deadline-Ms": "^[0-9]{1,19}$",
    "Last-Event-ID": "^[0-9]{1,19}$",
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
    for name in ("transaction", "result", "change", "stream"):
        schema = schemas()[name]
        named[name] = {field: part for field, part in schema.items() if field != "$schema"}
    named["transaction"]["required"] = []  # the id may be left out here
    return full


def _complete(operation: _Json, of: tuple[str, str]) -> None:
    """Add to one operation what is known of it."""
    for parameter in operation.get("parameters", ()):
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

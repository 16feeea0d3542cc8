"""The schemas of the OpenAPI document that have a name, beside those of the records."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamydb.facade.openapi_types import of, plain, record_schemas
from streamydb.facade.problems import ProblemDetails, type_of
from streamydb.records.gears import GEARS
from streamydb.records.problems import PROBLEMS

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

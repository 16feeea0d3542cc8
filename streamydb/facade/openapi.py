"""The OpenAPI document, made from the table of endpoints."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from streamydb import __version__
from streamydb.facade.conditions import FIELD
from streamydb.facade.endpoint import Endpoint, Response
from streamydb.facade.openapi_schemas import named_schemas, of, plain
from streamydb.facade.problems import PROBLEM_MEDIA_TYPE, type_of
from streamydb.limits import ID_BYTES_MAX
from streamydb.records.generation import GENERATION
from streamydb.records.problems import PROBLEMS, Problem

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
            paths[endpoint.path][endpoint.method.lower()] = _operation(endpoint)
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


def _operation(endpoint: Endpoint) -> _Json:
    """Return the part about an endpoint; its name is what generated clients call a method."""
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
    return operation


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

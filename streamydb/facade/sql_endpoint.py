"""`/v1/query`: SQL over one snapshot."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from litestar import Response, post

from streamydb.facade.body import reading
from streamydb.facade.openapi import answers
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import Consistency, check_seqs
from streamydb.facade.services import AnyRequest, client_of, json_response, services_of
from streamydb.facade.sql_queries import SqlQuery
from streamydb.limits import INTEGER_MAX, INTEGER_MIN, KEY_BYTES_MAX
from streamydb.records.formats import UNREADABLE

__all__ = ["post_query"]

_PROBLEMS = (
    "invalid-json", "invalid-parameter", "query-invalid", "unauthorized", "forbidden",
    "cross-origin", "body-timeout", "snapshot-gone", "answer-too-large", "too-large",
    "query-costly", "overloaded", "log-unavailable", "read-model-behind", "not-ready",
    "queries-off",
)  # fmt: skip


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/query`."""

    sql: str
    params: list[str | int | float | bool | None] = []
    prefix: str = ""
    at: int | None = None
    consistency: Consistency | None = None
    min_version: int | None = None


@post("/v1/query", status_code=200, responses=answers(*_PROBLEMS))
async def post_query(request: AnyRequest) -> Response[bytes]:
    """Run one SELECT over the table `kv(key, value, version, ts)` at one snapshot."""
    services = services_of(request)
    async with reading(request.scope, request.receive, services.settings, services.bodies) as raw:
        body = _decoded(raw)
    query = SqlQuery(
        body.sql, tuple(body.params), body.prefix, body.at, body.consistency, body.min_version
    )
    return json_response(await services.queries.run(query, client_of(request)))


def _decoded(raw: bytes) -> _Body:
    try:
        body = msgspec.json.decode(raw, type=_Body)
    except UNREADABLE:
        detail = 'Send {"sql": "select …"} and, if you like, params, prefix, at, consistency.'
        raise ProblemError("invalid-json", detail) from None
    check_seqs(at=body.at, min_version=body.min_version)
    if len(body.prefix.encode()) > KEY_BYTES_MAX:
        raise ProblemError("invalid-parameter", f"A prefix has at most {KEY_BYTES_MAX} bytes.")
    if not all(map(_fits, body.params)):
        raise ProblemError("invalid-parameter", "Numbers in `params` are finite and fit 64 bits.")
    return body


def _fits(value: Any) -> bool:
    if isinstance(value, int):
        return INTEGER_MIN <= value <= INTEGER_MAX
    return not isinstance(value, float) or math.isfinite(value)

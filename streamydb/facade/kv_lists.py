"""Lists of keys (`GET /v1/kv`), and many keys at one snapshot (`POST /v1/read`)."""

from __future__ import annotations

from typing import Final

from litestar import Response, get, post

from streamydb.facade import parameters as q
from streamydb.facade.body import reading
from streamydb.facade.content import CONTENT_PROBLEMS
from streamydb.facade.gate import context_of
from streamydb.facade.kv import READ_PROBLEMS
from streamydb.facade.openapi import answers
from streamydb.facade.read_answers import LIMIT_DEFAULT, Listed, answer_list, answer_many
from streamydb.facade.reads import ReadPoint
from streamydb.facade.services import AnyRequest, client_of, json_response, services_of

__all__ = ["list_values", "read_values"]

_READ_MANY_PROBLEMS: Final = (
    "invalid-json", "invalid-key", "answer-too-large", "too-large", "body-timeout",
    *CONTENT_PROBLEMS,
)  # fmt: skip


@get("/v1/kv", responses=answers(*READ_PROBLEMS))
async def list_values(
    request: AnyRequest,
    prefix: q.AsPrefix = None,
    start: q.AsStart = None,
    end: q.AsEnd = None,
    limit: q.AsLimit = LIMIT_DEFAULT,
    cursor: q.AsCursor = None,
    at: q.AsSeq = None,
    consistency: q.AsConsistency = None,
    min_version: q.AsMinVersion = None,
) -> Response[bytes]:
    """List keys in the order of their UTF-8 bytes, all pages of one list at one snapshot."""
    listed = Listed(prefix, start, end, limit, cursor)
    wanted = ReadPoint(at, consistency, min_version)
    found = await answer_list(services_of(request), client_of(request), listed, wanted)
    return json_response(found.body, headers=found.headers)


@post(
    "/v1/read",
    status_code=200,
    responses=answers(*READ_PROBLEMS, *_READ_MANY_PROBLEMS),
)
async def read_values(request: AnyRequest) -> Response[bytes]:
    """Read many keys at one snapshot: a read-only transaction that never aborts."""
    services = services_of(request)
    async with reading(request, services) as raw:
        pass  # a read that waits for the log does not hold its body
    found = await answer_many(services, context_of(request.scope), raw)
    return json_response(found.body, headers=found.headers)

"""`/v1/kv/{key}`: one key read, written, removed."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from litestar import Response, delete, get, put

from streamydb.facade import parameters as q
from streamydb.facade.body import decode_value_body, reading
from streamydb.facade.conditions import KeyConditions, conditions_of, entity_tag
from streamydb.facade.content import CONTENT_PROBLEMS
from streamydb.facade.gate import context_of
from streamydb.facade.headers import idempotency_key, preference
from streamydb.facade.openapi import answers
from streamydb.facade.paths import key_of
from streamydb.facade.payloads import conditional_write, new_id
from streamydb.facade.problems import ProblemError
from streamydb.facade.read_answers import answer_one
from streamydb.facade.reads import ReadPoint
from streamydb.facade.services import (
    JSON_HEADERS,
    AnyRequest,
    Sent,
    Services,
    client_of,
    headers_of,
    json_response,
    services_of,
)
from streamydb.facade.transactions import execute
from streamydb.records import Result

__all__ = ["READ_PROBLEMS", "delete_value", "get_value", "put_value", "store_value"]

READ_PROBLEMS: Final = (
    "invalid-parameter", "unauthorized", "forbidden", "snapshot-gone", "overloaded",
    "log-unavailable", "read-model-behind", "not-ready",
)  # fmt: skip
_WRITE_PROBLEMS: Final = (
    "invalid-parameter", "invalid-key", "unauthorized", "forbidden", "cross-origin", "aborted",
    "precondition-failed", "constraint-violated", "too-large", "id-reused", "deadline-passed",
    "invalid-transaction", "too-many-requests",
    "overloaded", "log-unavailable", "verdict-unknown",
)  # fmt: skip


@get(
    "/v1/kv/{key:path}",
    responses=answers(*READ_PROBLEMS, "invalid-key", "key-not-found", "precondition-failed"),
)
async def get_value(
    request: AnyRequest,
    at: q.AsSeq = None,
    consistency: q.AsConsistency = None,
    min_version: q.AsMinVersion = None,
) -> Response[bytes]:
    """Read a key: its value as JSON, its version as ETag.

    If it has an end, the header Streamydb-Expires tells it, in ms since 1970.
    """
    wanted = ReadPoint(at, consistency, min_version)
    services, headers = services_of(request), headers_of(request)
    found = await answer_one(services, context_of(request.scope), headers, wanted)
    if found.status == 304:
        return Response(b"", status_code=304, headers={**JSON_HEADERS, **found.headers})
    return json_response(found.body, headers=found.headers)


@put(
    "/v1/kv/{key:path}",
    responses=answers(*_WRITE_PROBLEMS, "invalid-json", "body-timeout", *CONTENT_PROBLEMS),
)
async def put_value(request: AnyRequest, ttl_ms: q.AsTtl = None) -> Response[bytes]:
    """Store a value; If-Match and If-None-Match make it conditional."""
    return await store_value(request, services_of(request), ttl_ms)


async def store_value(
    request: Sent, services: Services, ttl_ms: int | None = None
) -> Response[bytes]:
    """Answer a request to store a value, until ``ttl_ms`` after the commit, or for good.

    Raises:
        ProblemError: as `put_value` declares.
    """
    key = _key(request)
    client_of(request).must_write(key)
    async with reading(request, services) as body:
        value = decode_value_body(body)
        return await _write(request, services, key, _Written(value, ttl_ms))


@delete("/v1/kv/{key:path}", status_code=200, responses=answers(*_WRITE_PROBLEMS))
async def delete_value(request: AnyRequest) -> Response[bytes]:
    """Remove a key; it may be absent, unless If-Match says otherwise."""
    services = services_of(request)
    return await _write(request, services, _key(request), _Written(None))


def _key(request: Sent) -> str:
    return key_of(context_of(request.scope).name or b"")


class _Written(NamedTuple):
    """A write of one key: its value (None: a delete), and for how long."""

    value: bytes | None
    ttl_ms: int | None = None


async def _write(
    request: Sent, services: Services, key: str, written: _Written
) -> Response[bytes]:
    """Make a write of one key and answer with its verdict."""
    client_of(request).must_write(key)
    headers = headers_of(request)
    generation = services.model.generation
    conditions = KeyConditions(key, conditions_of(headers), generation)
    checks = conditions.checks()
    if checks is None:
        detail = "No version can meet If-Match and If-None-Match; nothing was appended."
        raise ProblemError("precondition-failed", detail)
    txn_id, wanted = idempotency_key(headers) or new_id(), preference(headers)
    payload = conditional_write(txn_id, key, written.value, checks, written.ttl_ms)
    steps = _Steps(conditions, written, checks)
    if conditions.in_steps:
        wanted = wanted._replace(respond_async=False)  # the facade takes the steps
    return await execute(request, services, txn_id, payload, wanted, steps)


class _Steps:
    """The steps of a conditional write (`conditions`), and the answer to the last one."""

    def __init__(
        self, conditions: KeyConditions, written: _Written, checks: list[dict[str, Any]]
    ) -> None:
        """Begin with the step of these checks."""
        self._conditions = conditions
        self._written = written
        self._creates = checks in ([conditions.absent()], [conditions.check(0)])

    def following(self, txn_id: str, payload: bytes, result: Result) -> tuple[str, bytes] | None:
        """Return id and bytes of the step after a verdict, as `transactions.Course` wants."""
        step = self._conditions.following(txn_id, payload, result)
        if step is not None:
            self._creates = self._conditions.met(result) == 0
        return step

    def conclude(self, result: Result) -> tuple[int, dict[str, str]]:
        """Return the status and the headers of the last verdict, or raise its problem."""
        if self._conditions.allow_again(result):
            detail = "Others kept changing the key while its condition was judged; send it again."
            raise ProblemError("aborted", detail, code=result.code, id=result.id)
        _raise_aborted(result)
        if self._written.value is None:
            return 200, {}
        return 201 if self._creates else 200, {
            "ETag": entity_tag(result.seq, self._conditions.generation)
        }


def _raise_aborted(result: Result) -> None:
    """Say why a write did not commit."""
    if result.status == "committed":
        return
    if result.code == "check-failed":
        version = result.failed[0].version if result.failed else 0
        detail = "The key has another version; nothing was written."
        raise ProblemError(
            "precondition-failed", detail, version=version, id=result.id, seq=result.seq
        )
    if result.code == "constraint-violated" and result.failed:
        failed = result.failed[0]
        detail = f"{failed.violated} is what constraint {failed.constraint} demands."
        raise ProblemError(
            "constraint-violated",
            detail,
            code=result.code,
            constraint=failed.constraint,
            key=failed.key,
            violated=failed.violated,
            id=result.id,
            seq=result.seq,
        )
    raise ProblemError("aborted", "Nothing was written.", code=result.code, id=result.id)

"""Every way in which a request can fail: one table, and the answers made from it (RFC 9457).

No detail carries a key, a value or a token: what a client sent is named, never repeated. The one
exception is `error` of a query, which DuckDB writes; it goes to the asker alone, never to a log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from litestar import Response

from streamydb.errors import StreamyError

__all__ = [
    "PROBLEMS",
    "PROBLEM_MEDIA_TYPE",
    "Problem",
    "ProblemDetails",
    "ProblemError",
    "problem_body",
    "problem_response",
    "type_of",
]

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"


class Problem(NamedTuple):
    """A problem type."""

    slug: str
    status: int
    title: str
    when: str


class ProblemDetails(msgspec.Struct, omit_defaults=True):
    """The members that the answers have; further ones depend on the type."""

    type: str
    title: str
    status: int
    detail: str
    id: str | None = None
    code: str | None = None
    error: str | None = None
    parameters: list[str] | None = None
    seq: int | None = None
    ts_ms: int | None = None
    version: int | None = None
    oldest: int | None = None
    constraint: str | None = None
    key: str | None = None
    violated: str | None = None


_TABLE: Final = (
    Problem("invalid-json", 400, "The body is not JSON", "Not JSON (RFC 8259, UTF-8), NaN, lone "
            "surrogates, null stored as a value, a number that does not fit."),
    Problem("invalid-parameter", 400, "A parameter makes no sense",
            "A query parameter or header is malformed, unknown, repeated or contradicts another."),
    Problem("invalid-key", 400, "The key cannot be a key",
            "A key in the path is empty, too long or not UTF-8."),
    Problem("query-invalid", 400, "The query cannot be run",
            "Not one SELECT, not SQL, or it failed; `error` has what DuckDB says."),
    Problem("unauthorized", 401, "A token is needed",
            "No bearer token was sent, or not one that this facade knows."),
    Problem("forbidden", 403, "The token does not allow this",
            "The token's scopes do not cover a key or prefix of the request."),
    Problem("cross-origin", 403, "Requests of other web sites are refused",
            "A browser sent the request for a page of another origin."),
    Problem("key-not-found", 404, "There is no such key", "The key is absent in the snapshot."),
    Problem("transaction-unknown", 404, "No verdict was found",
            "No transaction with this id is known here: none was appended, or too long ago."),
    Problem("no-such-stream", 404, "There is no such stream",
            "The name is not module.stream, or no module of this name is deployed."),
    Problem("no-such-endpoint", 404, "There is no such endpoint", "The path names nothing."),
    Problem("method-not-allowed", 405, "The endpoint has no such method",
            "The header Allow names the methods."),
    Problem("body-timeout", 408, "The body did not arrive", "The request's body came too slowly."),
    Problem("slow-reader", 408, "The event stream was not read fast enough",
            "In event streams: the last event. Connect again with Last-Event-ID."),
    Problem("aborted", 409, "The transaction was aborted",
            "A write was executed and aborted for another reason than its condition."),
    Problem("deadline-passed", 409, "The deadline has passed",
            "The record came to the log after its deadline, and this copy was not executed; if it "
            "was sent before, Location tells its verdict."),
    Problem("snapshot-gone", 410, "The snapshot is not kept any more",
            "`at` or a cursor names a seq older than what the read model keeps."),
    Problem("precondition-failed", 412, "The condition does not hold",
            "If-Match or If-None-Match does not hold for the key's version; nothing was written."),
    Problem("too-large", 413, "The request is too large",
            "A body, value, transaction or its number of keys is above a limit (GET /v1/limits)."),
    Problem("answer-too-large", 413, "The answer would be too large",
            "The values or rows that were asked for do not fit in one answer; ask for fewer."),
    Problem("uri-too-long", 414, "The address is too long", "Path and query are above a limit."),
    Problem("misdirected", 421, "Not a host of this facade",
            "The header Host names another host than those the facade answers for."),
    Problem("invalid-transaction", 422, "The transaction cannot be executed",
            "`code` has the reason code of the verdict that it would get; nothing was appended."),
    Problem("constraint-violated", 422, "A constraint does not allow this",
            "`constraint` names it, `violated` says what it demands; nothing was written."),
    Problem("query-costly", 422, "The query takes too much",
            "A query was ended because of its time or memory."),
    Problem("id-reused", 422, "The id was used for another payload",
            "Idempotency-Key or id was used shortly before with other content."),
    Problem("too-many-requests", 429, "This client has too much under way",
            "A client's own limit of transactions or event streams; see Retry-After."),
    Problem("headers-too-large", 431, "The headers are too large", "All headers together."),
    Problem("internal", 500, "A fault in streamy-db", "Please report it."),
    Problem("queries-off", 501, "This facade runs no queries",
            "DuckDB is not installed where the facade runs, or queries are turned off."),
    Problem("overloaded", 503, "The facade is busy",
            "A limit of all clients together was reached; see Retry-After."),
    Problem("log-unavailable", 503, "The log cannot be reached",
            "Kafka does not answer; nothing was appended. See Retry-After."),
    Problem("read-model-behind", 503, "The read model is not there yet",
            "A strong, session or `at` read waited too long for the read model; see Retry-After."),
    Problem("not-ready", 503, "The facade is not ready", "Its read model or Kafka is missing."),
    Problem("verdict-unknown", 504, "The verdict is not known yet",
            "The transaction may be decided later: ask Location, or send the same bytes again."),
)  # fmt: skip

PROBLEMS: Final[dict[str, Problem]] = {problem.slug: problem for problem in _TABLE}
"""Every problem type by its slug."""


class ProblemError(StreamyError):
    """A request fails with a problem of the table.

    Attributes:
        problem: its type.
        detail: what happened here and what to do, in a sentence.
        headers: further headers of the answer.
        members: further members of the answer.
    """

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        retry_after_s: int | None = None,
        **members: Any,
    ) -> None:
        """Fail with the problem `slug`."""
        super().__init__(f"{slug}: {detail}")
        self.problem = PROBLEMS[slug]
        self.detail = detail
        self.members = members
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(retry_after_s)


def type_of(slug: str) -> str:
    """Return the type URI of a problem: where this facade describes it."""
    return f"/problems/{slug}"


def problem_body(error: ProblemError) -> bytes:
    """Return the JSON of the answer."""
    problem = error.problem
    shown = {"type": type_of(problem.slug), "title": problem.title, "status": problem.status}
    return msgspec.json.encode({**shown, "detail": error.detail, **error.members})


def problem_response(error: ProblemError) -> Response[bytes]:
    """Return the answer of a failed request."""
    return Response(
        problem_body(error),
        status_code=error.problem.status,
        media_type=PROBLEM_MEDIA_TYPE,
        headers={"Cache-Control": "no-store", **error.headers},
    )

"""Every way in which a request can fail: one table, for the facade, its clients and the docs.

The facade makes its answers from it (RFC 9457), the client its exceptions. A slug and its status
are part of the wire contract.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streamydb import errors


class Problem(NamedTuple):
    """A problem type.

    Attributes:
        slug: its name: the last part of the type URI.
        status: the HTTP status of the answer.
        title: the type in a few words.
        when: what went wrong.
        retriable: the same request may succeed a moment later.
        uncertain: a transaction that was sent may have been appended nevertheless.
    """

    slug: str
    status: int
    title: str
    when: str
    retriable: bool = False
    uncertain: bool = False


_TABLE: Final = (
    Problem("invalid-json", 400, "The body is not JSON", "Not JSON (RFC 8259, UTF-8), NaN, lone "
            "surrogates, a number that does not fit."),
    Problem("invalid-parameter", 400, "A parameter makes no sense",
            "A query parameter, header or field of a body is malformed, unknown, repeated or "
            "contradicts another."),
    Problem("invalid-key", 400, "The key cannot be a key",
            "A key is empty, too long or not UTF-8."),
    Problem("query-invalid", 400, "The query cannot be run",
            "Not SQL, not of the kind that is taken, or it failed; `error` says why."),
    Problem("unauthorized", 401, "A token is needed",
            "No bearer token was sent, or not one that this facade knows."),
    Problem("forbidden", 403, "The token does not allow this",
            "The token's scopes do not cover a key or prefix of the request."),
    Problem("cross-origin", 403, "Requests of other web sites are refused",
            "A browser sent the request for a page of another origin, which the settings do not "
            "name."),
    Problem("key-not-found", 404, "There is no such key", "The key is absent in the snapshot."),
    Problem("transaction-unknown", 404, "No verdict was found",
            "No transaction with this id is known here: none was appended, or too long ago."),
    Problem("no-such-stream", 404, "There is no such stream",
            "The name is not module.stream, or no module of this name is deployed."),
    Problem("no-such-endpoint", 404, "There is no such endpoint", "The path names nothing."),
    Problem("method-not-allowed", 405, "The endpoint has no such method",
            "The header Allow names the methods."),
    Problem("body-timeout", 408, "The body did not arrive", "The request's body came too slowly.",
            retriable=True),
    Problem("slow-reader", 408, "The event stream was not read fast enough",
            "In event streams: the last event. Connect again with Last-Event-ID.", retriable=True),
    Problem("aborted", 409, "The transaction was aborted",
            "A write was executed and aborted for another reason than its condition; or others "
            "wrote what statements of SQL had read."),
    Problem("deadline-passed", 409, "The deadline has passed",
            "The record came to the log after its deadline, and this copy was not executed; if it "
            "was sent before, Location tells its verdict."),
    Problem("snapshot-gone", 410, "The snapshot is not kept any more",
            "`at` or a cursor names a seq older than what the read model keeps."),
    Problem("other-generation", 410, "The history is another one",
            "A version, cursor, event id or session is of another generation: the database was "
            "restored or forked, or has lost the end of its log; `generation` is the present one."),
    Problem("precondition-failed", 412, "The condition does not hold",
            "If-Match or If-None-Match does not hold for the key's version; nothing was written."),
    Problem("too-large", 413, "The request is too large",
            "A body, value, transaction or its number of keys is above a limit (GET /v1/limits)."),
    Problem("answer-too-large", 413, "The answer would be too large",
            "The values or rows that were asked for do not fit in one answer; ask for fewer."),
    Problem("uri-too-long", 414, "The address is too long", "Path and query are above a limit."),
    Problem("unsupported-media-type", 415, "The body is in a form that is not taken",
            "Content-Type, Content-Encoding or another header says that the body is something else "
            "than JSON in UTF-8."),
    Problem("expectation-failed", 417, "The expectation cannot be met",
            "The header Expect names something else than 100-continue."),
    Problem("misdirected", 421, "Not a host of this facade",
            "The header Host, or an absolute target, names another host than those the facade "
            "answers for."),
    Problem("invalid-transaction", 422, "The transaction cannot be executed",
            "`code` has the reason code of the verdict that it got, if there is a `seq`, or would "
            "get; nothing was written."),
    Problem("constraint-violated", 422, "A constraint does not allow this",
            "`constraint` names it, `violated` says what it demands; nothing was written."),
    Problem("query-costly", 422, "The query takes too much",
            "A query was ended because of its time or memory."),
    Problem("id-reused", 422, "The id was used for another payload",
            "Idempotency-Key or id was used shortly before with other content."),
    Problem("too-many-requests", 429, "This client has too much under way",
            "A client's own limit of transactions, event streams, queries or searches; see "
            "Retry-After.",
            retriable=True),
    Problem("headers-too-large", 431, "The headers are too large", "All headers together."),
    Problem("internal", 500, "A fault in streamy-db", "Please report it.", uncertain=True),
    Problem("queries-off", 501, "This facade runs no queries",
            "DuckDB is not installed where the facade runs, or queries are turned off."),
    Problem("overloaded", 503, "The facade is busy",
            "A limit of all clients together was reached; see Retry-After.", retriable=True),
    Problem("log-unavailable", 503, "The log cannot be reached",
            "Kafka does not answer; nothing was appended. See Retry-After.", retriable=True),
    Problem("read-model-behind", 503, "The read model is not there yet",
            "A strong, session or `at` read waited too long for the read model; see Retry-After.",
            retriable=True),
    Problem("not-ready", 503, "The facade is not ready",
            "It cannot serve what was asked for; see /health/ready.", retriable=True),
    Problem("verdict-unknown", 504, "The verdict is not known yet",
            "The transaction may be decided later: ask Location, or send the same bytes again.",
            retriable=True, uncertain=True),
)  # fmt: skip

PROBLEMS: Final[dict[str, Problem]] = {problem.slug: problem for problem in _TABLE}
"""Every problem type by its slug."""

_OF_REJECTION: Final = {
    errors.ID_REUSED: "id-reused",
    errors.DEADLINE_PASSED: "deadline-passed",
    errors.INVALID_JSON: "invalid-json",
    errors.NUMBER_RANGE: "invalid-json",
    errors.TOO_DEEP: "invalid-json",
    errors.INVALID_KEY: "invalid-key",
    errors.TRANSACTION_TOO_LARGE: "too-large",
    errors.VALUE_TOO_LARGE: "too-large",
    errors.TOO_MANY_KEYS: "too-large",
}


def problem_of_rejection(code: str) -> Problem:
    """Return the problem type of a record that was, or would be, rejected with a reason code."""
    return PROBLEMS[_OF_REJECTION.get(code, "invalid-transaction")]

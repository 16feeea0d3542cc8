"""One exception class for each problem type of the facade that is no abort (`aborts` has those)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streamydb import errors
from streamydb.client.aborts import ABORTS, AbortedError
from streamydb.client.errors import KINDS, RequestError
from streamydb.records.problems import problem_of_rejection

_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses of unknown problems after which the same request may succeed."""


class InvalidJsonError(RequestError, problem="invalid-json"):
    """A value is not JSON, or has a number that does not fit."""


class InvalidParameterError(RequestError, problem="invalid-parameter"):
    """A parameter is malformed or contradicts another."""


class InvalidKeyError(RequestError, problem="invalid-key"):
    """A key is empty, too long, or not Unicode text."""


class QueryInvalidError(RequestError, problem="query-invalid"):
    """It is not SQL, not of the kind that is taken, or it failed; `members["error"]` says why."""

    def __str__(self) -> str:
        return f"{super().__str__()} {self.members.get('error', '')}".rstrip()


class UnauthorizedError(RequestError, problem="unauthorized"):
    """No token was given, or one that the facade does not know."""


class ForbiddenError(RequestError, problem="forbidden"):
    """The token's scopes do not cover a key or prefix."""


class CrossOriginError(RequestError, problem="cross-origin"):
    """A browser sent the request for another web site."""


class KeyNotFoundError(RequestError, problem="key-not-found"):
    """The key is absent (`get` returns its default instead)."""


class TransactionUnknownError(RequestError, problem="transaction-unknown"):
    """No verdict of this id was found: not appended, not decided yet, or too long ago."""


class NoSuchStreamError(RequestError, problem="no-such-stream"):
    """The name is not `module.stream`, or no such module is deployed."""


class NoSuchEndpointError(RequestError, problem="no-such-endpoint"):
    """The address is not a facade's, or of one that is older than this client."""


class MethodNotAllowedError(RequestError, problem="method-not-allowed"):
    """The address is not a facade's, or of one that is older than this client."""


class BodyTimeoutError(RequestError, problem="body-timeout"):
    """The request's body came too slowly."""


class SlowReaderError(RequestError, problem="slow-reader"):
    """The changes were not read fast enough (`watch` connects again by itself)."""


class OtherGenerationError(RequestError, problem="other-generation"):
    """The database was restored or forked since: what this client had seen is of another history.

    The client has forgotten its session; the next call is one of the present history.
    """


class SnapshotGoneError(RequestError, problem="snapshot-gone"):
    """The snapshot is older than what the read model keeps."""


class TooLargeError(RequestError, problem="too-large"):
    """A value, a transaction, or its number of keys is above a limit."""


class AnswerTooLargeError(RequestError, problem="answer-too-large"):
    """The value of a key does not fit in an answer of the facade."""


class UriTooLongError(RequestError, problem="uri-too-long"):
    """Prefix and bounds of a scan are too long for an address."""


class UnsupportedMediaTypeError(RequestError, problem="unsupported-media-type"):
    """A header says that the body is something else than JSON in UTF-8."""


class ExpectationFailedError(RequestError, problem="expectation-failed"):
    """The header Expect names something else than 100-continue."""


class MisdirectedError(RequestError, problem="misdirected"):
    """The facade does not answer for the host in the URL."""


class InvalidTransactionError(RequestError, problem="invalid-transaction"):
    """The transaction cannot be executed; `code` says why. It is not in the log."""


class QueryCostlyError(RequestError, problem="query-costly"):
    """The query took too long or too much memory, and was ended."""


class QueriesOffError(RequestError, problem="queries-off"):
    """There is no DuckDB where the query should run, or queries are turned off there."""


class DeadlinePassedError(RequestError, problem="deadline-passed"):
    """The transaction was not executed, and will not be: it came to the log after its deadline.

    Begin again with a new one. If that happens at once, this machine's clock is slow.
    """


class IdReusedError(RequestError, problem="id-reused"):
    """The id was used shortly before by a transaction with other bytes."""


class TooManyRequestsError(RequestError, problem="too-many-requests"):
    """This client has too much under way."""


class HeadersTooLargeError(RequestError, problem="headers-too-large"):
    """The headers, such as the token, are too large."""


class InternalError(RequestError, problem="internal"):
    """A fault in the facade. Please report it."""


class OverloadedError(RequestError, problem="overloaded"):
    """The facade is busy."""


class LogUnavailableError(RequestError, problem="log-unavailable"):
    """Kafka does not answer; nothing was appended."""


class ReadModelBehindError(RequestError, problem="read-model-behind"):
    """The read model did not come as far as the read demands in the time allowed."""


class NotReadyError(RequestError, problem="not-ready"):
    """The facade's read model or Kafka is missing."""


class VerdictUnknownError(RequestError, problem="verdict-unknown"):
    """The verdict is not known yet (the client asks on, then raises `OutcomeUnknownError`)."""


def problem(
    slug: str, status: int, detail: str, retry_after_s: float, members: Mapping[str, Any]
) -> RequestError:
    """Return the exception of a problem that a facade answered."""
    kind = KINDS.get(slug)
    if kind is AbortedError:
        kind = ABORTS.get(members.get("code", ""), AbortedError)
    error = (kind or RequestError)(detail, retry_after_s=retry_after_s, members=members)
    if kind is None:
        error.slug, error.status = slug, status
        error.retriable, error.uncertain = status in _PASSING, status >= 500
    return error


def refusal(code: str, detail: str | None = None, txn_id: str | None = None) -> RequestError:
    """Return the exception of a record that was, or would be, rejected with a reason code."""
    kind = KINDS[problem_of_rejection(code).slug]
    text = detail or errors.REJECTED_CODES.get(code, code)
    return kind(text, members={"code": code} | ({} if txn_id is None else {"id": txn_id}))

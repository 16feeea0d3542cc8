"""One exception class for each problem type of the facade, and for each reason code of an abort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from streamydb import errors
from streamydb.client.errors import KINDS, RequestError
from streamydb.records import Failed, Result, decode_value
from streamydb.records.problems import problem_of_rejection

ABORTS: Final[dict[str, type[AbortedError]]] = {}
"""Reason code of an abort -> its class; each class enters itself."""


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that did not hold, or the update that could not be made.

    Attributes:
        check: the list it stands in: assert, check or update; or constraint, lock, or range.
        index: its place in that list.
        key: the key.
        value: the key's actual value; None if it was absent, too long, or not to be read.
        version: the key's actual version; 0 if it was absent.
        truncated: whether the value is left out.
        constraint: the constraint that is violated; `value` is what would be there.
        violated: its rule.
        count: keys of a range, whose prefix or start is `key` and highest version `version`.
    """

    check: str
    index: int
    key: str
    value: Any
    version: int
    truncated: bool
    constraint: str | None = None
    violated: str | None = None
    count: int | None = None


class AbortedError(RequestError, problem="aborted"):
    """The transaction was executed and aborted: nothing was written.

    Attributes:
        code: why, one of the reason codes of docs/semantics.md.
        failed: the checks that did not hold, or the update that could not be made.
        seq: the transaction's place in the order; 0 if it is not known.
        reason: why its call aborted; None without a call.
    """

    def __init_subclass__(cls, *, code: str | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        if code is not None:
            ABORTS[code] = cls

    def __init__(
        self,
        detail: str,
        *,
        retry_after_s: float = 0,
        members: Mapping[str, Any] | None = None,
        failed: Sequence[FailedCheck] = (),
    ) -> None:
        super().__init__(detail, retry_after_s=retry_after_s, members=members)
        self.failed = tuple(failed)
        self.seq: int = self.members.get("seq", 0)
        self.reason: str | None = self.members.get("reason")


class CheckFailedError(AbortedError, problem="precondition-failed", code=errors.CHECK_FAILED):
    """A check or assert does not hold; `failed` lists those that do not."""


class ConflictError(CheckFailedError):
    """A function under `run` met a conflict in every attempt it was allowed."""


class BoundViolatedError(AbortedError, code=errors.BOUND_VIOLATED):
    """The result of an add is below its min or above its max."""


class NotANumberError(AbortedError, code=errors.NOT_A_NUMBER):
    """An add, max, min or next_id met a value that is not a (whole) number."""


class NotAListError(AbortedError, code=errors.NOT_A_LIST):
    """An append met a value that is not a list."""


class NumberOverflowError(AbortedError, code=errors.OVERFLOW):
    """The result of an add or next_id leaves 64 bits, or is not finite."""


class ValueTooLargeError(AbortedError, code=errors.VALUE_TOO_LARGE):
    """An append would make the value too large."""


class ValuesTooLargeError(AbortedError, code=errors.VALUES_TOO_LARGE):
    """The values of all the keys that it touches are too many bytes together."""


class RangeTooLargeError(AbortedError, code=errors.RANGE_TOO_LARGE):
    """The ranges that it names hold too many keys together."""


class ResultTooLargeError(AbortedError, code=errors.RESULT_TOO_LARGE):
    """The values that were read do not fit in one result record."""


class UnknownProcedureError(AbortedError, code=errors.UNKNOWN_PROCEDURE):
    """The module is not deployed, or has no such procedure."""


class ProcedureAbortedError(AbortedError, code=errors.PROCEDURE_ABORTED):
    """The procedure raised `Abort`; `reason` is what it said."""


class ProcedureFailedError(AbortedError, code=errors.PROCEDURE_ERROR):
    """The procedure raised another exception; `reason` names its class."""


class UndeclaredKeyError(AbortedError, code=errors.UNDECLARED_KEY):
    """A key was touched that the transaction does not name; `reason` does."""


class PrivateKeyError(AbortedError, code=errors.RESERVED_KEY):
    """The procedure touched a key that only workflows and windows use."""


class UnknownStreamError(AbortedError, code=errors.UNKNOWN_STREAM):
    """The procedure emitted to a stream that its workflow does not give it."""


class NotTheOwnerError(AbortedError, code=errors.NOT_THE_OWNER):
    """The procedure asked for a window that is not its own."""


class FollowUpRefusedError(AbortedError, code=errors.FOLLOW_UP_REFUSED):
    """A follow-up could not be made; `reason` names its procedure and why."""


class BatchRepeatedError(AbortedError, code=errors.BATCH_REPEATED):
    """A copy of a follow-up that was executed before."""


class BatchEarlyError(AbortedError, code=errors.BATCH_EARLY):
    """A follow-up that came before an earlier one; it comes again."""


class BudgetExceededError(AbortedError, code=errors.BUDGET_EXCEEDED):
    """The procedure used up a bound on its work; `reason` names the bound."""


class ConstraintViolatedError(
    AbortedError, problem="constraint-violated", code=errors.CONSTRAINT_VIOLATED
):
    """A constraint does not allow what would be written.

    `constraint`, `key` and `violated` say which one.
    """

    def __str__(self) -> str:
        return f"{super().__str__()} {self.members.get('error', '')}".rstrip()

    @property
    def constraint(self) -> str | None:
        """The name of the first constraint that is violated."""
        return self._text("constraint")

    @property
    def key(self) -> str | None:
        """The key whose value violates it."""
        return self._text("key")

    @property
    def violated(self) -> str | None:
        """The rule, and where in the value."""
        return self._text("violated")

    def _text(self, name: str) -> str | None:
        text = getattr(self.failed[0], name) if self.failed else self.members.get(name)
        return text if isinstance(text, str) else None


class ConstraintRefusedError(AbortedError, code=errors.CONSTRAINT_REFUSED):
    """A constraint cannot be declared, dropped or validated; `reason` says why."""


class ExecutionFailedError(AbortedError, code=errors.INTERNAL):
    """A fault in streamy-db while it executed this transaction. Please report it."""


def abort(result: Result) -> AbortedError:
    code = result.code or ""
    kind = ABORTS.get(code, AbortedError)
    failed = [_failed(entry) for entry in result.failed]
    keys = ", ".join(repr(entry.key) for entry in failed[:3]) + (", …" if len(failed) > 3 else "")
    detail = errors.ABORTED_CODES.get(code, code) + (f" (keys: {keys})" if failed else "")
    named = [f"{e.constraint}: {e.violated}" for e in failed[:3] if e.constraint is not None]
    detail += f" ({'; '.join(named)})" if named else ""
    members = {"code": code, "id": result.id, "seq": result.seq}
    if result.reason is not UNSET:
        members["reason"] = result.reason
        detail += f" (reason: {result.reason})"
    return kind(detail, members=members, failed=failed)


def _failed(entry: Failed) -> FailedCheck:
    return FailedCheck(
        check=entry.check,
        index=entry.index,
        key=entry.key,
        value=decode_value(bytes(entry.value)),
        version=entry.version,
        truncated=entry.truncated is not UNSET,
        constraint=None if entry.constraint is UNSET else entry.constraint,
        violated=None if entry.violated is UNSET else entry.violated,
        count=None if entry.count is UNSET else entry.count,
    )


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

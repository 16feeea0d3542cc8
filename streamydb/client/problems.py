"""One exception class for each problem type of the facade and for each reason code of an abort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from streamydb import errors
from streamydb.client.errors import RequestError
from streamydb.records import Failed, Result, decode_value

_CODES_TOO_LARGE: Final = {
    errors.TRANSACTION_TOO_LARGE, errors.VALUE_TOO_LARGE, errors.TOO_MANY_KEYS,
}  # fmt: skip
_CODES_INVALID_JSON: Final = {errors.INVALID_JSON, errors.NUMBER_RANGE, errors.TOO_DEEP}


_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses of unknown problems after which the same request may succeed."""


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that did not hold, or the update that could not be made.

    Attributes:
        check: the list it stands in: assert, check or update; or constraint, or lock.
        index: its place in that list.
        key: the key.
        value: the key's actual value; None if it was absent, too long, or not to be read.
        version: the key's actual version; 0 if it was absent.
        truncated: whether the value is left out.
        constraint: the constraint that is violated; `value` is what would be there.
        violated: its rule.
    """

    check: str
    index: int
    key: str
    value: Any
    version: int
    truncated: bool
    constraint: str | None = None
    violated: str | None = None


class InvalidJsonError(RequestError):
    """A value is not JSON, is null, or has a number that does not fit."""

    slug, status = "invalid-json", 400


class InvalidParameterError(RequestError):
    """A parameter is malformed or contradicts another."""

    slug, status = "invalid-parameter", 400


class InvalidKeyError(RequestError):
    """A key is empty, too long, or not Unicode text."""

    slug, status = "invalid-key", 400


class QueryInvalidError(RequestError):
    """It is not one SELECT, not SQL, or it failed; `members["error"]` has what DuckDB says."""

    slug, status = "query-invalid", 400

    def __str__(self) -> str:
        """Show DuckDB's message as well."""
        return f"{super().__str__()} {self.members.get('error', '')}".rstrip()


class UnauthorizedError(RequestError):
    """No token was given, or one that the facade does not know."""

    slug, status = "unauthorized", 401


class ForbiddenError(RequestError):
    """The token's scopes do not cover a key or prefix."""

    slug, status = "forbidden", 403


class CrossOriginError(RequestError):
    """A browser sent the request for another web site."""

    slug, status = "cross-origin", 403


class KeyNotFoundError(RequestError):
    """The key is absent (`get` returns its default instead)."""

    slug, status = "key-not-found", 404


class TransactionUnknownError(RequestError):
    """No verdict of this id was found: not appended, not decided yet, or too long ago."""

    slug, status = "transaction-unknown", 404


class NoSuchStreamError(RequestError):
    """The name is not `module.stream`, or no such module is deployed."""

    slug, status = "no-such-stream", 404


class NoSuchEndpointError(RequestError):
    """The address is not a facade's, or of one that is older than this client."""

    slug, status = "no-such-endpoint", 404


class MethodNotAllowedError(RequestError):
    """The address is not a facade's, or of one that is older than this client."""

    slug, status = "method-not-allowed", 405


class BodyTimeoutError(RequestError):
    """The request's body came too slowly."""

    slug, status, retriable = "body-timeout", 408, True


class SlowReaderError(RequestError):
    """The changes were not read fast enough (`watch` connects again by itself)."""

    slug, status, retriable = "slow-reader", 408, True


class AbortedError(RequestError):
    """The transaction was executed and aborted: nothing was written.

    Attributes:
        code: why, one of the reason codes of docs/semantics.md.
        failed: the checks that did not hold, or the update that could not be made.
        seq: the transaction's place in the order; 0 if it is not known.
        reason: why its call aborted; None without a call.
    """

    slug, status = "aborted", 409

    def __init__(
        self,
        detail: str,
        *,
        retry_after_s: float = 0,
        members: Mapping[str, Any] | None = None,
        failed: Sequence[FailedCheck] = (),
    ) -> None:
        """Keep the failed checks."""
        super().__init__(detail, retry_after_s=retry_after_s, members=members)
        self.failed = tuple(failed)
        self.seq: int = self.members.get("seq", 0)
        self.reason: str | None = self.members.get("reason")


class SnapshotGoneError(RequestError):
    """The snapshot is older than what the read model keeps."""

    slug, status = "snapshot-gone", 410


class CheckFailedError(AbortedError):
    """A check or assert does not hold; `failed` lists those that do not."""

    slug, status = "precondition-failed", 412


class ConflictError(CheckFailedError):
    """A function under `run` met a conflict in every attempt it was allowed."""


class TooLargeError(RequestError):
    """A value, a transaction, or its number of keys is above a limit."""

    slug, status = "too-large", 413


class AnswerTooLargeError(RequestError):
    """The value of a key does not fit in an answer of the facade."""

    slug, status = "answer-too-large", 413


class UriTooLongError(RequestError):
    """Prefix and bounds of a scan are too long for an address."""

    slug, status = "uri-too-long", 414


class MisdirectedError(RequestError):
    """The facade does not answer for the host in the URL."""

    slug, status = "misdirected", 421


class InvalidTransactionError(RequestError):
    """The transaction cannot be executed; `code` says why. It is not in the log."""

    slug, status = "invalid-transaction", 422


class QueryCostlyError(RequestError):
    """The query took too long or too much memory, and was ended."""

    slug, status = "query-costly", 422


class QueriesOffError(RequestError):
    """There is no DuckDB where the query should run, or queries are turned off there."""

    slug, status = "queries-off", 501


class DeadlinePassedError(RequestError):
    """The transaction was not executed, and will not be: it came to the log after its deadline.

    Begin again with a new one. If that happens at once, this machine's clock is slow.
    """

    slug, status = "deadline-passed", 409


class IdReusedError(RequestError):
    """The id was used shortly before by a transaction with other bytes."""

    slug, status = "id-reused", 422


class TooManyRequestsError(RequestError):
    """This client has too much under way."""

    slug, status, retriable = "too-many-requests", 429, True


class HeadersTooLargeError(RequestError):
    """The headers, such as the token, are too large."""

    slug, status = "headers-too-large", 431


class InternalError(RequestError):
    """A fault in the facade. Please report it."""

    slug, status, uncertain = "internal", 500, True


class OverloadedError(RequestError):
    """The facade is busy."""

    slug, status, retriable = "overloaded", 503, True


class LogUnavailableError(RequestError):
    """Kafka does not answer; nothing was appended."""

    slug, status, retriable = "log-unavailable", 503, True


class ReadModelBehindError(RequestError):
    """The read model did not come as far as the read demands in the time allowed."""

    slug, status, retriable = "read-model-behind", 503, True


class NotReadyError(RequestError):
    """The facade's read model or Kafka is missing."""

    slug, status, retriable = "not-ready", 503, True


class VerdictUnknownError(RequestError):
    """The verdict is not known yet (the client asks on, then raises `OutcomeUnknownError`)."""

    slug, status, retriable, uncertain = "verdict-unknown", 504, True, True


class BoundViolatedError(AbortedError):
    """The result of an add is below its min or above its max."""


class NotANumberError(AbortedError):
    """An add, max, min or next_id met a value that is not a (whole) number."""


class NotAListError(AbortedError):
    """An append met a value that is not a list."""


class NumberOverflowError(AbortedError):
    """The result of an add or next_id leaves 64 bits, or is not finite."""


class ValueTooLargeError(AbortedError):
    """An append would make the value too large."""


class ValuesTooLargeError(AbortedError):
    """The values of all the keys that it touches are too many bytes together."""


class ResultTooLargeError(AbortedError):
    """The values that were read do not fit in one result record."""


class UnknownProcedureError(AbortedError):
    """The module is not deployed, or has no such procedure."""


class ProcedureAbortedError(AbortedError):
    """The procedure raised `Abort`; `reason` is what it said."""


class ProcedureFailedError(AbortedError):
    """The procedure raised another exception; `reason` names its class."""


class UndeclaredKeyError(AbortedError):
    """A key was touched that the transaction does not name; `reason` does."""


class PrivateKeyError(AbortedError):
    """The procedure touched a key that only workflows and windows use."""


class UnknownStreamError(AbortedError):
    """The procedure emitted to a stream that its workflow does not give it."""


class NotTheOwnerError(AbortedError):
    """The procedure asked for a window that is not its own."""


class FollowUpRefusedError(AbortedError):
    """A follow-up could not be made; `reason` names its procedure and why."""


class BatchRepeatedError(AbortedError):
    """A copy of a follow-up that was executed before."""


class BatchEarlyError(AbortedError):
    """A follow-up that came before an earlier one; it comes again."""


class BudgetExceededError(AbortedError):
    """The procedure used up a bound on its work; `reason` names the bound."""


class ConstraintViolatedError(AbortedError):
    """A constraint does not allow what would be written; `constraint`, `key`, `violated` say which.
    """

    slug, status = "constraint-violated", 422

    @property
    def constraint(self) -> str | None:
        """The name of the first constraint that is violated."""
        found = self.failed[0].constraint if self.failed else self.members.get("constraint")
        return found if isinstance(found, str) else None

    @property
    def key(self) -> str | None:
        """The key whose value violates it."""
        found = self.failed[0].key if self.failed else self.members.get("key")
        return found if isinstance(found, str) else None

    @property
    def violated(self) -> str | None:
        """The rule, and where in the value."""
        found = self.failed[0].violated if self.failed else self.members.get("violated")
        return found if isinstance(found, str) else None


class ConstraintRefusedError(AbortedError):
    """A constraint cannot be declared, dropped or validated; `reason` says why."""


class ExecutionFailedError(AbortedError):
    """A fault in streamy-db while it executed this transaction. Please report it."""


ABORTS: Final[dict[str, type[AbortedError]]] = {
    errors.CHECK_FAILED: CheckFailedError,
    errors.BOUND_VIOLATED: BoundViolatedError,
    errors.NOT_A_NUMBER: NotANumberError,
    errors.NOT_A_LIST: NotAListError,
    errors.OVERFLOW: NumberOverflowError,
    errors.VALUE_TOO_LARGE: ValueTooLargeError,
    errors.RESULT_TOO_LARGE: ResultTooLargeError,
    errors.VALUES_TOO_LARGE: ValuesTooLargeError,
    errors.UNKNOWN_PROCEDURE: UnknownProcedureError,
    errors.PROCEDURE_ABORTED: ProcedureAbortedError,
    errors.PROCEDURE_ERROR: ProcedureFailedError,
    errors.UNDECLARED_KEY: UndeclaredKeyError,
    errors.BUDGET_EXCEEDED: BudgetExceededError,
    errors.RESERVED_KEY: PrivateKeyError,
    errors.UNKNOWN_STREAM: UnknownStreamError,
    errors.NOT_THE_OWNER: NotTheOwnerError,
    errors.FOLLOW_UP_REFUSED: FollowUpRefusedError,
    errors.BATCH_REPEATED: BatchRepeatedError,
    errors.BATCH_EARLY: BatchEarlyError,
    errors.CONSTRAINT_VIOLATED: ConstraintViolatedError,
    errors.CONSTRAINT_REFUSED: ConstraintRefusedError,
    errors.INTERNAL: ExecutionFailedError,
}
"""Reason code of an abort -> its class."""


def _types() -> dict[str, type[RequestError]]:
    """The classes that stand for a problem type themselves, not for a kind of one."""
    named: list[type[RequestError]] = [*RequestError.__subclasses__(), CheckFailedError,
                                      ConstraintViolatedError]  # fmt: skip
    return {kind.slug: kind for kind in named}


PROBLEMS: Final[dict[str, type[RequestError]]] = _types()
"""Slug of a problem type -> its class."""


def problem(
    slug: str, status: int, detail: str, retry_after_s: float, members: Mapping[str, Any]
) -> RequestError:
    """Return the exception of a problem that a facade answered."""
    kind = PROBLEMS.get(slug)
    if kind is AbortedError:
        kind = ABORTS.get(members.get("code", ""), AbortedError)
    error = (kind or RequestError)(detail, retry_after_s=retry_after_s, members=members)
    if kind is None:
        error.slug, error.status = slug, status
        error.retriable, error.uncertain = status in _PASSING, status >= 500
    return error


def refusal(code: str, detail: str | None = None, txn_id: str | None = None) -> RequestError:
    """Return the exception of a record that was, or would be, rejected with a reason code."""
    kind: type[RequestError] = InvalidTransactionError
    if code == errors.ID_REUSED:
        kind = IdReusedError
    elif code == errors.DEADLINE_PASSED:
        kind = DeadlinePassedError
    elif code in _CODES_INVALID_JSON:
        kind = InvalidJsonError
    elif code in _CODES_TOO_LARGE:
        kind = TooLargeError
    text = detail or errors.REJECTED_CODES.get(code, code)
    return kind(text, members={"code": code} | ({} if txn_id is None else {"id": txn_id}))


def abort(result: Result) -> AbortedError:
    """Return the exception of a verdict `aborted`."""
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
    """A failed check with its value decoded."""
    return FailedCheck(
        check=entry.check,
        index=entry.index,
        key=entry.key,
        value=decode_value(bytes(entry.value)),
        version=entry.version,
        truncated=entry.truncated is not UNSET,
        constraint=None if entry.constraint is UNSET else entry.constraint,
        violated=None if entry.violated is UNSET else entry.violated,
    )

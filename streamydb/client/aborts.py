"""One exception class for each reason code of an abort, and what makes them of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from streamydb import errors
from streamydb.client.errors import RequestError
from streamydb.records import Failed, Result, decode_value

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


class ConstraintRefusedError(AbortedError, code=errors.CONSTRAINT_REFUSED):
    """A constraint cannot be declared, dropped or validated; `reason` says why."""


class ExecutionFailedError(AbortedError, code=errors.INTERNAL):
    """A fault in streamy-db while it executed this transaction. Please report it."""


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

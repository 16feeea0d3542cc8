"""Exceptions and reason codes: every refusal, in one place.

A *reason code* is what a client sees in the ``code`` field of a result. Codes are stable: they are
part of the wire contract, and no text of a library ever reaches an output. An *exception* is what a
caller of the Python API sees; its message says what happened, where, and what to do next.
"""

from __future__ import annotations

from typing import Final

INVALID_JSON: Final = "invalid-json"
INVALID_TRANSACTION: Final = "invalid-transaction"
INVALID_ID: Final = "invalid-id"
INVALID_KEY: Final = "invalid-key"
NULL_VALUE: Final = "null-value"
NUMBER_RANGE: Final = "number-range"
TOO_DEEP: Final = "too-deep"
TRANSACTION_TOO_LARGE: Final = "transaction-too-large"
TOO_MANY_KEYS: Final = "too-many-keys"
VALUE_TOO_LARGE: Final = "value-too-large"
DUPLICATE_UPDATE: Final = "duplicate-update"
RESERVED_KEY: Final = "reserved-key"
CALL_NOT_ALONE: Final = "call-not-alone"
ID_REUSED: Final = "id-reused"
RESERVED_ID: Final = "reserved-id"
DEADLINE_PASSED: Final = "deadline-passed"
DEADLINE_TOO_FAR: Final = "deadline-too-far"

CHECK_FAILED: Final = "check-failed"
BOUND_VIOLATED: Final = "bound-violated"
NOT_A_NUMBER: Final = "not-a-number"
NOT_A_LIST: Final = "not-a-list"
OVERFLOW: Final = "overflow"
RESULT_TOO_LARGE: Final = "result-too-large"
VALUES_TOO_LARGE: Final = "values-too-large"
RANGE_TOO_LARGE: Final = "range-too-large"
UNKNOWN_PROCEDURE: Final = "unknown-procedure"
PROCEDURE_ABORTED: Final = "procedure-aborted"
PROCEDURE_ERROR: Final = "procedure-error"
UNDECLARED_KEY: Final = "undeclared-key"
BUDGET_EXCEEDED: Final = "budget-exceeded"
UNKNOWN_STREAM: Final = "unknown-stream"
NOT_THE_OWNER: Final = "not-the-owner"
FOLLOW_UP_REFUSED: Final = "follow-up-refused"
BATCH_REPEATED: Final = "batch-repeated"
BATCH_EARLY: Final = "batch-early"
CONSTRAINT_VIOLATED: Final = "constraint-violated"
CONSTRAINT_REFUSED: Final = "constraint-refused"
INTERNAL: Final = "internal"

REJECTED_CODES: Final[dict[str, str]] = {
    INVALID_JSON: "The record is empty or not JSON (RFC 8259, UTF-8, no lone surrogates).",
    INVALID_TRANSACTION: "Not a transaction: a field is missing, unknown or of another type.",
    INVALID_ID: "The id is missing, not a string, empty, too long, or has a control character.",
    INVALID_KEY: "A key is not a string, is empty, or is too long.",
    NULL_VALUE: "The record has no value (a tombstone), or a put stores null; use delete.",
    NUMBER_RANGE: "An integer does not fit in 64 bits, or a number is beyond a double.",
    TOO_DEEP: "Arrays and objects are nested too deeply.",
    TRANSACTION_TOO_LARGE: "The record has too many bytes.",
    TOO_MANY_KEYS: "The transaction touches too many different keys and ranges.",
    VALUE_TOO_LARGE: "A value has too many bytes in its canonical form.",
    DUPLICATE_UPDATE: "Two updates name the same key.",
    RESERVED_KEY: "A key that begins with `$` is written; only the database writes those.",
    CALL_NOT_ALONE: "A call, deploy or constrain stands beside updates, or beside another.",
    RESERVED_ID: "An id begins with `$flow/` and is no follow-up's, or the other way round.",
    ID_REUSED: "The id was used shortly before by a transaction with other bytes.",
    DEADLINE_PASSED: "The record was appended after its deadline; this copy was not executed.",
    DEADLINE_TOO_FAR: "The deadline is too far ahead of the commit time (see the limits).",
}
"""Codes of results with status ``rejected``: nothing was executed, and the id was not used."""

UNTIMELY: Final = frozenset({DEADLINE_PASSED, DEADLINE_TOO_FAR})
"""Codes of copies that came at the wrong time: another copy of the record may have been executed.
"""

ABORTED_CODES: Final[dict[str, str]] = {
    CHECK_FAILED: "An assert or a check does not hold; `failed` lists those that do not.",
    BOUND_VIOLATED: "The result of an add is below its min or above its max.",
    NOT_A_NUMBER: "An add, max, min or next_id met a value that is not a (whole) number.",
    NOT_A_LIST: "An append met a value that is not a list.",
    OVERFLOW: "The result of an add or next_id leaves 64 bits, or is not finite.",
    VALUE_TOO_LARGE: "An append, or a write of a procedure, would make the value too large.",
    RESULT_TOO_LARGE: "What was read and returned does not fit in one result record.",
    VALUES_TOO_LARGE: "The values of all the keys that it touches are too many bytes together.",
    RANGE_TOO_LARGE: "The ranges that it names hold too many keys together, or a call's too much.",
    UNKNOWN_PROCEDURE: "The module is not deployed, or has no such procedure.",
    PROCEDURE_ABORTED: "The procedure raised `Abort`; `reason` is what it said.",
    PROCEDURE_ERROR: "The procedure raised another exception; `reason` names its class.",
    UNDECLARED_KEY: "A key was touched that the transaction does not name; `reason` does.",
    BUDGET_EXCEEDED: "The procedure used up a bound on its work; `reason` names the bound.",
    RESERVED_KEY: "The procedure touched a key that only workflows and windows use.",
    UNKNOWN_STREAM: "The procedure emitted to a stream that its workflow does not give it.",
    NOT_THE_OWNER: "The procedure asked for a window that is not its own.",
    FOLLOW_UP_REFUSED: "A follow-up could not be made; `reason` names its procedure and why.",
    BATCH_REPEATED: "A copy of a follow-up that was executed before; nothing is done again.",
    BATCH_EARLY: "A follow-up came before an earlier one; it is appended again after that.",
    CONSTRAINT_VIOLATED: "A constraint does not allow what would be written; see `failed`.",
    CONSTRAINT_REFUSED: "The constraint cannot be declared or dropped; `reason` says why.",
    INTERNAL: "A fault in streamy-db itself; a dead letter was written. Please report it.",
}
"""Codes of results with status ``aborted``: executed, and nothing was written."""


def install(extra: str, folder: str = ".") -> str:
    """Return the command that installs an extra; streamy-db is in no package registry.

    Args:
        extra: of the distribution.
        folder: of the distribution in a checkout: streamydb, or ``./layers``.
    """
    return f"pip install '{folder}[{extra}]' in a checkout of streamy-db, or the same of its wheel"


class StreamyError(Exception):
    """Base of all exceptions that streamy-db raises on purpose."""


class ConfigurationError(StreamyError):
    """A setting, topic or folder is not as it must be; the message has the exact fix."""


class InvariantViolation(StreamyError):  # noqa: N818 - named for what it is
    """Something that cannot be true is: the query stops rather than write a wrong value."""


class ModuleMissing(ConfigurationError):  # noqa: N818 - what is the case, not an error of ours
    """A module that the log names is not on this machine, or this release refuses it.

    The query stops: an abort would make the outcome depend on a folder instead of the log.
    """


class RecordError(StreamyError):
    """Bytes that were read are not a record of the expected kind."""


class ValueRejected(StreamyError):  # noqa: N818 - the verb of the wire contract
    """A Python object is not a value; ``code`` is the reason code of a transaction with it."""

    def __init__(self, code: str, message: str) -> None:
        """Keep the reason ``code`` beside the message."""
        super().__init__(message)
        self.code = code


class ReadModelError(StreamyError):
    """Base of what a read model raises."""


class SnapshotError(StreamyError):
    """A folder is no snapshot, a damaged one, or none can be taken."""

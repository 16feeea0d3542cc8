"""The instruction set into which a transaction is compiled.

A transaction becomes a run of steps: its comparisons, its reads and its updates, in payload order,
each on one of the transaction's keys. Steps hold integers and one operand text, so that a whole
plan is a few columns and one kernel executes it. What does not fit (procedures, floats, lists)
stays a payload, and the generic executor runs it against the same slots.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from streamydb import errors
from streamydb.frames.table import Bytes, ColumnTable, Ragged

# Kinds of records.
SIMPLE: Final = 0
GENERIC: Final = 1
REJECTED: Final = 2
MARKER: Final = 3

# Tags of values in slots and steps.
ABSENT: Final = 0
INT: Final = 1
OPAQUE: Final = 2
EXPIRING: Final = 3
"""The number is when it ends (commit time in ms), the text its canonical bytes. Not in steps."""

# How a transaction touches a key: 0: it reads it, 1: it may write it, ENDING: and say when it ends.
ENDING: Final = 2

# Comparisons that belong to `asserts` (A_EQ) and to `checks` (the others).
A_EQ: Final = 1
C_EQ: Final = 2
C_NE: Final = 3
C_VERSION: Final = 4
C_EXISTS: Final = 5
C_LT: Final = 6
C_LE: Final = 7
C_GT: Final = 8
C_GE: Final = 9
LAST_CHECK: Final = 9
# Comparisons of a range: the operand has its bounds, `low` what is compared.
R_COUNT: Final = 10
R_COUNT_LE: Final = 11
R_COUNT_GE: Final = 12
R_EXISTS: Final = 13
R_VERSION_LE: Final = 14
FIRST_OF_RANGE: Final = 10
LAST_OF_RANGE: Final = 14
READ: Final = 16
FIRST_UPDATE: Final = 32
PUT: Final = 32
DELETE: Final = 33
ADD: Final = 34
MAX: Final = 35
MIN: Final = 36
NEXT_ID: Final = 37

# Flags of a step.
HAS_OPERAND: Final = 1
HAS_LOW: Final = 2
HAS_HIGH: Final = 4

# Outcomes of an executed transaction: 0 committed, else an index into ABORT_CODES (the kernel's
# first).
COMMITTED: Final = 0
ABORT_CODES: Final = (
    "", errors.CHECK_FAILED, errors.BOUND_VIOLATED, errors.OVERFLOW, errors.NOT_A_NUMBER,
    errors.NOT_A_LIST, errors.VALUE_TOO_LARGE, errors.RESULT_TOO_LARGE, errors.INTERNAL,
    errors.UNKNOWN_PROCEDURE, errors.PROCEDURE_ABORTED, errors.PROCEDURE_ERROR,
    errors.UNDECLARED_KEY, errors.BUDGET_EXCEEDED, errors.RESERVED_KEY, errors.UNKNOWN_STREAM,
    errors.NOT_THE_OWNER, errors.FOLLOW_UP_REFUSED, errors.BATCH_REPEATED, errors.BATCH_EARLY,
    errors.CONSTRAINT_VIOLATED, errors.CONSTRAINT_REFUSED, errors.VALUES_TOO_LARGE,
    errors.RANGE_TOO_LARGE,
)  # fmt: skip
_LATE_CODES: Final = (
    errors.CALL_NOT_ALONE, errors.RESERVED_ID, errors.DEADLINE_PASSED, errors.DEADLINE_TOO_FAR,
)  # fmt: skip
REJECT_CODES: Final = (
    *(code for code in errors.REJECTED_CODES if code not in _LATE_CODES),
    errors.INTERNAL,
    *_LATE_CODES,
)
"""Codes by the number that stands for them in blocks and states: new ones go to the end."""


def _structure(**columns: str) -> np.dtype[Any]:
    """The dtype of rows with these columns, in order."""
    return np.dtype(list(columns.items()))


STEP: Final = _structure(
    a="<i8", low="<i8", high="<i8", key="<i4", index="<i4", op="u1", flags="u1", tag="u1",
    pad="u1", spare="<i4",
)  # fmt: skip
STEP_FORMAT: Final = "<qqqiiBBBBi"


def bounds_operand(bounds: tuple[bytes, bytes]) -> bytes:
    """Return the operand of a step that compares a range."""
    first, last = bounds
    return _LENGTH.pack(len(first)) + first + last


def operand_bounds(operand: bytes) -> tuple[bytes, bytes]:
    """Return the bounds in the operand of a step."""
    (length,) = _LENGTH.unpack_from(operand)
    at = _LENGTH.size + length
    return operand[_LENGTH.size : at], operand[at:]


_LENGTH: Final = struct.Struct("<i")


# A value: what a key holds, or held before a write. `ref` points into the pool of texts.
SLOT: Final = _structure(
    version="<i8", number="<i8", ref="<i8", tag="u1", dirty="u1", pad="<i2", spare="<i4"
)
# A write in order: the value before and after.
WRITE: Final = _structure(
    txn="<i4", slot="<i4", before_number="<i8", before_ref="<i8", after_number="<i8",
    after_ref="<i8", before_tag="u1", after_tag="u1", pad="<i2", spare="<i4",
)  # fmt: skip
# A value that was seen: by a read, or by a comparison or an update that failed (``kind``: by which;
# ``index``: its position in the payload).
SEEN_BY_ASSERT: Final = 0
SEEN_BY_CHECK: Final = 1
SEEN_BY_UPDATE: Final = 2
SEEN_KINDS: Final = ("assert", "check", "update")
SEEN: Final = _structure(
    txn="<i4", slot="<i4", version="<i8", number="<i8", ref="<i8", index="<i4", kind="u1",
    tag="u1", pad="<i2",
)  # fmt: skip


NOT_A_DUPLICATE, PLAN_DUPLICATE, WINDOW_DUPLICATE, REUSED, TOO_LATE, TOO_FAR = 0, 1, 2, 3, 4, 5

REFUSALS = {
    REUSED: errors.ID_REUSED,
    TOO_LATE: errors.DEADLINE_PASSED,
    TOO_FAR: errors.DEADLINE_TOO_FAR,
}
"""What a valid record is rejected for, by what stands in the place of a kind of duplicate."""


ENTRY = np.dtype([("id0", "<u8"), ("id1", "<u8"), ("seq", "<i8")])


Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]


class ProgramSteps(ColumnTable, frozen=True):
    """Steps of transactions.

    ``op``: what a step does; ``a``, ``low``, ``high``: its numbers; ``key``: the number of the key
    among those of the transaction; ``index``: of the check or update in the payload; ``flags``,
    ``tag``: see `program`. ``operand``: the text that it compares or writes, else empty.
    """

    a: Ints
    low: Ints
    high: Ints
    key: Places
    index: Places
    op: Bytes
    flags: Bytes
    tag: Bytes
    operand: Ragged

    @classmethod
    def of(cls, steps: npt.NDArray[Any], operand: Ragged) -> Self:
        """The steps of an array of dtype STEP."""
        names = cls.__struct_fields__[:-1]
        columns: list[Any] = [np.ascontiguousarray(steps[name]) for name in names]
        return cls(*[*columns, operand])

    def packed(self) -> npt.NDArray[Any]:
        """The steps as kernels take them: of dtype STEP."""
        steps = np.zeros(len(self), STEP)
        for name in ("a", "low", "high", "key", "index", "op", "flags", "tag"):
            steps[name] = getattr(self, name)
        return steps

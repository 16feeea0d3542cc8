"""Transactions as column expressions: each function gives a column of JSON text.

A key, value or id is a column (or its name); a number may stand for itself. A column that is null
where an operation is expected leaves the operation out: `when(condition, put(...))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as f

Term: TypeAlias = Column | str  # a column or its name
Operand: TypeAlias = Column | str | int | float | Decimal  # a column, its name, or a number
_OPTIONS = {"ignoreNullFields": "false", "timeZone": "UTC"}
"""The text of a value depends on the value alone: not on the session, and with its nulls."""

_EXACT = {
    **_OPTIONS, "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}  # fmt: skip
_WHOLE_MS = r'(T\d\d:\d\d:\d\d\.\d{3})000(?=Z?")'


def put(key: Term, value: Term) -> Column:
    """Store a value: text, number, boolean, or a struct, map or array of such."""
    return _operation("put", key, value=value)


def delete(key: Term) -> Column:
    """Remove a key."""
    return _operation("delete", key)


def add(
    key: Term,
    by: Operand,
    *,
    min: Operand | None = None,  # noqa: A002 - the operation's own word
    max: Operand | None = None,  # noqa: A002 - the operation's own word
) -> Column:
    """Add to a number; the transaction aborts if the sum is below min or above max."""
    return _operation("add", key, by=by, min=min, max=max)


def maximum(key: Term, value: Operand) -> Column:
    """Keep the larger number."""
    return _operation("max", key, value=value)


def minimum(key: Term, value: Operand) -> Column:
    """Keep the smaller number."""
    return _operation("min", key, value=value)


def append(key: Term, value: Term) -> Column:
    """Append to a list."""
    return _operation("append", key, value=value)


def next_id(key: Term) -> Column:
    """Take the next number of a counter."""
    return _operation("next_id", key)


def check(
    key: Term,
    *,
    version: Operand | None = None,
    exists: bool | None = None,
    eq: Operand | None = None,
    ne: Operand | None = None,
    lt: Operand | None = None,
    le: Operand | None = None,
    gt: Operand | None = None,
    ge: Operand | None = None,
) -> Column:
    """A condition on the state before; the transaction aborts if one does not hold."""
    there = None if exists is None else f.lit(exists)
    return _object(key=key, version=version, exists=there, eq=eq, ne=ne, lt=lt, le=le, gt=gt, ge=ge)


def json(text: Term) -> Column:
    """A value from a column of JSON text, to be put or appended as it is.

    Text that is not JSON fails the query; with Spark's `try_parse_json` instead it is null, and the
    row a bad one.
    """
    return f.parse_json(text)


def transaction(
    id: Term,  # noqa: A002 - the field's own word
    updates: Sequence[Column] = (),
    *,
    checks: Sequence[Column] = (),
    reads: Sequence[Term] = (),
    deadline_ms: Column | None = None,
) -> Column:
    """A whole transaction.

    Args:
        id: its id, the same whenever the row is made again.
        updates: what `put`, `add` and the others give.
        checks: what `check` gives.
        reads: keys whose values the result shall have.
        deadline_ms: the last commit time (ms since 1970) at which it may be executed.
    """
    parts = [f.concat(f.lit('{"id":'), _json(_column(id)))]
    if deadline_ms is not None:
        parts += [f.lit(',"deadline_ms":'), deadline_ms.cast("string")]
    keys = [f.when(_column(key).isNotNull(), _json(_column(key))) for key in reads]
    for name, members in (("checks", list(checks)), ("reads", keys), ("updates", list(updates))):
        if members:
            parts += [f.lit(f',"{name}":['), f.concat_ws(",", *members), f.lit("]")]
    return f.concat(*parts, f.lit("}"))


def content_id(*columns: Term) -> Column:
    """An id made of a row's content: a hash of these columns.

    Rows with equal content are one transaction. For rows that may rightly be there twice, take
    columns that tell them apart.
    """
    return f.sha2(_text(f.struct(*columns)), 256)


def _operation(op: str, key: Term, **fields: Operand | None) -> Column:
    return _object(op=f.lit(op), key=key, **fields)


def _object(**fields: Operand | None) -> Column:
    columns = [(name, _column(value)) for name, value in fields.items() if value is not None]
    parts: list[Column] = []
    for number, (name, value) in enumerate(columns):
        parts += [f.lit(f'{"," if number else "{"}"{name}":'), _json(value)]
    return f.concat(*parts, f.lit("}"))


def _column(value: Operand) -> Column:
    if isinstance(value, Column):
        return value
    return f.col(value) if isinstance(value, str) else f.lit(value)


def _json(value: Column) -> Column:
    """The JSON text of a column of any type; `null` for null."""
    text = _text(f.array(value))
    return f.substring(text, f.lit(2), f.length(text) - 2)


def _text(value: Column) -> Column:
    """The JSON text of a column that is not null.

    By itself Spark cuts timestamps off at milliseconds. Those that have no more keep that text.
    """
    usual, exact = f.to_json(value, _OPTIONS), f.to_json(value, _EXACT)
    cut = f.regexp_replace(exact, _WHOLE_MS, "$1") != usual
    return f.when(f.typeof(value).contains("timestamp") & cut, exact).otherwise(usual)

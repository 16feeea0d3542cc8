"""Transactions of SQL on tables, which a facade executes.

What only selects is tried again after whatever may pass. What may write is sent once with an id,
and again, with another one, after a conflict. If its answer is lost, nothing but the verdict of
that id tells whether it is committed: executed again, it might find its own work done.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from streamydb.client.errors import ClientError, OutcomeUnknownError
from streamydb.client.problems import CheckFailedError, ConflictError, InvalidParameterError
from streamydb.client.reads import check_sql
from streamydb.client.requests import Flow, Freshness, SqlAnswer, SqlStatements
from streamydb.client.session import Retry, Session, perform, perform_with_retry
from streamydb.records.table import Table

Statement: TypeAlias = str | tuple[str, Sequence[Any] | Mapping[str, Any]]
"""A statement, alone or with the values of its parameters."""

_READING: Final = ("select", "values")
"""With what statements begin that write nothing, whatever follows."""


@dataclass(frozen=True, slots=True)
class SqlResult(Table):
    """The rows of a statement, and how many it wrote; iterating gives the rows.

    Attributes:
        types: the types of the columns, as DuckDB names them.
        changed: how many rows were written; None if the statement writes none.
    """

    types: tuple[str, ...] = ()
    changed: int | None = None


def prepare_statements(statements: Iterable[Statement]) -> tuple[tuple[str, Any], ...]:
    """Return statements with their parameters. Raises InvalidParameterError."""
    prepared = []
    for each in statements:
        sql, params = (each, ()) if isinstance(each, str) else each
        if not isinstance(sql, str) or isinstance(params, str) or not hasattr(params, "__iter__"):
            raise InvalidParameterError("A statement is text, or a pair of text and parameters.")
        values: Any = (
            {name: _without_zone(value) for name, value in params.items()}
            if isinstance(params, Mapping)
            else [_without_zone(value) for value in params]
        )
        check_sql(sql, values)
        prepared.append((sql, values))
    if not prepared:
        raise InvalidParameterError("There is no statement.")
    return tuple(prepared)


def _without_zone(value: Any) -> Any:
    """A time with a zone as columns keep it: in UTC, without one. As JSON it would be text, and the
    zone of a text is passed over where it becomes a time.
    """
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def execute_sql(
    session: Session, tables: str, statements: tuple[tuple[str, Any], ...], freshness: Freshness,
    timeout_s: float | None = None,
) -> Flow[list[SqlResult]]:  # fmt: skip
    """Execute statements as one transaction. Raises ConflictError: others wrote what was read, in
    each attempt that there was time for; OutcomeUnknownError: it may be committed; ClientError: it
    is not committed.
    """
    retry = session.retry(timeout_s)
    make = partial(SqlStatements, tables, statements, freshness)
    if all(sql.lstrip().lower().startswith(_READING) for sql, _ in statements):
        return _results(session, (yield from perform_with_retry(retry, partial(make, None))))
    attempts = 0
    while True:
        attempts += 1
        try:
            answer = yield from _execute_once(retry, make, session.new_id())
        except CheckFailedError as error:
            session.saw(error.seq)
            make = partial(SqlStatements, tables, statements, session.floor(session.seq))
            pause = retry.again(None) if attempts < session.options.conflicts_max else None
            if pause is None:
                raise ConflictError(
                    f"Others wrote what the statements read in each of {attempts} attempts; "
                    "nothing was written.",
                    members=error.members,
                ) from None
        else:
            return _results(session, answer)
        yield from perform(pause)


def _execute_once(retry: Retry, make: partial[SqlStatements], txn_id: str) -> Flow[SqlAnswer]:
    while True:
        try:
            return (yield from perform(make(txn_id, retry.left_s())))
        except ClientError as error:
            if error.uncertain:
                raise OutcomeUnknownError(txn_id, b"") from error
            pause = retry.again(error) if error.retriable else None
            if pause is None:
                raise
        yield from perform(pause)


def _results(session: Session, answer: SqlAnswer) -> list[SqlResult]:
    session.saw(answer.seq)
    return [
        SqlResult(
            answer.seq, tuple(column.name for column in each.columns), tuple(each.rows),
            tuple(column.type for column in each.columns), each.changed,
        )
        for each in answer.results
    ]  # fmt: skip

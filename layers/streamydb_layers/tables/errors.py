"""The errors of SQL statements; all are `SqlError`, and say where in the SQL the fault is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from streamydb_layers.errors import LayerError

if TYPE_CHECKING:
    from sqlglot import exp


class Place(NamedTuple):
    """A place in the SQL; lines and columns begin with 1."""

    line: int
    column: int


class SqlError(LayerError):
    """Base of what a statement raises; the statement wrote nothing.

    Attributes:
        place: where in the SQL; None if the fault is that of no one place.
    """

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.place: Place | None = None
        self.put_at(place)

    def put_at(self, place: Place | None) -> None:
        """Say where the fault is, unless that is known."""
        if self.place is None and place is not None:
            self.place = place
            self.args = (f"line {place.line}, column {place.column}: {self.args[0]}",)


class StatementInvalidError(SqlError):
    """The statement is no SQL, or names what there is not."""


class StatementUnsupportedError(SqlError):
    """The statement is SQL, but not of the kind that tables understand."""


class DataRefusedError(SqlError):
    """A value does not fit its type, a key's length, or a division by zero and the like."""


class ConstraintViolationError(SqlError):
    """A row would violate a constraint.

    Attributes:
        kind: `not null`, `unique`, `check` or `foreign key`.
        constraint: its name.
        table: the table that has it.
    """

    def __init__(
        self, kind: str, constraint: str, table: str, message: str, place: Place | None = None
    ) -> None:
        super().__init__(f"{message} ({kind} {constraint} of table {table})", place)
        self.kind, self.constraint, self.table = kind, constraint, table


class TransactionConflictError(SqlError):
    """Others wrote what the transaction has read; nothing was written. Begin it again."""


class TransactionForeignError(SqlError):
    """The transaction was begun by another process, before a fork; that one may commit it."""

    def __init__(self) -> None:
        super().__init__(
            "This transaction was begun before a fork, so it is the parent's, and nothing of it is "
            "committed here: roll it back, and begin another one."
        )


def place_of(node: exp.Expr | None) -> Place | None:
    """The place of the first word of a part of a statement whose place is known."""
    if node is None:
        return None
    found: list[Any] = [each.meta for each in node.walk() if "line" in each.meta]
    if not found:
        return place_of(node.parent)
    places = [Place(meta["line"], meta["col"] - (meta["end"] - meta["start"])) for meta in found]
    return min(places)

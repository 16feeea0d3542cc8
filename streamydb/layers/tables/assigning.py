"""The SET of a statement: which columns it sets to what, and what of the row it looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp, parse_one

from streamydb.layers.tables.errors import StatementInvalidError, place_of
from streamydb.layers.tables.parsing import DIALECT, unsupported
from streamydb.layers.tables.reading import ROWID
from streamydb.layers.tables.schema import Column, Table
from streamydb.layers.tables.types import FINITE

__all__ = [
    "assigned", "cast", "default_of", "given", "is_default", "names_row", "sees_whole",
]  # fmt: skip


def assigned(table: Table, parts: Sequence[exp.Expr]) -> list[Column]:
    """The columns that `column = value` of a SET name.

    Raises:
        StatementInvalidError: one is none of the table, or named twice.
        StatementUnsupportedError: a part is something else.
    """
    columns = [_assigned(table, part) for part in parts]
    if len({column.name for column in columns}) < len(columns):
        raise StatementInvalidError("A column is set twice.", place_of(parts[0]))
    return columns


def _assigned(table: Table, part: exp.Expr) -> Column:
    if not isinstance(part, exp.EQ) or not isinstance(part.this, exp.Column):
        raise unsupported(part)
    column = table.column(part.this.name)
    if column is None or part.this.table:
        raise StatementInvalidError(
            f"Column {part.this.sql(DIALECT)} is none of table {table.name}.", place_of(part)
        )
    return column


def given(node: exp.Expr, column: Column) -> exp.Expr:
    """The value that a statement gives a column: what it says, or for DEFAULT the default."""
    return default_of(column) if is_default(node) else node


def is_default(node: exp.Expr) -> bool:
    """Return True if a statement says DEFAULT in the place of a value."""
    named = isinstance(node, exp.Var | exp.Column) and node.name.upper() == "DEFAULT"
    return named and not node.args.get("table")


def default_of(column: Column) -> exp.Expr:
    """The default of a column; NULL if it has none."""
    return exp.Null() if column.default is None else parse_one(column.default, read=DIALECT)


def cast(node: exp.Expr, column: Column) -> exp.Expr:
    """A value as one of a column."""
    kind = exp.DataType.build(column.type, dialect=DIALECT)
    made = exp.Cast(this=node.copy(), to=kind)
    return exp.Anonymous(this=FINITE, expressions=[made]) if column.kind.is_time else made


def names_row(node: exp.Expr, table: Table, alias: str) -> bool:
    """Return True if a name means whole rows of a table, as in `to_json(t)`."""
    named = isinstance(node, exp.Column) and not node.table
    return named and node.name.lower() == alias.lower() and table.column(node.name) is None


def sees_whole(parts: Sequence[exp.Expr | None], table: Table, *aliases: str) -> bool:
    """Return True if parts of a statement may see whole rows of its table.

    Raises:
        StatementInvalidError: they do, and its rows cannot be numbered aside.
    """
    if not any(_is_whole(node, table, aliases) for node in _nodes(parts)):
        return False
    if table.column(ROWID) is not None:
        raise StatementInvalidError(
            f"A statement that writes {table.name} cannot see whole rows of it, because of its "
            f"column {ROWID}: name the columns."
        )
    return True


def _nodes(parts: Sequence[exp.Expr | None]) -> Iterator[exp.Expr]:
    return (node for part in parts if part is not None for node in part.walk())


def _is_whole(node: exp.Expr, table: Table, aliases: Sequence[str]) -> bool:
    if isinstance(node, exp.Star):
        return not isinstance(node.parent, exp.Count)
    named = any(names_row(node, table, alias) for alias in aliases)
    return named or isinstance(node, exp.Columns)

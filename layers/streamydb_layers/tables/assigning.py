"""The SET of a statement: which columns it sets to what, and what of the row it looks at."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streamydb_layers.tables import trees
from streamydb_layers.tables.errors import StatementInvalidError, place_of
from streamydb_layers.tables.parsing import DIALECT, unsupported
from streamydb_layers.tables.reading import ROWID
from streamydb_layers.tables.schema import Column, Table
from streamydb_layers.tables.trees import Tree, expression, is_of
from streamydb_layers.tables.types import FINITE


def assigned(table: Table, parts: Sequence[exp.Expr]) -> list[Column]:
    """The columns that `column = value` of a SET name.
    Raises StatementInvalidError: one is none of the table, or named twice;
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


def given(node: Tree, column: Column) -> Tree:
    """The value that a statement gives a column: what it says, or for DEFAULT the default."""
    return default_of(column) if is_default(node) else node


def is_default(node: Tree) -> bool:
    """Return True if a statement says DEFAULT in the place of a value."""
    return is_of(node, "DEFAULT")


def default_of(column: Column) -> Tree:
    """The default of a column; NULL if it has none."""
    return expression("null" if column.default is None else column.default)


def cast(node: Tree, column: Column) -> Tree:
    """A value as one of a column."""
    made = trees.cast(node, column.type)
    return trees.call(FINITE, made) if column.kind.is_time else made


def names_row(node: Tree, table: Table, alias: str) -> bool:
    """Return True if a column's name means whole rows of a table, as in `to_json(t)`."""
    name, *more = node["column_names"]
    return not more and name.lower() == alias.lower() and table.column(name) is None


def sees_whole(parts: Sequence[Tree | None], table: Table, *aliases: str) -> bool:
    """Return True if parts of a statement may see whole rows of its table.
    Raises StatementInvalidError: they do, and its rows cannot be numbered aside.
    """
    named = any(
        names_row(node, table, alias) for node in trees.columns(list(parts)) for alias in aliases
    )
    if not named and not any(is_of(node, "STAR") for node in trees.walk(list(parts))):
        return False
    if table.column(ROWID) is not None:
        raise StatementInvalidError(
            f"A statement that writes {table.name} cannot see whole rows of it, because of its "
            f"column {ROWID}: name the columns."
        )
    return True

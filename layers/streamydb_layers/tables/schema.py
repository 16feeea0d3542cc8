"""Tables and views as the catalog keeps them: columns, keys, indexes, checks, references, queries.

Names are compared without regard to case, and shown as they were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

from streamydb_layers.tables.types import ColumnType, column_type

Row = dict[str, Any]
"""Values by the names of columns, as DuckDB hands them over; None is NULL."""


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column; `default` is an expression, `identity` numbers the rows.

    The type of a view's column is any that DuckDB has.
    """

    name: str
    type: str
    not_null: bool = False
    default: str | None = None
    identity: bool = False

    @property
    def kind(self) -> ColumnType:
        """The type."""
        return column_type(self.type)


class Index(msgspec.Struct, frozen=True, omit_defaults=True):
    """An index; its number is never used again, so that nothing of a dropped one is seen."""

    name: str
    number: int
    columns: tuple[str, ...]
    unique: bool = False


class Check(msgspec.Struct, frozen=True):
    """A condition of each row: it is not false."""

    name: str
    expression: str


class ForeignKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """Columns whose values, if none is NULL, a row of another table has.

    ``on_delete``: `no action`, `cascade` or `set null`.
    """

    name: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    on_delete: str = "no action"


class Table(msgspec.Struct, frozen=True, omit_defaults=True):
    """A table; without a primary key its rows have keys that nobody sees.

    ``children``: the tables that refer to this one.
    """

    noun: ClassVar[str] = "table"
    name: str
    number: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[Check, ...] = ()
    children: tuple[str, ...] = ()

    def stored(self) -> Any:
        """The value for the catalog."""
        return msgspec.to_builtins(self)

    def column(self, name: str) -> Column | None:
        """The column of a name."""
        return _column(self.columns, name)

    def unique_on(self, columns: Sequence[str]) -> Index | None:
        """The unique index of exactly these columns, in whatever order."""
        wanted = set(columns)
        return next((i for i in self.indexes if i.unique and set(i.columns) == wanted), None)

    def begins_with(self, columns: Sequence[str]) -> bool:
        """Return True if the primary key or an index begins with these columns."""
        size = len(columns)
        orders = [self.primary_key, *(index.columns for index in self.indexes)]
        return any(order[:size] == tuple(columns) for order in orders)

    def loaded(self, stored: Mapping[str, Any]) -> Row:
        """A row as it is stored, for DuckDB."""
        return {
            column.name: column.kind.loaded(stored[column.name]) if column.name in stored else None
            for column in self.columns
        }

    def stored_row(self, row: Row) -> dict[str, Any]:
        """Return a row as it is stored."""
        return {
            column.name: column.kind.stored(row[column.name])
            for column in self.columns
            if row[column.name] is not None
        }


class View(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query with a name.

    ``uses``: by the names of tables and views, in lower case, the columns that it sees of them.
    ``renamed``: whether its columns have names that are not those of the query.
    """

    noun: ClassVar[str] = "view"
    name: str
    columns: tuple[Column, ...]
    query: str
    uses: dict[str, tuple[str, ...]] = {}
    renamed: bool = False

    def stored(self) -> Any:
        """The value for the catalog."""
        return msgspec.to_builtins(self)

    def column(self, name: str) -> Column | None:
        """The column of a name."""
        return _column(self.columns, name)


Relation: TypeAlias = Table | View
"""What a query may name."""


def relation_of(stored: Any) -> Relation:
    """The table or view of a catalog's value."""
    return msgspec.convert(stored, View) if "query" in stored else msgspec.convert(stored, Table)


def describe(relation: Relation) -> list[str]:
    """Return the columns, keys and checks of a table, or the query of a view, in lines."""
    lines = []
    for column in relation.columns:
        more = " not null" if column.not_null else ""
        more += "" if column.default is None else f" default {column.default}"
        lines.append(f"{column.name} {column.type.lower()}{more}")
    if isinstance(relation, View):
        return [*lines, f"view: {relation.query}"]
    if relation.primary_key:
        lines.append(f"primary key ({', '.join(relation.primary_key)})")
    for index in relation.indexes:
        kind = "unique index" if index.unique else "index"
        lines.append(f"{kind} {index.name} ({', '.join(index.columns)})")
    lines += [
        f"foreign key {key.name} ({', '.join(key.columns)}) references {key.parent} "
        f"({', '.join(key.parent_columns)})"
        for key in relation.foreign_keys
    ]
    return lines + [f"check {check.name} ({check.expression})" for check in relation.checks]


def _column(columns: Sequence[Column], name: str) -> Column | None:
    folded = name.lower()
    return next((each for each in columns if each.name.lower() == folded), None)

"""Make tables and indexes of CREATE statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlglot import exp
from sqlglot.errors import ParseError

from streamydb.layers.errors import InvalidNameError
from streamydb.layers.names import check_name
from streamydb.layers.tables.errors import StatementInvalidError, place_of
from streamydb.layers.tables.parsing import DIALECT, only, unsupported
from streamydb.layers.tables.reading import ROW
from streamydb.layers.tables.schema import Check, Column, ForeignKey, Index, Table
from streamydb.layers.tables.types import DECIMAL_DIGITS_MAX, INTEGERS

__all__ = [
    "COLUMNS_MAX",
    "INDEXES_MAX",
    "Definition",
    "column_definition",
    "columns_of",
    "named",
    "standalone",
]

COLUMNS_MAX: Final = 256
"""Columns of a table."""

INDEXES_MAX: Final = 32
"""Indexes of a table, those of its constraints included."""

_TYPES: Final = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "SMALLINT", "SMALLINT": "SMALLINT", "INT": "INTEGER",
    "BIGINT": "BIGINT", "DOUBLE": "DOUBLE", "FLOAT": "DOUBLE", "TEXT": "VARCHAR",
    "VARCHAR": "VARCHAR", "CHAR": "VARCHAR", "NVARCHAR": "VARCHAR", "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP", "TIMESTAMPNTZ": "TIMESTAMP", "DATETIME": "TIMESTAMP",
    "JSON": "JSON",
}  # fmt: skip
_ACTIONS: Final = {
    "ON DELETE NO ACTION": "no action", "ON DELETE RESTRICT": "no action",
    "ON DELETE CASCADE": "cascade", "ON DELETE SET NULL": "set null",
    "ON UPDATE NO ACTION": "", "ON UPDATE RESTRICT": "",
}  # fmt: skip


def named(node: exp.Expr) -> str:
    """A name that may be part of a key.

    Raises:
        StatementInvalidError: it may not.
    """
    try:
        return check_name(node.name)
    except InvalidNameError as error:
        raise StatementInvalidError(str(error), place_of(node)) from None


def columns_of(table: Table, nodes: Sequence[exp.Expr]) -> tuple[str, ...]:
    """The columns that a list names, each once.

    Raises:
        StatementInvalidError: there is no such column, or it is named twice.
        StatementUnsupportedError: something is no column, or JSON, which has no order.
    """
    found: list[str] = []
    for node in nodes:
        inner = node.this if isinstance(node, exp.Ordered) else node
        if isinstance(node, exp.Ordered):
            only(node, "this", "nulls_first")
        if not isinstance(inner, exp.Identifier | exp.Column):
            raise unsupported(inner)
        column = table.column(inner.name)
        if column is None or column.name in found:
            why = "is named twice" if column else f"is none of table {table.name}"
            raise StatementInvalidError(f"Column {inner.name} {why}.", place_of(inner))
        if column.type == "JSON":
            raise unsupported(inner, f"Column {column.name} is JSON, which has no order of keys.")
        found.append(column.name)
    return tuple(found)


class Definition:
    """A table that is being put together of a CREATE TABLE.

    Args:
        number: gives a number that no table and no index has had.
        find: the table of a name, if there is one.
    """

    def __init__(
        self, create: exp.Create, number: Callable[[], int], find: Callable[[str], Table | None]
    ) -> None:
        """Read the columns, then what is said about them."""
        schema = create.this
        if not isinstance(schema, exp.Schema):
            raise unsupported(create, "A table is created with a list of columns.")
        only(create, "this", "kind", "exists")
        only(schema, "this", "expressions")
        only(schema.this, "this")
        self._number, self._find = number, find
        self._checks: list[Check] = []
        self._keys: list[tuple[exp.Expr, tuple[str, ...]]] = []
        self._said: list[tuple[exp.Expr, exp.Expr | None, str | None]] = []
        parts = schema.expressions
        nodes = [part for part in parts if isinstance(part, exp.ColumnDef)]
        columns = [self._column(node) for node in nodes]
        _check_columns(schema, columns)
        numbered = [n for n, c in zip(nodes, columns, strict=True) if c.identity]
        if len(numbered) > 1:
            raise unsupported(numbered[1], "One column of a table numbers its rows.")
        self.table = Table(named(schema.this), number(), tuple(columns))
        self._said += [(p, None, None) for p in parts if not isinstance(p, exp.ColumnDef)]
        for node, column, name in self._said:
            self._constraint(node, column, name)
        self._finish()

    def _column(self, node: exp.ColumnDef) -> Column:
        only(node, "this", "kind", "constraints")
        if node.args.get("kind") is None:
            raise StatementInvalidError(f"Column {node.name} has no type.", place_of(node))
        default, not_null, identity = None, False, False
        for constraint in node.args.get("constraints") or []:
            kind = constraint.args["kind"]
            if isinstance(kind, exp.NotNullColumnConstraint):
                not_null = not kind.args.get("allow_null")
            elif isinstance(kind, exp.DefaultColumnConstraint):
                default = standalone(kind.this)
            elif isinstance(
                kind, exp.GeneratedAsIdentityColumnConstraint | exp.AutoIncrementColumnConstraint
            ):
                _check_identity(kind)
                identity = True
            else:
                self._said.append((kind, node.this, constraint.name or None))
        kind_name = _type(node.args["kind"])
        if identity and kind_name not in INTEGERS:
            raise unsupported(node, "Only a column of integers numbers rows.")
        if identity and default is not None:
            raise StatementInvalidError(
                f"Column {node.name} numbers the rows, and has a default: say one of them.",
                place_of(node),
            )
        return Column(node.name, kind_name, not_null or identity, default, identity)

    def _constraint(self, node: exp.Expr, column: exp.Expr | None, name: str | None) -> None:
        if isinstance(node, exp.Constraint):
            name = node.name
            [node] = node.expressions
        if isinstance(node, exp.PrimaryKeyColumnConstraint):
            self._primary_key(node, [] if column is None else [column])
        elif isinstance(node, exp.PrimaryKey):
            self._primary_key(node, node.expressions)
        elif isinstance(node, exp.UniqueColumnConstraint):
            only(node, "this")
            self._unique([column] if column else node.this.expressions, name)
        elif isinstance(node, exp.CheckColumnConstraint):
            only(node, "this")
            name = name or f"{self.table.name}_check{len(self._checks) + 1}"
            self._checks.append(Check(name, _condition(node.this)))
        elif isinstance(node, exp.ForeignKey):
            only(node, "expressions", "reference", "delete", "update", "options")
            self._reference(node, node.expressions, node.args["reference"], name)
        elif isinstance(node, exp.Reference) and column is not None:
            self._reference(node, [column], node, name)
        else:
            raise unsupported(node)

    def _primary_key(self, node: exp.Expr, columns: Sequence[exp.Expr]) -> None:
        if self.table.primary_key:
            raise StatementInvalidError("A table has one primary key.", place_of(node))
        key = columns_of(self.table, columns)
        made = tuple(
            Column(c.name, c.type, c.not_null or c.name in key, c.default, c.identity)
            for c in self.table.columns
        )
        self._change(columns=made, primary_key=key)

    def _unique(self, nodes: Sequence[exp.Expr], name: str | None) -> None:
        columns = columns_of(self.table, nodes)
        name = name or f"{self.table.name}_{'_'.join(columns)}_key"
        self._index(name, columns, unique=True)

    def _reference(
        self, node: exp.Expr, columns: Sequence[exp.Expr], reference: exp.Reference,
        name: str | None,
    ) -> None:  # fmt: skip
        mine = columns_of(self.table, columns)
        target = reference.this
        parent_name = target.this.name if isinstance(target, exp.Schema) else target.name
        own = parent_name.lower() == self.table.name.lower()
        parent = self.table if own else self._find(parent_name)
        if parent is None:
            raise StatementInvalidError(f"There is no table {parent_name}.", place_of(target))
        theirs = (
            columns_of(parent, target.expressions) if isinstance(target, exp.Schema)
            else parent.primary_key
        )  # fmt: skip
        _check_reference(node, (self.table, mine), (parent, theirs))
        name = name or f"{self.table.name}_{'_'.join(mine)}_fkey"
        key = ForeignKey(name, mine, parent.name, theirs, _on_delete(node, reference))
        self._change(foreign_keys=(*self.table.foreign_keys, key))

    def _finish(self) -> None:
        for key in self.table.foreign_keys:
            if not self.table.begins_with(key.columns):
                self._index(key.name, key.columns, unique=False)
        if len(self.table.indexes) > INDEXES_MAX:
            raise StatementInvalidError(f"A table has at most {INDEXES_MAX} indexes.")
        self._change(checks=tuple(self._checks))

    def _index(self, name: str, columns: tuple[str, ...], *, unique: bool) -> None:
        taken = {index.name.lower() for index in self.table.indexes}
        if name.lower() in taken:
            raise StatementInvalidError(f"Two constraints have the name {name}.")
        made = Index(name, self._number(), columns, unique)
        self._change(indexes=(*self.table.indexes, made))

    def _change(self, **fields: object) -> None:
        have = {name: getattr(self.table, name) for name in self.table.__struct_fields__}
        self.table = Table(**{**have, **fields})


def _check_columns(schema: exp.Schema, columns: Sequence[Column]) -> None:
    names = [column.name.lower() for column in columns]
    if not 1 <= len(names) <= COLUMNS_MAX:
        raise StatementInvalidError(
            f"A table has 1 to {COLUMNS_MAX} columns.", place_of(schema.this)
        )
    for number, name in enumerate(names):
        if name in names[:number] or name == ROW:
            part = [p for p in schema.expressions if isinstance(p, exp.ColumnDef)][number]
            raise StatementInvalidError(f"The name {name} is taken.", place_of(part))


def _check_reference(
    node: exp.Expr, child: tuple[Table, tuple[str, ...]], parent: tuple[Table, tuple[str, ...]]
) -> None:
    """The columns of the parent are its primary key or unique, and of the types of the child's."""
    (table, mine), (other, theirs) = child, parent
    if set(other.primary_key) != set(theirs) and other.unique_on(theirs) is None:
        raise StatementInvalidError(
            f"({', '.join(theirs)}) is neither the primary key of {other.name} nor unique there.",
            place_of(node),
        )
    kinds = [[c.type for n in names if (c := t.column(n))] for t, names in (child, parent)]
    if kinds[0] != kinds[1]:
        raise StatementInvalidError(
            f"({', '.join(mine)}) of {table.name} has other types than ({', '.join(theirs)}) of "
            f"{other.name}.",
            place_of(node),
        )


def _on_delete(node: exp.Expr, reference: exp.Reference) -> str:
    said = [str(option).upper() for option in reference.args.get("options") or []]
    said += [f"ON {w} {node.args[w]}".upper() for w in ("delete", "update") if node.args.get(w)]
    found = "no action"
    for option in said:
        if option not in _ACTIONS:
            raise unsupported(node, f"Tables do not understand {option!r}.")
        found = _ACTIONS[option] or found
    return found


def _type(kind: exp.DataType) -> str:
    name = kind.this.value if hasattr(kind.this, "value") else str(kind.this)
    if name == "DECIMAL":
        digits = [int(part.name) for part in kind.expressions] or [18, 3]
        digits = digits if len(digits) == 2 else [*digits, 0]
        if not 1 <= digits[0] <= DECIMAL_DIGITS_MAX or digits[1] > digits[0]:
            raise unsupported(kind, f"A decimal has at most {DECIMAL_DIGITS_MAX} digits.")
        return f"DECIMAL({digits[0]},{digits[1]})"
    if name not in _TYPES:
        raise unsupported(kind, f"There is no type {kind.sql(DIALECT)} for columns.")
    return _TYPES[name]


def column_definition(name: str, kind: str, query: exp.Expr) -> exp.ColumnDef:
    """The definition of a column of a query, of a type as DuckDB names it.

    Raises:
        StatementUnsupportedError: columns do not have the type.
    """
    try:
        made = exp.DataType.build("INTEGER" if kind == '"NULL"' else kind, dialect=DIALECT)
    except ParseError:
        raise unsupported(query, f"There is no type {kind} for columns.") from None
    return exp.ColumnDef(this=exp.to_identifier(name, quoted=True), kind=made)


def standalone(node: exp.Expr) -> str:
    """The text of an expression without columns and queries.

    Raises:
        StatementUnsupportedError: it has some.
    """
    for inner in (exp.Column, exp.Query, exp.Placeholder):
        if found := node.find(inner):
            raise unsupported(found, "A default is an expression without columns and queries.")
    return node.sql(DIALECT)


def _check_identity(node: exp.Expr) -> None:
    if node.args.get("this") or node.args.get("on_null"):
        raise unsupported(node, "Rows are numbered by GENERATED BY DEFAULT AS IDENTITY only.")
    only(node, "on_null")


def _condition(node: exp.Expr) -> str:
    """A condition of one row."""
    for inner in (exp.Query, exp.Placeholder):
        if found := node.find(inner):
            raise unsupported(found, "A check is a condition without queries and parameters.")
    return node.sql(DIALECT)

"""ALTER TABLE: columns are added, dropped and renamed, and so are tables.

Rows have the names of their columns, so what changes a name or a value writes all rows that have
the column, in one transaction. A column that is added without a default writes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace
from sqlglot import exp

from streamydb_layers.tables import trees
from streamydb_layers.tables.access import access
from streamydb_layers.tables.defining import Catalog, with_fields, without
from streamydb_layers.tables.definitions import (
    COLUMNS_MAX,
    INDEXES_MAX,
    Definition,
    named,
    standalone,
)
from streamydb_layers.tables.errors import StatementInvalidError, place_of
from streamydb_layers.tables.parsing import only, unsupported
from streamydb_layers.tables.reading import ROW, Reader
from streamydb_layers.tables.schema import Check, Column, ForeignKey, Row, Table
from streamydb_layers.tables.transaction import Overlay
from streamydb_layers.tables.trees import Tree

_HINT = "Make another column, copy with UPDATE, drop the old one."


class Alterations:
    """The ALTER TABLE of one statement.

    Args:
        catalog: of the statement.
        reader: of the statement.
        transaction: the statement's own overlay.
        check: holds rows against NOT NULL and the table's checks.
    """

    def __init__(
        self, catalog: Catalog, reader: Reader, transaction: Overlay,
        check: Callable[[Table, Sequence[Row]], None],
    ) -> None:  # fmt: skip
        self._catalog, self._reader, self._transaction = catalog, reader, transaction
        self._check = check

    def alter(self, node: exp.Alter) -> None:
        """Do it."""
        only(node, "this", "kind", "exists", "actions", "options")
        if node.args.get("kind") != "TABLE":
            raise unsupported(node)
        if node.args.get("exists") and self._reader.relation(node.this.name) is None:
            return
        table = self._reader.table(node.this)
        action, *more = node.args["actions"]
        if more:
            raise unsupported(more[0], "ALTER TABLE makes one change in a statement.")
        if isinstance(action, exp.ColumnDef):
            self._add(table, action)
        elif isinstance(action, exp.Drop) and action.args.get("kind") == "COLUMN":
            self._drop(table, action)
        elif isinstance(action, exp.Drop) and action.args.get("kind") == "CONSTRAINT":
            self._drop_constraint(table, action)
        elif isinstance(action, exp.RenameColumn):
            self._rename_column(table, action.this, action.args["to"])
        elif isinstance(action, exp.AlterRename):
            self._rename(table, node, action)
        elif isinstance(action, exp.AlterColumn):
            self._alter_column(table, action)
        else:
            raise unsupported(action)

    def _add(self, table: Table, node: exp.ColumnDef) -> None:
        if table.column(node.name) is not None:
            if node.args.get("exists"):
                return
            raise StatementInvalidError(f"The name {node.name} is taken.", place_of(node))
        made = self._defined(table, node)
        [column] = made.columns
        if made.primary_key or column.identity:
            raise unsupported(node, "A primary key and a column that numbers rows are there first.")
        if made.foreign_keys and column.default is not None:
            raise unsupported(node, "A column with references is added without a default.")
        taken = {check.name for check in table.checks}
        checks = [Check(_free(check.name, taken), check.expression) for check in made.checks]
        now = with_fields(
            table, columns=(*table.columns, column), checks=(*table.checks, *checks),
            indexes=(*table.indexes, *made.indexes),
            foreign_keys=(*table.foreign_keys, *made.foreign_keys),
        )  # fmt: skip
        if len(now.columns) > COLUMNS_MAX or len(now.indexes) > INDEXES_MAX:
            raise StatementInvalidError(
                f"A table has at most {COLUMNS_MAX} columns and {INDEXES_MAX} indexes.",
                place_of(node),
            )
        self._catalog.try_expressions(node, now)
        if column.not_null or column.default is not None or checks:
            rows = self._rows(table)
            values = self._defaults(column, len(rows))
            for row, value in zip(rows.values(), values, strict=True):
                row[column.name] = value
            self._check(now, list(rows.values()))
            if column.default is not None:
                self._put(now, rows)
        self._catalog.enter(now, made.indexes, made.foreign_keys, node)

    def _defined(self, table: Table, node: exp.ColumnDef) -> Table:
        """A table with the column alone, and all that is said of it."""
        column = node.copy()
        column.set("exists", None)
        shape = exp.Schema(this=exp.Table(this=exp.to_identifier(table.name)), expressions=[column])
        create = exp.Create(this=shape, kind="TABLE")

        def find(name: str) -> Table | None:
            if name.lower() == table.name.lower():
                raise unsupported(node, "A column that is added does not refer to its own table.")
            return self._reader.find(name)

        return Definition(create, self._catalog.number, find).table

    def _drop(self, table: Table, action: exp.Drop) -> None:
        only(action, "exists", "tables", "kind", "restrict")
        target = _target(action)
        column = table.column(target.name)
        if column is None:
            if action.args.get("exists"):
                return
            raise _absent(table, target)
        users = [*_users(table, column.name), *self._referring(table, column.name)]
        if users:
            raise StatementInvalidError(
                f"{', '.join(users)} of table {table.name} needs column {column.name}.",
                place_of(target),
            )
        self._catalog.views.require_unused(table, target, column.name)
        if len(table.columns) == 1:
            raise StatementInvalidError("A table has a column at least.", place_of(target))
        now = with_fields(table, columns=tuple(c for c in table.columns if c != column))
        rows = self._rows(table)
        self._put(now, {k: row for k, row in rows.items() if row[column.name] is not None})
        self._catalog.store(now)

    def _drop_constraint(self, table: Table, action: exp.Drop) -> None:
        only(action, "exists", "tables", "kind", "restrict")
        target = _target(action)
        name = target.name.lower()
        checks = tuple(each for each in table.checks if each.name.lower() != name)
        keys = tuple(each for each in table.foreign_keys if each.name.lower() != name)
        index = next((each for each in table.indexes if each.name.lower() == name), None)
        if checks == table.checks and keys == table.foreign_keys and index is None:
            if action.args.get("exists"):
                return
            raise StatementInvalidError(
                f"Table {table.name} has no constraint {target.name}.", place_of(target)
            )
        now = with_fields(table, checks=checks, foreign_keys=keys)
        for gone in {key.parent for key in table.foreign_keys} - {key.parent for key in keys}:
            if gone == table.name:
                now = with_fields(now, children=tuple(c for c in now.children if c != gone))
            elif (parent := self._reader.find(gone)) is not None:
                left = tuple(child for child in parent.children if child != table.name)
                self._catalog.store(with_fields(parent, children=left))
        self._catalog.store(now)
        own = keys == table.foreign_keys
        if index is not None and (own or self._catalog.serves(without(now, index))):
            self._catalog.drop_index(now, index, target)

    def _rename_column(self, table: Table, target: exp.Expr, to: exp.Expr) -> None:
        column = table.column(target.name)
        if column is None:
            raise _absent(table, target)
        other = table.column(to.name)
        if to.name == ROW or (other is not None and other != column):
            raise StatementInvalidError(f"The name {to.name} is taken.", place_of(to))
        self._catalog.views.require_unused(table, target, column.name)
        old, new = column.name, to.name

        def names(given: Sequence[str]) -> tuple[str, ...]:
            return tuple(new if name == old else name for name in given)

        def parents(key: ForeignKey) -> ForeignKey:
            own = key.parent.lower() == table.name.lower()
            return replace(key, parent_columns=names(key.parent_columns)) if own else key

        now = with_fields(
            table,
            columns=tuple(replace(c, name=new) if c == column else c for c in table.columns),
            primary_key=names(table.primary_key),
            indexes=tuple(replace(each, columns=names(each.columns)) for each in table.indexes),
            foreign_keys=tuple(
                parents(replace(each, columns=names(each.columns))) for each in table.foreign_keys
            ),
            checks=_renamed(table.checks, column=(old, new)),
        )
        rows = {key: row for key, row in self._rows(table).items() if row[old] is not None}
        for row in rows.values():
            row[new] = row.pop(old)
        self._put(now, rows)
        self._catalog.store(now)
        for child in self._children(table):
            keys = tuple(map(parents, child.foreign_keys))
            self._catalog.store(with_fields(child, foreign_keys=keys))

    def _rename(self, table: Table, node: exp.Alter, action: exp.AlterRename) -> None:
        if options := node.args.get("options"):  # RENAME a TO b
            self._rename_column(table, action.this, options[0].this)
            return
        new = named(action.this)
        there = self._reader.relation(new)
        if there is not None and new.lower() != table.name.lower():
            raise StatementInvalidError(f"There is a {there.noun} {new}.", place_of(action.this))
        self._catalog.views.require_unused(table, action.this)

        def name(given: str) -> str:
            return new if given.lower() == table.name.lower() else given

        def keys(of: Table) -> tuple[ForeignKey, ...]:
            return tuple(replace(key, parent=name(key.parent)) for key in of.foreign_keys)

        parents = {k.parent for k in table.foreign_keys if name(k.parent) == k.parent}
        for parent in filter(None, map(self._reader.find, parents)):
            children = tuple(map(name, parent.children))
            self._catalog.store(with_fields(parent, children=children))
        for child in self._children(table):
            self._catalog.store(with_fields(child, foreign_keys=keys(child)))
        self._catalog.forget(table)
        checks = _renamed(table.checks, table=(table.name, new))
        children = tuple(map(name, table.children))
        self._catalog.store(
            with_fields(table, name=new, foreign_keys=keys(table), checks=checks, children=children)
        )
        for index in table.indexes:
            self._catalog.claim_again(index, new)

    def _alter_column(self, table: Table, action: exp.AlterColumn) -> None:
        column = table.column(action.name)
        if column is None:
            raise _absent(table, action.this)
        allow_null, default = action.args.get("allow_null"), action.args.get("default")
        if action.args.get("dtype") is not None:
            raise unsupported(action, f"The type of a column stays. {_HINT}")
        not_null = column.not_null if allow_null is None else not allow_null
        if not not_null and column.name in table.primary_key:
            raise StatementInvalidError(
                f"Column {column.name} is part of the primary key.", place_of(action.this)
            )
        if column.identity and allow_null is not False:
            raise StatementInvalidError(
                f"Column {column.name} numbers the rows: it has no default, and is never NULL.",
                place_of(action.this),
            )
        if default is not None:
            said: str | None = standalone(default)
        else:
            said = None if action.args.get("drop") and allow_null is None else column.default
        changed = replace(column, not_null=not_null, default=said)
        columns = tuple(changed if each == column else each for each in table.columns)
        now = with_fields(table, columns=columns)
        self._catalog.try_expressions(action, now)
        if not_null and not column.not_null:
            self._check(now, list(self._rows(table).values()))
        self._catalog.store(now)

    def _rows(self, table: Table) -> dict[str, Row]:
        """All rows by their whole keys."""
        prefix = self._reader.keys.rows(table)
        found = self._reader.rows(table, [access(self._reader.keys, table, {})])
        return {prefix + row.key: row.values for row in found}

    def _put(self, table: Table, rows: Mapping[str, Row]) -> None:
        for key, row in rows.items():
            self._transaction.put(key, table.stored_row(row))

    def _defaults(self, column: Column, count: int) -> list[object]:
        if column.default is None or not count:
            return [None] * count
        cell = column.kind.cast(column.default)
        sql = f"select {cell} from range({count})"  # noqa: S608 - DuckDB is shut off
        return [value for [value] in self._reader.bench.ask(sql).rows]

    def _children(self, table: Table) -> list[Table]:
        """The other tables that refer to one."""
        others = [name for name in table.children if name.lower() != table.name.lower()]
        return [child for name in others if (child := self._reader.find(name))]

    def _referring(self, table: Table, column: str) -> list[str]:
        """The foreign keys of other tables that refer to a column."""
        return [
            f"foreign key {key.name}"
            for child in self._children(table)
            for key in child.foreign_keys
            if key.parent.lower() == table.name.lower() and column in key.parent_columns
        ]


def _target(action: exp.Drop) -> exp.Expr:
    """The one thing that is dropped."""
    targets: list[exp.Expr] = action.args.get("tables") or []
    if len(targets) != 1:
        raise unsupported(action)
    return targets[0]


def _users(table: Table, column: str) -> list[str]:
    """The parts of a table that need a column."""
    found = ["the primary key"] if column in table.primary_key else []
    found += [f"index {each.name}" for each in table.indexes if column in each.columns]
    found += [f"foreign key {each.name}" for each in table.foreign_keys if column in each.columns]
    folded = column.lower()
    return found + [
        f"check {each.name}"
        for each in table.checks
        if any(folded in _path(node) for node in trees.columns(_parsed(each)))
    ]


def _parsed(check: Check) -> Tree:
    return trees.copied(trees.expression(check.expression))


def _path(column: Tree) -> list[str]:
    return [name.lower() for name in column["column_names"]]


def _renamed(
    checks: Sequence[Check], *, column: Sequence[str] = ("", ""), table: Sequence[str] = ("", "")
) -> tuple[Check, ...]:
    """Checks with another name of a column, or of their table."""
    made = []
    for check in checks:
        condition = _parsed(check)
        for node in trees.columns(condition):
            *of, last = node["column_names"]
            of = [table[1] if name.lower() == table[0].lower() else name for name in of]
            last = column[1] if last.lower() == column[0].lower() else last
            node["column_names"] = [*of, last]
        made.append(replace(check, expression=trees.text_of_expression(condition)))
    return tuple(made)


def _free(name: str, taken: set[str]) -> str:
    """A name that no check has."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def _absent(table: Table, node: exp.Expr) -> StatementInvalidError:
    return StatementInvalidError(
        f"Column {node.name} is none of table {table.name}.", place_of(node)
    )

"""Create and drop tables, views and indexes: the catalog, and the entries of an index over rows."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streamydb_layers.tables.access import access
from streamydb_layers.tables.definitions import INDEXES_MAX, Definition, columns_of, named
from streamydb_layers.tables.errors import ConstraintViolationError, StatementInvalidError, place_of
from streamydb_layers.tables.keys import fits, part
from streamydb_layers.tables.parsing import only, unsupported
from streamydb_layers.tables.reading import Reader, shape
from streamydb_layers.tables.schema import ForeignKey, Index, Table
from streamydb_layers.tables.transaction import Overlay
from streamydb_layers.tables.views import Views


class Catalog:
    """The catalog in one statement.

    Args:
        reader: of the statement.
        transaction: the statement's own overlay.
    """

    def __init__(self, reader: Reader, transaction: Overlay) -> None:
        self._reader, self._transaction = reader, transaction
        self._keys, self._bench = reader.keys, reader.bench
        self.views = Views(reader, transaction)

    def create(self, node: exp.Create) -> None:
        """Create a table, a view or an index."""
        if node.kind == "TABLE":
            self._create_table(node)
        elif node.kind == "VIEW":
            self.views.create(node)
        elif node.kind == "INDEX":
            self._create_index(node)
        else:
            raise unsupported(node)

    def drop(self, node: exp.Drop) -> None:
        """Drop tables, views or indexes."""
        only(node, "tables", "kind", "exists", "this", "restrict")
        targets = node.args.get("tables") or [node.this]
        for target in targets:
            self._reader.forget()
            exists = bool(node.args.get("exists"))
            if node.kind == "TABLE":
                self._drop_table(target, exists=exists)
            elif node.kind == "VIEW":
                self.views.drop(target, exists=exists)
            elif node.kind == "INDEX":
                self._drop_index(target, exists=exists)
            else:
                raise unsupported(node)

    def _create_table(self, node: exp.Create) -> None:
        target = node.this.this if isinstance(node.this, exp.Schema) else node.this
        there = self._reader.relation(target.name)
        if there is not None:
            if node.args.get("exists") and isinstance(there, Table):
                return
            raise StatementInvalidError(f"There is a {there.noun} {there.name}.", place_of(target))
        table = Definition(node, self.number, self._reader.find).table
        self.try_expressions(node, table)
        for index in table.indexes:
            self._claim(index.name, table.name, node)
        own = {key.parent for key in table.foreign_keys}
        for name in own - {table.name}:
            self._add_child(name, table.name)
        if table.name in own:
            table = with_fields(table, children=(table.name,))
        self.store(table)

    def try_expressions(self, node: exp.Expr, table: Table) -> None:
        """Let DuckDB see the checks and defaults, so that a wrong one is found now."""
        name = self._bench.lay_out(shape(table), [])
        alias = exp.to_identifier(table.name, quoted=True).sql("duckdb")
        for check in table.checks:
            source = f"{name} as {alias} where not ({check.expression})"
            self._bench.ask(f"select 1 from {source}", node)  # noqa: S608 - DuckDB is shut off
        for column in table.columns:
            if column.default is not None:
                self._bench.ask(f"select {column.kind.cast(column.default)}", node)

    def enter(
        self, table: Table, indexes: Sequence[Index], keys: Sequence[ForeignKey], node: exp.Expr
    ) -> None:
        """Write a definition that has got indexes and foreign keys, and fill the indexes."""
        for index in indexes:
            self._claim(index.name, table.name, node)
            self._fill(table, index)
        for key in keys:
            self._add_child(key.parent, table.name)
        self.store(table)

    def forget(self, table: Table) -> None:
        """Remove a definition; the rows stay."""
        self._transaction.delete(self._keys.table(table.name))

    def claim_again(self, index: Index, table: str) -> None:
        """Let an index belong to a table of another name."""
        self._transaction.put(self._keys.index(index.name), table)

    def _create_index(self, node: exp.Create) -> None:
        only(node, "this", "kind", "unique", "exists")
        inner = node.this
        only(inner, "this", "table", "params")
        only(inner.args["params"], "columns")
        if inner.this is None:
            raise StatementInvalidError("The index has no name.", place_of(inner))
        name = named(inner)
        if self._transaction.read([self._keys.index(name)])[self._keys.index(name)] is not None:
            if node.args.get("exists"):
                return
            raise StatementInvalidError(f"There is an index {name}.", place_of(inner))
        table = self._reader.table(inner.args["table"])
        if len(table.indexes) >= INDEXES_MAX:
            raise StatementInvalidError(
                f"A table has at most {INDEXES_MAX} indexes.", place_of(inner)
            )
        columns = columns_of(table, inner.args["params"].args["columns"])
        index = Index(name, self.number(), columns, bool(node.args.get("unique")))
        self._claim(name, table.name, node)
        self.store(with_fields(table, indexes=(*table.indexes, index)))
        self._fill(table, index)

    def _fill(self, table: Table, index: Index) -> None:
        """Write the entries of the rows that there are."""
        for row in self._reader.rows(table, [access(self._keys, table, {})]):
            key = self._keys.entry(table, index, row.values, row.key)
            if self._transaction.writes.get(key) is not None:
                raise ConstraintViolationError(
                    "unique", index.name, table.name, "Two rows have the same values"
                )
            self._transaction.put(key, row.key)

    def _drop_table(self, target: exp.Expr, *, exists: bool) -> None:
        if exists and self._reader.relation(target.name) is None:
            return
        table = self._reader.table(target)
        others = [child for child in table.children if child != table.name]
        if others:
            raise StatementInvalidError(
                f"Table {', '.join(others)} refers to {table.name}.", place_of(target)
            )
        self.views.require_unused(table, target)
        for index in table.indexes:
            self._forget(index)
        self._remove(self._keys.rows(table))
        self._transaction.delete(self._keys.identity(table))
        self._transaction.delete(self._keys.table(table.name))
        for name in {key.parent for key in table.foreign_keys} - {table.name}:
            parent = self._reader.find(name)
            if parent is not None:
                left = tuple(child for child in parent.children if child != table.name)
                self.store(with_fields(parent, children=left))

    def _drop_index(self, target: exp.Expr, *, exists: bool) -> None:
        key = self._keys.index(target.name)
        of = self._transaction.read([key])[key] if fits(key) else None
        table = None if of is None else self._reader.find(of)
        if table is None:
            if exists:
                return
            raise StatementInvalidError(f"There is no index {target.name}.", place_of(target))
        name = target.name.lower()
        [index] = [each for each in table.indexes if each.name.lower() == name]
        self.drop_index(table, index, target)

    def drop_index(self, table: Table, index: Index, target: exp.Expr) -> None:
        """Drop an index; ``target`` is where the statement names it."""
        left = without(table, index)
        if not self.serves(left):
            raise StatementInvalidError(
                f"A foreign key needs the index {index.name}.", place_of(target)
            )
        self._forget(index)
        self.store(left)

    def serves(self, table: Table) -> bool:
        """Return True if the table has the indexes that foreign keys need."""
        keys = [
            key for name in table.children
            if (child := table if name == table.name else self._reader.find(name))
            for key in child.foreign_keys if key.parent == table.name
        ]  # fmt: skip
        return all(table.begins_with(key.columns) for key in table.foreign_keys) and all(
            set(key.parent_columns) == set(table.primary_key)
            or table.unique_on(key.parent_columns) is not None
            for key in keys
        )

    def _forget(self, index: Index) -> None:
        self._transaction.delete(self._keys.index(index.name))
        self._remove(self._keys.entries(index))

    def _remove(self, prefix: str) -> None:
        for key, _ in list(self._transaction.scan(*part(prefix, [], None))):
            self._transaction.delete(key)

    def _add_child(self, parent: str, child: str) -> None:
        table = self._reader.find(parent)
        if table is not None and child not in table.children:
            self.store(with_fields(table, children=(*table.children, child)))

    def _claim(self, name: str, table: str, node: exp.Expr) -> None:
        """Take a name of an index; they are those of the whole database."""
        key = self._keys.index(name)
        if self._transaction.read([key])[key] is not None:
            raise StatementInvalidError(f"There is an index {name}.", place_of(node.this))
        self._transaction.put(key, table)

    def number(self) -> int:
        """The next number."""
        key = self._keys.number
        number: int = (self._transaction.read([key])[key] or 0) + 1
        self._transaction.put(key, number)
        return number

    def store(self, table: Table) -> None:
        """Write a definition."""
        self._transaction.put(self._keys.table(table.name), table.stored())


def with_fields(table: Table, **fields: object) -> Table:
    """Return a definition with some fields changed."""
    have = {name: getattr(table, name) for name in table.__struct_fields__}
    return Table(**{**have, **fields})


def without(table: Table, index: Index) -> Table:
    """Return a definition without an index."""
    return with_fields(table, indexes=tuple(each for each in table.indexes if each != index))

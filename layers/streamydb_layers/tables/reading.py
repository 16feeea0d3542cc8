"""Put the rows that a query needs on the workbench, and run it.

A query of the user's is executed as it was written: what it names is there under its own name, a
table with the rows that the conditions leave (`access`), a view over what its query names. In a
query that is put together of trees, each place that names a table names one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import replace
from sqlglot import exp

from streamydb_layers.tables import trees
from streamydb_layers.tables.access import NOTHING, Access, Own, Parameters, access, narrowings
from streamydb_layers.tables.errors import StatementInvalidError, place_of
from streamydb_layers.tables.keys import Keys, fits
from streamydb_layers.tables.parsing import Source, source_of, spliced_by_words, unsupported
from streamydb_layers.tables.pushdown import narrowed
from streamydb_layers.tables.schema import Column, Relation, Row, Table, View, relation_of
from streamydb_layers.tables.sources import Reference, is_renamed, references
from streamydb_layers.tables.transaction import Readable
from streamydb_layers.tables.trees import (
    Tree,
    alias_of,
    is_of,
    parameters,
    query_tree,
    spliced,
    text_of,
    text_of_expression,
    walk,
)
from streamydb_layers.tables.types import ColumnType
from streamydb_layers.tables.workbench import Answer, Workbench

ROW = "__row"
"""The column with a row's number, which statements that write add to tables."""

ROWID = "rowid"
"""The number of a row of a table on the workbench; a star does not show it."""

VIEWS_DEEP_MAX: Final = 32
"""Views over views."""


class StoredRow(NamedTuple):
    """A row with the part of its key behind the table's."""

    key: str
    values: Row


Sees: TypeAlias = Mapping[str, Sequence[str]]
"""The columns that a view's query sees, by the names of tables in lower case."""


class _Opening(NamedTuple):
    """A table with the accesses to it; or a view with its query."""

    relation: Relation
    chosen: tuple[Access, ...]
    query: Tree | None

    def with_other(self, other: _Opening) -> _Opening:
        """Join the needs of two places of a query: all rows of a view, if they differ."""
        if self.query == other.query:
            return self._replace(chosen=tuple(dict.fromkeys(self.chosen + other.chosen)))
        view = self.relation
        return self._replace(query=query_tree(view.query) if isinstance(view, View) else None)


def shape(table: Table) -> list[tuple[str, str]]:
    """The columns of a table on the workbench."""
    return [(column.name, column.type) for column in table.columns]


class Reader:
    """Reads tables in one transaction, for one statement.

    Args:
        keys: of the database of tables.
        transaction: what is read.
        bench: where queries run.
    """

    def __init__(self, keys: Keys, transaction: Readable, bench: Workbench) -> None:
        self.keys = keys
        self.transaction = transaction
        self.bench = bench
        self._relations: dict[str, Relation | None] = {}
        self._deep = 0

    def relation(self, name: str) -> Relation | None:
        """The table or view of a name, if there is one."""
        folded = name.lower()
        if folded not in self._relations:
            key = self.keys.table(folded)
            stored = self.transaction.read([key])[key] if fits(key) else None
            self._relations[folded] = None if stored is None else relation_of(stored)
        return self._relations[folded]

    def forget(self) -> None:
        """Read the definitions again: the statement has written some."""
        self._relations.clear()

    def find(self, name: str) -> Table | None:
        """The table of a name, if there is one."""
        found = self.relation(name)
        return found if isinstance(found, Table) else None

    def named(self, node: exp.Expr) -> Relation:
        """The table or view that a part of a statement names.
        Raises StatementInvalidError: there is none.
        """
        if isinstance(node, exp.Schema):
            node = node.this
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise unsupported(node)
        if node.args.get("db") is not None:
            raise unsupported(node, _NO_SCHEMAS)
        if (past := node.args.get("when")) is not None:
            raise unsupported(past, _ONE_STATE)
        found = self.relation(node.name)
        if found is None:
            raise StatementInvalidError(f"There is no table {node.name}.", place_of(node))
        return found

    def table(self, node: exp.Expr) -> Table:
        """The table that a part of a statement names.
        Raises StatementInvalidError: there is none, or it is a view.
        """
        found = self.named(node)
        if isinstance(found, View):
            raise StatementInvalidError(
                f"{found.name} is a view, no table: it is only read.", place_of(node)
            )
        return found

    def query(self, query: exp.Expr) -> Answer:
        """Run a query of the user's, as it was written; tables have their own names there."""
        source = source_of(query)
        tree = query_tree(source.sql)
        if tree is None:
            return self.bench.ask(self._shown_by_names(query, source), query)
        settled = self._show(query, tree, source.values)
        sql = spliced(source.sql, tree, source.literals)
        answer = self.bench.ask(sql, query, settled=settled)
        return renamed(answer, tree, sql)

    def copied(self, query: exp.Expr, kinds: Sequence[ColumnType]) -> Answer:
        """The rows of a query of the user's, each value as one of its column."""
        source = source_of(query)
        tree = query_tree(source.sql)
        if tree is None:
            sql = self._shown_by_names(query, source)
        else:
            self._show(query, tree, source.values)
            sql = spliced(source.sql, tree, source.literals)
        return self.bench.ask_as(sql, kinds, query)

    def described(self, query: exp.Expr, sees: Sees | None = None) -> list[tuple[str, str]]:
        """The names and types of a query's columns; DuckDB sees it without rows."""
        source = source_of(query)
        tree = query_tree(source.sql)
        if tree is None:
            sql = self._shown_by_names(query, source)
        else:
            self._show(query, tree, source.values, sees=sees, empty=True)
            sql = spliced(source.sql, tree, source.literals)
        answer = self.bench.ask(f"describe (\n{sql}\n)", query, settled=True)
        return [(name, kind) for name, kind, *_ in answer.rows]

    def run(self, tree: Tree, source: Source, origin: exp.Expr) -> Answer:
        """Run a query that is put together of trees, over what is laid out."""
        return self.bench.ask(sql_of(tree, source), origin)

    def lay_out(
        self, tree: Tree, origin: exp.Expr, values: Parameters, *, target: Tree | None = None,
        whole: bool = False, sees: Sees | None = None, empty: bool = False,
    ) -> list[StoredRow]:  # fmt: skip
        """Put the tables and views that a query names on the workbench; name those there.

        Args:
            tree: of the query; it is changed.
            origin: of the statement, for the places of errors.
            values: of parameters.
            target: where it names the table that its statement writes.
            whole: whether it sees whole rows of the target, in which no number is to be.
            sees: of a view's query, the columns of each table that are there.
            empty: leave the rows out.

        Returns: the rows of the target, which have their numbers in the column `__row`, or `rowid`.
        """
        found = [
            (each.node, self._opening(each, origin, values, sees=sees, empty=empty))
            for each in references(tree)
        ]
        done: dict[tuple[str, Access], str] = {}
        written: list[StoredRow] = []
        for node, opening in found:
            if isinstance(opening.relation, View):
                show(node, self._define(opening, origin, values, empty=empty))
                continue
            table, [chosen] = opening.relation, opening.chosen
            place = (table.name, chosen)
            if node is target:
                written = list(self.rows(table, [chosen]))
                rows = [row.values for row in written]
                show(node, (self.lay_out_whole if whole else self.lay_out_rows)(table, rows))
                continue
            if place not in done:
                done[place] = self.bench.lay_out(shape(table), self._cells(opening))
            show(node, done[place])
        return written

    def _show(
        self, query: exp.Expr, tree: Tree, values: Parameters, *, sees: Sees | None = None,
        empty: bool = False,
    ) -> bool:  # fmt: skip
        """Put the tables and views that a query names on the workbench, under their own names.

        Where it names one twice, the rows of both places are there. Return True if the rows have to
        be those of real tables.
        """
        found: dict[str, _Opening] = {}
        for each in references(tree):
            opening = self._opening(each, query, values, sees=sees, empty=empty)
            name = opening.relation.name
            found[name] = found[name].with_other(opening) if name in found else opening
        for opening in found.values():
            if isinstance(opening.relation, View):
                self._define(opening, query, values, empty=empty, name=opening.relation.name)
            else:
                self._lay_out_named(opening)
        names = {name.lower() for name in found}
        return any(
            part["key"].lower() in names
            for node in walk(tree) if "cte_map" in node for part in node["cte_map"]["map"]
        )  # fmt: skip

    def _shown_by_names(self, query: exp.Expr, source: Source) -> str:
        """Put all that a query may name on the workbench; return its text with its values.

        DuckDB has no tree of a query that pivots by the values that there are.
        """
        for name in dict.fromkeys(node.name.lower() for node in query.find_all(exp.Table)):
            relation = self.relation(name)
            if isinstance(relation, View):
                opening = _Opening(relation, (), query_tree(relation.query))
                self._define(opening, query, {}, empty=False, name=relation.name)
            elif relation is not None:
                self._lay_out_named(_Opening(relation, (access(self.keys, relation, {}),), None))
        return spliced_by_words(source)

    def _lay_out_named(self, opening: _Opening) -> None:
        relation = opening.relation
        self.bench.lay_out(
            [(column.name, column.type) for column in relation.columns], self._cells(opening),
            name=relation.name,
        )  # fmt: skip

    def _cells(self, opening: _Opening) -> list[list[Any]]:
        """The rows of a table, as far as a query sees its columns."""
        table = opening.relation
        if isinstance(table, View):
            raise TypeError(f"{table.name} is a view: it has no rows of its own")
        return [list(row.values.values()) for row in self.rows(table, opening.chosen)]

    def _define(
        self, opening: _Opening, origin: exp.Expr, values: Parameters, *, empty: bool,
        name: str | None = None,
    ) -> str:  # fmt: skip
        """Put a view on the workbench, with what its query names; return the name there."""
        view = opening.relation
        if not isinstance(view, View) or opening.query is None:
            raise unsupported(origin, f"The query of view {view.name} cannot be read.")
        if self._deep == VIEWS_DEEP_MAX:
            raise StatementInvalidError(f"More than {VIEWS_DEEP_MAX} views lie over each other.")
        self._deep += 1
        tree = trees.copied(opening.query)
        self.lay_out(tree, origin, values, sees=view.uses, empty=empty)
        self._deep -= 1
        sql = sql_of(tree, Source("", values))
        return self.bench.define([column.name for column in view.columns], sql, name)

    def lay_out_rows(self, table: Table, rows: Sequence[Row]) -> str:
        """Put rows of a table on the workbench with their numbers; return the name there."""
        numbered = [[*row.values(), number] for number, row in enumerate(rows)]
        return self.bench.lay_out([*shape(table), (ROW, "BIGINT")], numbered)

    def lay_out_whole(self, table: Table, rows: Sequence[Row]) -> str:
        """Put rows into a table of the workbench, which numbers them aside; return its name."""
        values = [list(row.values()) for row in rows]
        return self.bench.lay_out(shape(table), values, settled=True)

    def rows(self, table: Table, accesses: Sequence[Access]) -> Iterator[StoredRow]:
        """Read the rows of some accesses, each once."""
        prefix = self.keys.rows(table)
        found: dict[str, Any] = {}
        for chosen in accesses:
            found |= self._pairs(prefix, chosen)
        keys = sorted(found) if len(accesses) > 1 else list(found)
        for key in keys:
            yield StoredRow(key.removeprefix(prefix), table.loaded(found[key]))

    def _pairs(self, prefix: str, chosen: Access) -> dict[str, Any]:
        found = [pair for each in chosen.ranges for pair in self.transaction.scan(*each)]
        if chosen.points:
            read = self.transaction.read(chosen.points)
            found += [(key, read[key]) for key in chosen.points if read[key] is not None]
        if chosen.index is not None:
            keys = [prefix + value for _, value in found]
            read = self.transaction.read(keys) if keys else {}
            found = [(key, read[key]) for key in dict.fromkeys(keys)]
        return dict(found)

    def _opening(
        self, found: Reference, origin: exp.Expr, values: Parameters, *, sees: Sees | None,
        empty: bool,
    ) -> _Opening:  # fmt: skip
        """Choose what to read of a table or view by the conditions of the query that names it."""
        relation = self.relation_of(found.node, origin, sees)
        own = self._own(found, relation, origin, sees)
        if isinstance(relation, View):
            query = query_tree(relation.query)
            if query is not None:
                query = narrowed(query, relation, found.conditions, own, values)
            return _Opening(relation, (), query)
        known = narrowings(found.conditions, own, values)
        chosen = NOTHING if empty else access(self.keys, relation, known)
        return _Opening(relation, (chosen,), None)

    def relation_of(self, node: Tree, origin: exp.Expr, sees: Sees | None = None) -> Relation:
        """The table or view that a place in a tree names; errors are where the origin names it."""
        name = node["table_name"]
        written = (each for each in origin.find_all(exp.Table) if each.name == name)
        place = next(written, origin)
        if node["schema_name"] or node["catalog_name"]:
            raise unsupported(place, _NO_SCHEMAS)
        if node["at_clause"]:
            raise unsupported(place, _ONE_STATE)
        found = self.relation(name)
        if found is None:
            raise StatementInvalidError(f"There is no table {name}.", place_of(place))
        return _seen(found, sees)

    def _own(
        self, found: Reference, relation: Relation, origin: exp.Expr, sees: Sees | None
    ) -> Own:
        """Find the column of a table or view that a name means where a query names that.

        None does, if the query names its columns anew, or takes a sample of its rows.
        """
        name = alias_of(found.node).lower()
        other_rows = is_renamed(found.node) or bool(found.node["sample"])
        others = None
        if found.beside is not None:
            others = [self.relation_of(node, origin, sees) for node in found.beside]

        def own(column: Tree) -> Column | None:
            if other_rows or not is_of(column, "COLUMN_REF"):
                return None
            *table, last = column["column_names"]
            if table:
                return relation.column(last) if [name] == [t.lower() for t in table] else None
            if others is None or any(other.column(last) for other in others):
                return None
            return relation.column(last)

        return own


def show(node: Tree, name: str) -> None:
    """Let a place in a tree name a table on the workbench, under the name that it had."""
    bare = name.strip('"')
    node |= {"alias": alias_of(node), "table_name": bare, "qualified_name": {"path": [bare]}}


def sql_of(tree: Tree, source: Source) -> str:
    """The text of a tree with the values of a statement in the places of its parameters."""
    sql = text_of(tree)
    if not source.values or not parameters(tree):
        return sql
    return spliced(sql, query_tree(sql) or {}, source.literals)


def renamed(answer: Answer, tree: Tree, sql: str) -> Answer:
    """An answer whose columns have the names that they have without the values of parameters.

    Args:
        answer: of a query.
        tree: of the query with parameters.
        sql: what was executed.
    """
    cells = [
        (number, cell) for number, cell in enumerate(_cells(tree))
        if not cell["alias"] and parameters(cell)
    ]  # fmt: skip
    if not cells:
        return answer
    executed = list(_cells(query_tree(sql) or {}))
    names = {
        text_of_expression(executed[number]): text_of_expression(cell) for number, cell in cells
    }
    columns = tuple(names.get(name, name) for name in answer.columns)
    return answer._replace(columns=columns)


def _cells(tree: Tree) -> Iterator[Tree]:
    """Yield what the queries of a tree select."""
    for node in walk(tree):
        yield from node.get("select_list") or []


def _seen(found: Relation, sees: Sees | None) -> Relation:
    """A relation with the columns that a view's query sees of it."""
    if sees is None or isinstance(found, View):
        return found
    seen = sees[found.name.lower()]
    return replace(found, columns=tuple(c for c in found.columns if c.name in seen))


_NO_SCHEMAS: Final = "Tables have no schemas: write the table's name alone."
_ONE_STATE: Final = "A statement reads one state: give the request an `at`."

"""Put the rows that a query needs on the workbench, and run it.

Each place where a query names a table becomes a temporary table of its own, with the rows that the
conditions there leave (`access`). Where it names a view it becomes a view there, over what that
one's query names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace
from sqlglot import exp

from streamydb.layers.tables.access import NOTHING, Access, access, narrowings
from streamydb.layers.tables.errors import StatementInvalidError, place_of
from streamydb.layers.tables.keys import Keys, fits
from streamydb.layers.tables.parsing import DIALECT, unsupported
from streamydb.layers.tables.pushdown import opened
from streamydb.layers.tables.schema import Column, Relation, Row, Table, View, relation_of
from streamydb.layers.tables.transaction import Readable
from streamydb.layers.tables.workbench import Answer, Workbench

__all__ = ["ROW", "ROWID", "VIEWS_DEEP_MAX", "Reader", "StoredRow", "shape", "show"]

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
    """A table with the access to it; or a view with its query."""

    relation: Relation
    chosen: Access
    query: exp.Expr


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
        """Nothing is read yet."""
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

    def named(self, node: exp.Expr, sees: Sees | None = None) -> Relation:
        """The table or view that a part of a statement names.

        Args:
            node: the part.
            sees: of a view's query; of a table then only these columns are there.

        Raises:
            StatementInvalidError: there is none.
        """
        if isinstance(node, exp.Schema):
            node = node.this
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise unsupported(node)
        if node.args.get("db") is not None:
            raise unsupported(node, "Tables have no schemas: write the table's name alone.")
        if (past := node.args.get("when")) is not None:
            raise unsupported(past, "A statement reads one state: give the request an `at`.")
        found = self.relation(node.name)
        if found is None:
            raise StatementInvalidError(f"There is no table {node.name}.", place_of(node))
        if sees is None or isinstance(found, View):
            return found
        seen = sees[node.name.lower()]
        return replace(found, columns=tuple(c for c in found.columns if c.name in seen))

    def table(self, node: exp.Expr) -> Table:
        """The table that a part of a statement names.

        Raises:
            StatementInvalidError: there is none, or it is a view.
        """
        found = self.named(node)
        if isinstance(found, View):
            raise StatementInvalidError(
                f"{found.name} is a view, no table: it is only read.", place_of(node)
            )
        return found

    def query(self, query: exp.Expr, origin: exp.Expr | None = None) -> Answer:
        """Run a query over tables; its own tree is left as it is."""
        made = query.copy()
        self.lay_out(made)
        return self.bench.ask(made.sql(DIALECT), origin or query)

    def described(self, query: exp.Expr, sees: Sees | None = None) -> list[tuple[str, str]]:
        """The names and types of a query's columns; DuckDB sees it without rows."""
        made = query.copy()
        self.lay_out(made, sees=sees, empty=True)
        answer = self.bench.ask(f"describe ({made.sql(DIALECT)})", query)
        return [(name, kind) for name, kind, *_ in answer.rows]

    def references(self, query: exp.Expr) -> list[exp.Table]:
        """The parts of a query that name tables and views."""
        return [node for node in query.find_all(exp.Table) if _is_stored(node)]

    def lay_out(
        self, query: exp.Expr, target: exp.Table | None = None, *, whole: bool = False,
        sees: Sees | None = None, empty: bool = False,
    ) -> list[StoredRow]:  # fmt: skip
        """Put the tables and views that a query names on the workbench; name those there.

        Args:
            query: its tree is changed.
            target: where it names the table that its statement writes.
            whole: whether it sees whole rows of the target, in which no number is to be.
            sees: of a view's query, the columns of each table that are there.
            empty: leave the rows out.

        Returns: the rows of the target, which have their numbers in the column `__row`, or `rowid`.
        """
        references = self.references(query)
        found = [(node, self._opening(node, sees, empty=empty)) for node in references]
        done: dict[tuple[str, Access], str] = {}
        written: list[StoredRow] = []
        for node, opening in found:
            if isinstance(opening.relation, View):
                show(node, self._define(opening.relation, opening.query, empty=empty))
                continue
            table, chosen = opening.relation, opening.chosen
            place = (table.name, chosen)
            if node is target:
                written = list(self.rows(table, chosen))
                values = [row.values for row in written]
                show(node, (self.lay_out_whole if whole else self.lay_out_rows)(table, values))
                continue
            if place not in done:
                rows = [list(row.values.values()) for row in self.rows(table, chosen)]
                done[place] = self.bench.lay_out(shape(table), rows)
            show(node, done[place])
        return written

    def _define(self, view: View, query: exp.Expr, *, empty: bool) -> str:
        """Put a view on the workbench, with what its query names; return the name there."""
        if self._deep == VIEWS_DEEP_MAX:
            raise StatementInvalidError(f"More than {VIEWS_DEEP_MAX} views lie over each other.")
        self._deep += 1
        self.lay_out(query, sees=view.uses, empty=empty)
        self._deep -= 1
        return self.bench.define([column.name for column in view.columns], query.sql(DIALECT))

    def lay_out_rows(self, table: Table, rows: Sequence[Row]) -> str:
        """Put rows of a table on the workbench with their numbers; return the name there."""
        numbered = [[*row.values(), number] for number, row in enumerate(rows)]
        return self.bench.lay_out([*shape(table), (ROW, "BIGINT")], numbered)

    def lay_out_whole(self, table: Table, rows: Sequence[Row]) -> str:
        """Put rows into a table of the workbench, which numbers them aside; return its name."""
        values = [list(row.values()) for row in rows]
        return self.bench.lay_out(shape(table), values, settled=True)

    def rows(self, table: Table, chosen: Access) -> Iterator[StoredRow]:
        """Read the rows of an access."""
        prefix = self.keys.rows(table)
        found = [pair for each in chosen.ranges for pair in self.transaction.scan(*each)]
        if chosen.points:
            read = self.transaction.read(chosen.points)
            found += [(key, read[key]) for key in chosen.points if read[key] is not None]
        if chosen.index is not None:
            keys = [prefix + value for _, value in found]
            read = self.transaction.read(keys) if keys else {}
            found = [(key, read[key]) for key in dict.fromkeys(keys)]
        for key, value in dict(found).items():
            yield StoredRow(key.removeprefix(prefix), table.loaded(value))

    def _opening(self, node: exp.Table, sees: Sees | None, *, empty: bool) -> _Opening:
        """Choose what to read of a table or view by the conditions of the query that names it."""
        relation = self.named(node, sees)
        own = self._own(node, relation, sees)
        if isinstance(relation, View):
            return _Opening(relation, NOTHING, opened(relation, node, own))
        chosen = NOTHING if empty else access(self.keys, relation, narrowings(node, own))
        return _Opening(relation, chosen, node)

    def _own(
        self, node: exp.Table, relation: Relation, sees: Sees | None
    ) -> Callable[[exp.Column], Column | None]:
        """Find the column of a table or view that a name means where a query names that.

        None does, if the query names its columns anew, pivots them, or takes a sample of its rows.
        """
        name = node.alias_or_name.lower()
        others = self._others(node, sees)
        other_rows = bool(_renames(node) or node.args.get("sample"))

        def own(column: exp.Column) -> Column | None:
            if other_rows:
                return None
            if column.table:
                return relation.column(column.name) if column.table.lower() == name else None
            if others is None or any(other.column(column.name) for other in others):
                return None
            return relation.column(column.name)

        return own

    def _others(self, node: exp.Table, sees: Sees | None) -> list[Relation] | None:
        """The others beside this one; None if something else is beside it."""
        place = node.parent
        select = place.parent if place is not None else None
        if not isinstance(select, exp.Select):
            return None
        sources = [select.args.get("from_"), *(select.args.get("joins") or [])]
        sources += select.args.get("laterals") or []
        others: list[Relation] = []
        for source in sources:
            inner = source.this if isinstance(source, exp.From | exp.Join) else source
            if inner is node or inner is None:
                continue
            if not isinstance(inner, exp.Table) or not _is_stored(inner) or _renames(inner):
                return None
            others.append(self.named(inner, sees))
        return others


_SHOWN = "streamydb_shown"


def _is_stored(node: exp.Expr) -> bool:
    """Return True if a table is one of ours: no function, no part of a WITH, no workbench's."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        return False
    if node.meta.get(_SHOWN):
        return False
    return node.args.get("db") is not None or node.name.lower() not in _with_names(node)


def _renames(node: exp.Table) -> bool:
    """Return True if a query gives the columns of a table other names: `t as x(a, b)`, PIVOT."""
    return bool(node.alias_column_names or node.args.get("pivots"))


def show(node: exp.Table, name: str, alias: str | None = None) -> None:
    """Let a reference mean a table on the workbench, under the name that it had."""
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(alias or node.name, quoted=True)))
    node.set("this", exp.to_identifier(name.strip('"'), quoted=True))
    node.meta[_SHOWN] = True


def _with_names(node: exp.Expr) -> set[str]:
    """The names that WITH gives where a table is named."""
    found: set[str] = set()
    below: exp.Expr = node
    above = node.parent
    while above is not None:
        if isinstance(above, exp.With):
            inner = list(above.expressions)
            before = inner if above.args.get("recursive") else inner[: inner.index(below)]
            found |= {each.alias.lower() for each in before}
        given = above.args.get("with_")
        if given is not None and given is not below:
            found |= {each.alias.lower() for each in given.expressions}
        below, above = above, above.parent
    return found

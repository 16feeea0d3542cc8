"""Put the rows that a query needs on the workbench, and run it.

Each place where a query names a table becomes a temporary table of its own, with the rows that the
conditions there leave (`access`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from streamydb.layers.tables.access import Access, Narrowings, access, narrowings
from streamydb.layers.tables.errors import StatementInvalidError, place_of
from streamydb.layers.tables.keys import Keys
from streamydb.layers.tables.parsing import DIALECT, unsupported
from streamydb.layers.tables.schema import Column, Row, Table
from streamydb.layers.tables.transaction import Readable
from streamydb.layers.tables.workbench import Answer, Workbench

__all__ = ["ROW", "Reader", "StoredRow", "shape", "show"]

ROW = "__row"
"""The column with a row's number, which statements that write add to tables."""


class StoredRow(NamedTuple):
    """A row with the part of its key behind the table's."""

    key: str
    values: Row


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
        self._tables: dict[str, Table | None] = {}

    def find(self, name: str) -> Table | None:
        """The table of a name, if there is one."""
        folded = name.lower()
        if folded not in self._tables:
            key = self.keys.table(folded)
            stored = self.transaction.read([key])[key]
            self._tables[folded] = None if stored is None else Table.of(stored)
        return self._tables[folded]

    def table(self, node: exp.Expr) -> Table:
        """The table that a part of a statement names.

        Raises:
            StatementInvalidError: there is none.
        """
        if isinstance(node, exp.Schema):
            node = node.this
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise unsupported(node)
        if node.args.get("db") is not None:
            raise unsupported(node, "Tables have no schemas: write the table's name alone.")
        found = self.find(node.name)
        if found is None:
            raise StatementInvalidError(f"There is no table {node.name}.", place_of(node))
        return found

    def query(self, query: exp.Expr, origin: exp.Expr | None = None) -> Answer:
        """Run a query over tables; its own tree is left as it is."""
        made = query.copy()
        self.lay_out(made)
        return self.bench.ask(made.sql(DIALECT), origin or query)

    def lay_out(self, query: exp.Expr, target: exp.Table | None = None) -> list[StoredRow]:
        """Put the tables that a query names on the workbench; name those there.

        Args:
            query: its tree is changed.
            target: where it names the table that its statement writes.

        Returns: the rows of the target, which have their numbers in the column `__row`.
        """
        references = [node for node in query.find_all(exp.Table) if self._is_stored(node)]
        found = [(node, self.table(node), self._known(node)) for node in references]
        done: dict[tuple[str, Access], str] = {}
        written: list[StoredRow] = []
        for node, table, known in found:
            chosen = access(self.keys, table, known)
            place = (table.name, chosen)
            if node is target:
                written = list(self.rows(table, chosen))
                show(node, self.lay_out_rows(table, [row.values for row in written]))
                continue
            if place not in done:
                rows = [list(row.values.values()) for row in self.rows(table, chosen)]
                done[place] = self.bench.lay_out(shape(table), rows)
            show(node, done[place])
        return written

    def lay_out_rows(self, table: Table, rows: Sequence[Row]) -> str:
        """Put rows of a table on the workbench with their numbers; return the name there."""
        numbered = [[*row.values(), number] for number, row in enumerate(rows)]
        return self.bench.lay_out([*shape(table), (ROW, "BIGINT")], numbered)

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

    def _known(self, node: exp.Table) -> Narrowings:
        table = self.table(node)
        name = node.alias_or_name.lower()
        others = self._others(node)

        def own(column: exp.Column) -> Column | None:
            if column.table:
                return table.column(column.name) if column.table.lower() == name else None
            if others is None or any(other.column(column.name) for other in others):
                return None
            return table.column(column.name)

        return narrowings(node, own)

    def _others(self, node: exp.Table) -> list[Table] | None:
        """The other tables beside this one; None if something else is beside it."""
        place = node.parent
        select = place.parent if place is not None else None
        if not isinstance(select, exp.Select):
            return None
        sources = [select.args.get("from_"), *(select.args.get("joins") or [])]
        sources += select.args.get("laterals") or []
        others: list[Table] = []
        for source in sources:
            inner = source.this if isinstance(source, exp.From | exp.Join) else source
            if inner is node or inner is None:
                continue
            if not isinstance(inner, exp.Table) or not self._is_stored(inner):
                return None
            others.append(self.table(inner))
        return others

    def _is_stored(self, node: exp.Expr) -> bool:
        """Return True if a table is one of ours: no function, no part of a WITH, no workbench's."""
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            return False
        if node.meta.get(_SHOWN):
            return False
        return node.args.get("db") is not None or node.name.lower() not in _with_names(node)


_SHOWN = "streamydb_shown"


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

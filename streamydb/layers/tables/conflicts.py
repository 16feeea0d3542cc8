"""ON CONFLICT: rows that are there already, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streamydb.layers.tables.assigning import assigned, given, names_row, sees_whole
from streamydb.layers.tables.errors import ConstraintViolationError, StatementInvalidError, place_of
from streamydb.layers.tables.parsing import DIALECT, only, unsupported
from streamydb.layers.tables.reading import ROW, ROWID, Reader, StoredRow
from streamydb.layers.tables.schema import Index, Row, Table
from streamydb.layers.tables.writing import Writer

__all__ = ["Conflicts"]

_EXCLUDED = "excluded"


class Conflicts:
    """The ON CONFLICT of one INSERT.

    Args:
        reader: of the statement.
        writer: of the statement.
        table: which is inserted into.
        alias: what the statement calls it.
    """

    def __init__(self, reader: Reader, writer: Writer, table: Table, alias: str) -> None:
        """Nothing is read yet."""
        self._reader, self._writer = reader, writer
        self._table, self._alias = table, alias

    def settle(
        self, node: exp.OnConflict, rows: Sequence[Row]
    ) -> tuple[list[StoredRow], list[Row]]:
        """The rows that are replaced; and their new states, followed by the rows that are new."""
        only(node, "action", "conflict_keys", "expressions", "where")
        ways = self._ways(node)
        update = node.args["action"].name.upper() == "DO UPDATE"
        if update and len(ways) != 1:
            raise unsupported(node, "DO UPDATE needs the columns that conflict: ON CONFLICT (...).")
        assigned = self._assignments(node) if update else ([], [])
        meetings = [self._meetings(way, rows) for way in ways]
        taken: set[str] = set()
        new: list[Row] = []
        met: list[tuple[str, Row]] = []
        for number, row in enumerate(rows):
            holders = {h for holders, _ in meetings if (h := holders[number]) is not None}
            found = [f for _, stored in meetings for h in holders if (f := stored.get(h))]
            if update and holders & taken:
                raise ConstraintViolationError(
                    "unique", "on conflict", self._table.name,
                    "DO UPDATE would meet a row a second time",
                )  # fmt: skip
            if found:
                met.append((found[0], row))
                taken |= holders if update else set()
            elif not holders & taken:
                new.append(row)
                taken |= holders
        if not update or not met:
            return [], new
        old, changed = self._updated(node, met, *assigned)
        return old, [*changed, *new]

    def _ways(self, node: exp.OnConflict) -> list[Index | None]:
        """The unique indexes, None for the primary key, in which rows may meet."""
        keys = node.args.get("conflict_keys")
        table = self._table
        if not keys:
            own: list[Index | None] = [None] if table.primary_key else []
            return [*own, *(index for index in table.indexes if index.unique)]
        names = []
        for key in keys:
            inner = key.this if isinstance(key, exp.Ordered) else key
            column = table.column(inner.name)
            names.append(inner.name if column is None else column.name)
        if set(names) == set(table.primary_key):
            return [None]
        index = table.unique_on(names)
        if index is None:
            raise StatementInvalidError(
                f"({', '.join(names)}) is neither the primary key of {table.name} nor unique.",
                place_of(keys[0]),
            )
        return [index]

    def _meetings(
        self, way: Index | None, rows: Sequence[Row]
    ) -> tuple[list[str | None], dict[str, str]]:
        """For each row the key with which it takes its values; and the rows that have them."""
        nullable = self._table.primary_key if way is None else ()
        holders = [
            None if any(row[name] is None for name in nullable)
            else self._writer.holder(self._table, way, row)
            for row in rows
        ]  # fmt: skip
        wanted = [holder for holder in holders if holder is not None]
        return holders, self._writer.stored(self._table, way, wanted) if wanted else {}

    def _updated(
        self, node: exp.OnConflict, met: Sequence[tuple[str, Row]], names: Sequence[str],
        cells: Sequence[str],
    ) -> tuple[list[StoredRow], list[Row]]:  # fmt: skip
        """The rows that DO UPDATE changes, before and after."""
        stored = self._writer.rows(self._table, [key for key, _ in met])
        old = [stored[key] for key, _ in met]
        where = node.args.get("where")
        condition = "true" if where is None else self._own(where.this).sql(DIALECT)
        said = [where, *(part.expression for part in node.expressions)]
        whole = sees_whole(said, self._table, self._alias, _EXCLUDED)
        number = ROWID if whole else ROW
        mine = self._laid_out([row.values for row in old], whole=whole)
        other = self._laid_out([row for _, row in met], whole=whole)
        alias = exp.to_identifier(self._alias, quoted=True).sql(DIALECT)
        shown = ", ".join([f"{alias}.{number}", *cells])
        joined = f"{mine} as {alias} join {other} as {_EXCLUDED}"
        behind = f"on {alias}.{number} = {_EXCLUDED}.{number} where {condition} order by 1"
        sql = f"select {shown} from {joined} {behind}"  # noqa: S608 - DuckDB is shut off
        answer = self._reader.bench.ask(sql, node)
        if len(answer.columns) != 1 + len(cells):
            raise StatementInvalidError("A column is set to one value.", place_of(node))
        changed = [
            {**old[number].values, **dict(zip(names, values, strict=True))}
            for number, *values in answer.rows
        ]
        return [old[number] for number, *_ in answer.rows], changed

    def _laid_out(self, rows: Sequence[Row], *, whole: bool) -> str:
        reader = self._reader
        return (reader.lay_out_whole if whole else reader.lay_out_rows)(self._table, rows)

    def _assignments(self, node: exp.OnConflict) -> tuple[list[str], list[str]]:
        columns = assigned(self._table, node.expressions)
        cells = [
            column.kind.cast(self._own(given(part.expression, column)).sql(DIALECT))
            for part, column in zip(node.expressions, columns, strict=True)
        ]
        return [column.name for column in columns], cells

    def _own(self, node: exp.Expr) -> exp.Expr:
        """An expression where a column without a table is one of the row that is there."""
        if found := node.find(exp.Query):
            raise unsupported(found, "DO UPDATE takes no queries.")
        made = node.copy()
        for column in list(made.find_all(exp.Column)):
            rows = any(names_row(column, self._table, a) for a in (self._alias, _EXCLUDED))
            if not column.table and not rows:
                column.set("table", exp.to_identifier(self._alias, quoted=True))
        return made

"""ON CONFLICT: rows that are there already, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from streamydb_layers.tables import trees
from streamydb_layers.tables.assigning import assigned, cast, given, sees_whole
from streamydb_layers.tables.errors import ConstraintViolationError, StatementInvalidError, place_of
from streamydb_layers.tables.parsing import only, unsupported
from streamydb_layers.tables.reading import ROW, ROWID, Reader, StoredRow
from streamydb_layers.tables.schema import Index, Row, Table
from streamydb_layers.tables.trees import Tree, is_of
from streamydb_layers.tables.writing import Writer
from streamydb_layers.tables.written import Write

_EXCLUDED = "excluded"


class Conflicts:
    """The ON CONFLICT of one INSERT.

    Args:
        reader: of the statement.
        writer: of the statement.
        table: which is inserted into.
        write: the statement.
    """

    def __init__(self, reader: Reader, writer: Writer, table: Table, write: Write) -> None:
        self._reader, self._writer = reader, writer
        self._table, self._alias, self._write = table, write.alias, write

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
        cells: Sequence[Tree],
    ) -> tuple[list[StoredRow], list[Row]]:  # fmt: skip
        """The rows that DO UPDATE changes, before and after."""
        stored = self._writer.rows(self._table, [key for key, _ in met])
        old = [stored[key] for key, _ in met]
        said = self._write.tree["on_conflict_info"]["set_info"]
        where = said["condition"]
        whole = sees_whole([where, *said["expressions"]], self._table, self._alias, _EXCLUDED)
        number = ROWID if whole else ROW
        mine, other = (trees.reference(name, number) for name in (self._alias, _EXCLUDED))
        source = trees.joined(
            self._laid_out([row.values for row in old], self._alias, whole=whole),
            self._laid_out([row for _, row in met], _EXCLUDED, whole=whole),
            trees.equal(mine, other),
        )
        query = trees.select([mine, *cells], source, where and self._own(where, node))
        answer = self._reader.run(trees.ordered(query), self._write.source, node)
        if len(answer.columns) != 1 + len(cells):
            raise StatementInvalidError("A column is set to one value.", place_of(node))
        changed = [
            {**old[number].values, **dict(zip(names, values, strict=True))}
            for number, *values in answer.rows
        ]
        return [old[number] for number, *_ in answer.rows], changed

    def _laid_out(self, rows: Sequence[Row], alias: str, *, whole: bool) -> Tree:
        reader = self._reader
        name = (reader.lay_out_whole if whole else reader.lay_out_rows)(self._table, rows)
        return trees.names_of(name.strip('"'), alias)

    def _assignments(self, node: exp.OnConflict) -> tuple[list[str], list[Tree]]:
        columns = assigned(self._table, node.expressions)
        values = self._write.tree["on_conflict_info"]["set_info"]["expressions"]
        cells = [
            cast(self._own(given(value, column), node), column)
            for value, column in zip(values, columns, strict=True)
        ]
        return [column.name for column in columns], cells

    def _own(self, tree: Tree, node: exp.Expr) -> Tree:
        """An expression where a column without a table is one of the row that is there."""
        if any(is_of(each, "SUBQUERY") for each in trees.walk(tree)):
            raise unsupported(node.find(exp.Query) or node, "DO UPDATE takes no queries.")
        made = trees.copied(tree)
        for column in trees.columns(made):
            name, *more = column["column_names"]
            if not more and self._table.column(name) is not None:
                column["column_names"] = [self._alias, name]
        return made

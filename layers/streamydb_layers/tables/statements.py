"""Execute one statement in a transaction: queries, and those that write rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from streamydb.sql import python_value
from streamydb_layers.tables import trees
from streamydb_layers.tables.altering import Alterations
from streamydb_layers.tables.assigning import assigned, cast, given, is_default, sees_whole
from streamydb_layers.tables.conflicts import Conflicts
from streamydb_layers.tables.defining import Catalog
from streamydb_layers.tables.definitions import column_definition
from streamydb_layers.tables.errors import (
    ConstraintViolationError,
    DataRefusedError,
    SqlError,
    StatementInvalidError,
    place_of,
)
from streamydb_layers.tables.keys import Keys
from streamydb_layers.tables.parsing import DIALECT, only, too_deep, unsupported
from streamydb_layers.tables.reading import ROW, ROWID, Reader, StoredRow, renamed, shape, sql_of
from streamydb_layers.tables.schema import Column, Row, Table
from streamydb_layers.tables.transaction import Overlay, Transaction
from streamydb_layers.tables.trees import Tree, is_of
from streamydb_layers.tables.types import INTEGERS
from streamydb_layers.tables.workbench import Answer, Workbench
from streamydb_layers.tables.writing import Writer
from streamydb_layers.tables.written import Write, written

_NEXT: Final = object()
"""The value of an identity column where a statement gives none, until the row is numbered."""


@dataclass(frozen=True, slots=True)
class Result:
    """The rows of a statement, and how many it wrote; iterating gives the rows.

    Attributes:
        columns: the names of the columns; none if the statement returns no rows.
        types: the types of the columns, as DuckDB names them.
        rows: the values; those of JSON are decoded.
        changed: how many rows were written; None if the statement writes none.
    """

    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    changed: int | None = None

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows by column name; of columns with one name the last one counts."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def execute(statement: exp.Expr, keys: Keys, transaction: Transaction, bench: Workbench) -> Result:
    """Execute a statement; it writes all that it has to, or raises and writes nothing.
    Raises SqlError: it cannot be executed.
    """
    overlay = Overlay(transaction)
    try:
        result = Statement(statement, keys, overlay, bench).execute()
    except SqlError as error:
        error.put_at(place_of(statement))
        raise
    except RecursionError:
        raise too_deep() from None
    except (ArithmeticError, ValueError) as error:
        raise DataRefusedError(
            f"A value cannot be computed with: {error}", place_of(statement)
        ) from error
    overlay.write_to(transaction)
    return result


class Statement:
    """One statement on its way."""

    def __init__(
        self, statement: exp.Expr, keys: Keys, transaction: Overlay, bench: Workbench
    ) -> None:
        self._statement = statement
        self._keys, self._transaction, self._bench = keys, transaction, bench
        self._reader = Reader(keys, transaction, bench)
        self._catalog = Catalog(self._reader, transaction)
        self._alterations = Alterations(self._catalog, self._reader, transaction, self._check)

    def execute(self) -> Result:
        """Do it."""
        node = self._statement
        if isinstance(node, exp.Query | exp.Values):
            if writing := node.find(exp.DML):
                raise unsupported(writing, "A query only reads; writes are statements.")
            return _result(self._reader.query(node))
        for kind, method in self._methods().items():
            if isinstance(node, kind):
                return method(node)
        raise unsupported(node)

    def _methods(self) -> dict[type[exp.Expr], Callable[[Any], Result]]:
        def defined(method: Callable[[Any], None]) -> Callable[[Any], Result]:
            def call(node: Any) -> Result:
                method(node)
                return Result()

            return call

        return {
            exp.Insert: self._insert, exp.Update: self._update, exp.Delete: self._delete,
            exp.Create: self._create, exp.Drop: defined(self._catalog.drop),
            exp.Alter: defined(self._alterations.alter),
        }  # fmt: skip

    def _create(self, node: exp.Create) -> Result:
        query, target = node.expression, node.this
        plain = node.kind != "TABLE" or query is None or not isinstance(target, exp.Table)
        if plain or self._reader.relation(target.name) is not None:
            self._catalog.create(node)
            return Result()
        only(node, "this", "kind", "exists", "expression")
        columns = [column_definition(*each, query) for each in self._reader.described(query)]
        shape = exp.Schema(this=target.copy(), expressions=columns)
        self._catalog.create(exp.Create(this=shape, kind="TABLE"))
        self._reader.forget()
        self._bench.clear()
        table = self._reader.table(target)
        names = [column.name for column in table.columns]
        answer = self._reader.copied(query, [column.kind for column in table.columns])
        rows = [dict(zip(names, row, strict=True)) for row in answer.rows]
        return Result(changed=len(self._inserted(table, rows)))

    def _insert(self, node: exp.Insert) -> Result:
        only(node, "this", "expression", "conflict", "returning", "default", "with_", "is_function")
        write = written(node)
        table = self._reader.table(node.this)
        columns = self._columns(table, node.this)
        rows = self._numbered(table, table.columns, self._proposed(write, table, columns))
        conflict = node.args.get("conflict")
        if conflict is None:
            return self._returned(write, table, self._inserted(table, rows))
        writer = Writer(self._keys, self._transaction, self._reader.find, self._check)
        self._check(table, rows)
        conflicts = Conflicts(self._reader, writer, table, write)
        old, rows = conflicts.settle(conflict, rows)
        self._renumbered(table, _assignments(conflict, write), rows[: len(old)])
        self._check(table, rows[: len(old)])
        made = writer.write(table, old, rows)
        writer.finish()
        return self._returned(write, table, made)

    def _inserted(self, table: Table, rows: Sequence[Row]) -> list[StoredRow]:
        """Write new rows."""
        self._check(table, rows)
        writer = Writer(self._keys, self._transaction, self._reader.find, self._check)
        made = writer.write(table, [], rows)
        writer.finish()
        return made

    def _columns(self, table: Table, target: exp.Expr) -> list[Column]:
        if not isinstance(target, exp.Schema):
            return list(table.columns)
        found: list[Column] = []
        for name in target.expressions:
            column = table.column(name.name)
            if column is None or column in found:
                raise StatementInvalidError(
                    f"Column {name.name} is "
                    + ("named twice." if column else f"none of table {table.name}."),
                    place_of(name),
                )
            found.append(column)
        return found

    def _proposed(self, write: Write, table: Table, columns: list[Column]) -> list[Row]:
        """The rows that an INSERT gives, with defaults in the columns that it does not name."""
        if write.tree["default_values"]:
            return self._defaults(table, list(table.columns), 1)
        source = write.tree["select_statement"]["node"]
        values = source.get("from_table") or {}
        given_rows = values["values"] if is_of(values, "EXPRESSION_LIST") else None
        if given_rows is None:
            query = self._selected(write, source, columns)
        else:
            query = self._values(write, given_rows, columns)
        names = [column.name for column in columns]
        rows = [dict(zip(names, row, strict=True)) for row in query.rows]
        for row, cells in zip(rows, given_rows or [], strict=False):
            pairs = zip(columns, cells, strict=True)
            row.update(_unnumbered(column for column, cell in pairs if is_default(cell)))
        missing = [column for column in table.columns if column not in columns]
        defaults = self._defaults(table, missing, len(rows))
        return [{**other, **row} for other, row in zip(defaults, rows, strict=True)]

    def _values(
        self, write: Write, rows: Sequence[Sequence[Tree]], columns: list[Column]
    ) -> Answer:
        """The rows of VALUES, each value as one of its column."""
        origin = write.node.expression
        for row, place in zip(rows, origin.expressions, strict=True):
            if len(row) != len(columns):
                raise StatementInvalidError(
                    f"There are {len(row)} values for {len(columns)} columns.", place_of(place)
                )
        cells = [
            [cast(given(cell, column), column) for cell, column in zip(row, columns, strict=True)]
            for row in rows
        ]
        query = {**trees.values_in(cells), "cte_map": write.tree["cte_map"]}
        return self._run(query, write, origin)

    def _run(self, query: Tree, write: Write, origin: exp.Expr) -> Answer:
        """Run a query over tables that is a part of a statement."""
        made = trees.copied(query)
        self._reader.lay_out(made, write.node, write.source.values)
        return self._reader.run(made, write.source, origin)

    def _selected(self, write: Write, query: Tree, columns: list[Column]) -> Answer:
        """The rows of a query, each value as one of its column."""
        origin = write.node.expression
        if write.node.args.get("with_"):
            raise unsupported(
                write.node.args["with_"], "Write WITH behind INSERT INTO and its columns."
            )
        made = trees.copied(query)
        self._reader.lay_out(made, write.node, write.source.values)
        return self._bench.ask_as(
            sql_of(made, write.source), [column.kind for column in columns], origin
        )

    def _defaults(self, table: Table, columns: Sequence[Column], count: int) -> list[Row]:
        """The defaults of columns, computed for each row, in the order of the table's columns."""
        if not columns or not count:
            return [dict.fromkeys((c.name for c in table.columns), None) for _ in range(count)]
        cells = ", ".join(
            column.kind.cast("null" if column.default is None else column.default)
            for column in columns
        )
        found = self._bench.ask(f"select {cells} from range({count})")  # noqa: S608 - as above
        empty = dict.fromkeys((column.name for column in table.columns), None)
        names = [column.name for column in columns]
        return [
            {**empty, **dict(zip(names, row, strict=True)), **_unnumbered(columns)}
            for row in found.rows
        ]

    def _renumbered(
        self, table: Table, parts: Sequence[tuple[exp.Expr, Tree]], rows: list[Row]
    ) -> None:
        """Number rows anew in the identity columns that a SET gives their default."""
        columns = assigned(table, [part for part, _ in parts])
        pairs = zip(parts, columns, strict=True)
        anew = _unnumbered(column for (_, value), column in pairs if is_default(value))
        for row in rows:
            row.update(anew)
        self._numbered(table, columns, rows)

    def _numbered(self, table: Table, columns: Sequence[Column], rows: list[Row]) -> list[Row]:
        """Number the rows that have no number of their own in an identity column.

        The last number is at least as large as those that were given, so that no later row gets
        one that is taken.
        """
        for column in columns:
            if not rows or not _is_numbered(column):
                continue
            key = self._keys.identity(table)
            last = self._transaction.read([key])[key] or 0
            for row in rows:
                if row[column.name] is _NEXT:
                    row[column.name] = _after(last, column)
                last = max(last, row[column.name] or 0)
            self._transaction.put(key, last)
        return rows

    def _update(self, node: exp.Update) -> Result:
        only(node, "this", "expressions", "from_", "where", "returning", "with_")
        write = written(node)
        table = self._reader.table(node.this)
        columns = assigned(table, node.expressions)
        values = write.tree["set_info"]["expressions"]
        cells = [
            cast(given(value, column), column)
            for value, column in zip(values, columns, strict=True)
        ]
        old, answers = self._matching(write, cells)
        names = [column.name for column in columns]
        new = [
            {**row.values, **dict(zip(names, found, strict=True))}
            for row, found in zip(old, answers, strict=True)
        ]
        self._renumbered(table, list(zip(node.expressions, values, strict=True)), new)
        self._check(table, new)
        writer = Writer(self._keys, self._transaction, self._reader.find, self._check)
        made = writer.write(table, old, new)
        writer.finish()
        return self._returned(write, table, made)

    def _delete(self, node: exp.Delete) -> Result:
        only(node, "this", "using", "where", "returning", "with_")
        write = written(node)
        table = self._reader.table(node.this)
        old, _ = self._matching(write, [])
        writer = Writer(self._keys, self._transaction, self._reader.find, self._check)
        writer.write(table, old, [])
        writer.finish()
        return self._returned(write, table, old)

    def _matching(
        self, write: Write, cells: list[Tree]
    ) -> tuple[list[StoredRow], list[tuple[Any, ...]]]:
        """The rows that a statement means, each once, with values computed for each."""
        said = write.tree
        where = said["set_info"]["condition"] if "set_info" in said else said["condition"]
        table = self._reader.table(write.node.this)
        whole = sees_whole([*cells, where], table, write.alias)
        target = trees.copied(said["table"])
        others = said.get("using_clauses") or [said.get("from_table")]
        source = target
        for other in others:
            source = source if other is None else trees.cross(source, trees.copied(other))
        number = trees.reference(write.alias, ROWID if whole else ROW)
        query = trees.select([number, *cells], source, where)
        query["cte_map"] = trees.copied(said["cte_map"])
        rows = self._reader.lay_out(
            query, write.node, write.source.values, target=target, whole=whole
        )
        found: dict[int, tuple[Any, ...]] = {}
        answer = self._reader.run(query, write.source, write.node)
        if len(answer.columns) != 1 + len(cells):
            raise StatementInvalidError("A column is set to one value.", place_of(write.node))
        for row, *values in answer.rows:
            found.setdefault(row, tuple(values))
        return [rows[row] for row in found], list(found.values())

    def _check(self, table: Table, rows: Sequence[Row]) -> None:
        """Hold rows against NOT NULL and the table's checks."""
        for column in table.columns:
            if column.not_null and any(row[column.name] is None for row in rows):
                hint = ": leave it out, or say DEFAULT" if column.identity else ""
                raise ConstraintViolationError(
                    "not null", column.name, table.name, f"Column {column.name} is NULL{hint}"
                )
        if not table.checks or not rows:
            return
        name = self._bench.lay_out(shape(table), [list(row.values()) for row in rows])
        alias = exp.to_identifier(table.name, quoted=True).sql(DIALECT)
        for check in table.checks:
            condition = f"where not ({check.expression}) limit 1"
            sql = f"select 1 from {name} as {alias} {condition}"  # noqa: S608 - as above
            if self._bench.ask(sql).rows:
                raise ConstraintViolationError(
                    "check", check.name, table.name, f"A row does not fulfil {check.expression}"
                )

    def _returned(self, write: Write, table: Table, rows: Sequence[StoredRow]) -> Result:
        """The rows that a statement wrote, as RETURNING wants them."""
        returning = write.node.args.get("returning")
        if returning is None:
            return Result(changed=len(rows))
        only(returning, "expressions")
        cells = write.tree["returning_list"]
        if any(is_of(node, "SUBQUERY") for node in trees.walk(cells)):
            place = returning.find(exp.Query) or returning
            raise unsupported(place, "RETURNING takes no queries.")
        # Without numbers, which a star would show: one thread of DuckDB keeps the order of rows.
        bench = self._bench.lay_out(shape(table), [list(row.values.values()) for row in rows])
        query = trees.select(cells, trees.names_of(bench.strip('"'), write.alias))
        sql = sql_of(query, write.source)
        answer = renamed(self._bench.ask(sql, returning), query, sql)
        return _result(answer, len(rows))


def _assignments(conflict: exp.OnConflict, write: Write) -> list[tuple[exp.Expr, Tree]]:
    """The assignments of DO UPDATE, and what they set."""
    said = write.tree["on_conflict_info"]["set_info"]
    values = [] if said is None else said["expressions"]
    return list(zip(conflict.expressions, values, strict=True))


def _is_numbered(column: Column) -> bool:
    return column.identity and column.type in INTEGERS


def _unnumbered(columns: Iterable[Column]) -> Row:
    """The values of the identity columns among some, for a row that gives them none."""
    return {column.name: _NEXT for column in columns if _is_numbered(column)}


def _after(last: int, column: Column) -> int:
    """The number of a row after the last one."""
    if last >= INTEGERS[column.type]:
        raise DataRefusedError(
            f"Column {column.name} has no more numbers: {last} is the largest of {column.type}."
        )
    return last + 1


def _result(answer: Answer, changed: int | None = None) -> Result:
    try:
        rows = tuple(
            tuple(python_value(cell, kind) for cell, kind in zip(row, answer.types, strict=True))
            for row in answer.rows
        )
    except ValueError as error:  # pragma: no cover - DuckDB checks its JSON
        raise DataRefusedError(str(error)) from None
    return Result(answer.columns, answer.types, rows, changed)

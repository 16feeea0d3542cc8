"""Evaluate queries by DuckDB over the rows that a statement has read.

A workbench is a database in memory, shut off from files, network and extensions. A statement lays
its rows out, asks, and clears them away. A few rows go with each query that names them, in its
WITH, as to make and drop a table takes DuckDB far longer than to run a small query; many rows, and
what views name, become temporary tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamydb.client.forks import Kept
from streamydb.sql import UnheldValueError, connect, fetched, lock, message_of
from streamydb_layers.tables.clock import FUNCTIONS, Clock, asks, setting
from streamydb_layers.tables.errors import (
    DataRefusedError,
    SqlError,
    StatementInvalidError,
    place_of,
)
from streamydb_layers.tables.types import FINITE, ColumnType

if TYPE_CHECKING:
    import duckdb
    from sqlglot import exp

_OWN: Final = '"__'
"""With what the names of our own tables and columns begin."""

_HINTS = ("Candidate bindings", "Candidate tables", "Did you mean")
_FEW_MAX: Final = 50
"""How many rows of a table go with a query; each query that names them carries them."""

_FINITE: Final = (
    f"create macro {FINITE}(x) as case when isinf(x) then "
    "error('An infinite time is not within the years 1 to 9999.') else x end"
)

_BEGIN: Final = re.compile(
    r"(with\s+recursive\s|with\s(?!\s*recursive\b))(?=\s*[\w\"])|"
    r"(?=(?:select|from|values)\b|\()",
    re.IGNORECASE,
)
_PIVOT: Final = re.compile(r"\bpivot\b", re.IGNORECASE)
"""DuckDB makes several statements of it, and takes no parameters then."""

_NAME = re.compile(r'"([^"]+)"|\b(?:name|function) (\w+)')


class Answer(NamedTuple):
    """The rows of a query.

    Attributes:
        columns: names.
        types: as DuckDB names them.
        rows: values as DuckDB hands them over.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class _Rows(NamedTuple):
    """A query that has rows as its result, and its parameters: a list for each column."""

    sql: str
    values: list[list[Any]]


class Workbench:
    """One database in memory, for one thread at a time.

    Attributes:
        broken: whether DuckDB has met a fault of its own, after which it does nothing any more.
        clock: of the transaction whose statements run here.
    """

    def __init__(self) -> None:
        """Make it, and shut it off. Raises SqlMissingError: DuckDB is not installed."""
        self._connection = connect({"threads": "1"})
        self._connection.execute("set timezone = 'UTC'")
        for macro in (_FINITE, *FUNCTIONS):
            self._connection.execute(macro)
        lock(self._connection)
        self.broken = False
        self.clock = Clock()
        self._names = 0
        self._few: dict[str, _Rows] = {}
        self._own: set[str] = set()
        self._made: list[str] = []

    def lay_out(
        self, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], *,
        settled: bool = False, name: str | None = None,
    ) -> str:  # fmt: skip
        """Make a table of columns (name and type), a real one if it is to be ``settled``; return
        its name, in quotes.

        One with a ``name`` is there for a query as the user wrote it.
        """
        name = self._new_name() if name is None else self._named(name)
        values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
        lists = ", ".join(f"unnest(?::{kind}[]) as {_quoted(each)}" for each, kind in columns)
        self._few[name] = _Rows(f"select {lists}", values)
        if settled or len(rows) > _FEW_MAX:
            self._settle()
        return name

    def define(self, columns: Sequence[str], sql: str, name: str | None = None) -> str:
        """Make a view of a query over what is laid out; return its name, in quotes.
        Raises SqlError: as for `ask`.
        """
        self._settle()
        name = self._new_name() if name is None else _quoted(name)
        self.ask(f"create temp view {name} ({', '.join(map(_quoted, columns))}) as {sql}")
        self._made.append(f"view {name}")
        return name

    def ask(self, sql: str, origin: exp.Expr | None = None, *, settled: bool = False) -> Answer:
        """Run a query.

        Args:
            sql: the query over tables that are laid out.
            origin: what the user wrote, for the place of an error.
            settled: whether the tables are to be real ones.

        Raises:
            StatementInvalidError: it cannot be run.
            DataRefusedError: it cannot be computed with these values.
            MemoryError: there is too little.
        """
        import duckdb

        try:
            if settled:
                self._settle()
            if asks(sql):
                self._connection.execute(setting(self.clock))
            done = self._connection.execute(*self._whole(sql))
            rows = _fetched(done)
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(str(error)) from None
        except duckdb.Error as error:
            internal = isinstance(error, duckdb.InternalException | duckdb.FatalException)
            self.broken = self.broken or internal
            raise _refused(error, origin) from None
        except UnicodeDecodeError as error:  # of DuckDB's message
            raise _refused(error, origin) from None
        shown = done.description or []
        return Answer(
            tuple(column[0] for column in shown), tuple(str(column[1]) for column in shown), rows
        )

    def ask_as(self, sql: str, kinds: Sequence[ColumnType], origin: exp.Expr) -> Answer:
        """Run a query; each value is one of its column's type.
        Raises StatementInvalidError: it has more or fewer columns; SqlError: as for `ask`.
        """
        shape = f"select * from (\n{sql}\n) limit 0"  # noqa: S608 - DuckDB is shut off
        width = len(self.ask(shape, origin).columns)
        if width != len(kinds):
            raise StatementInvalidError(
                f"The query has {width} columns for {len(kinds)}.", place_of(origin)
            )
        cells = ", ".join(kind.cast(f"#{number}") for number, kind in enumerate(kinds, 1))
        return self.ask(f"select {cells} from (\n{sql}\n)", origin)  # noqa: S608 - as above

    def clear(self) -> None:
        """Remove all tables and views."""
        if self._made:
            self._connection.execute("; ".join(f"drop {made}" for made in self._made))
        self._made.clear()
        self._few.clear()
        self._own.clear()
        self._names = 0

    def close(self) -> None:
        """End."""
        self._connection.close()

    def _new_name(self) -> str:
        self._names += 1
        return f'"__streamydb_{self._names}"'

    def _named(self, name: str) -> str:
        made = _quoted(name)
        self._own.add(made)
        return made

    def _whole(self, sql: str) -> tuple[str, list[list[Any]]]:
        """Return a query with the few rows that it names, and their values."""
        named = [name for name in self._few if name in self._own or _is_in(name, sql)]
        begin = None if _PIVOT.search(sql) else _BEGIN.match(sql)
        if named and begin is None:
            self._settle()
        if not named or begin is None:
            return sql, []
        rows = ", ".join(f"{name} as ({self._few[name].sql})" for name in named)
        values = [column for name in named for column in self._few[name].values]
        return f"{begin[1] or 'with '}{rows}{', ' if begin[1] else ' '}{sql[begin.end() :]}", values

    def _settle(self) -> None:
        """Make tables of the few rows."""
        for name, rows in self._few.items():
            self._connection.execute(f"create temp table {name} as {rows.sql}", rows.values)
            self._made.append(f"table {name}")
        self._few.clear()
        self._own.clear()


class Workbenches:
    """Workbenches for any number of threads; each is used again, by the process that made it."""

    def __init__(self) -> None:
        self._kept = Kept(Workbench, Workbench.close)

    @contextmanager
    def one(self, clock: Clock | None = None) -> Iterator[Workbench]:
        """Lend one for a statement; ``clock``: of its transaction."""
        bench = self._kept.take()
        bench.clock = clock or Clock()
        try:
            yield bench
        except SqlError:
            self._take_back(bench)
            raise
        except BaseException:
            bench.close()
            raise
        self._take_back(bench)

    def _take_back(self, bench: Workbench) -> None:
        """Keep one for the next statement, if it is sound."""
        if bench.broken:
            bench.close()
            return
        bench.clear()
        self._kept.give(bench)

    def close(self) -> None:
        """Close those that are not lent."""
        self._kept.close()


def _fetched(done: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """The rows of a query. Raises DataRefusedError: one has a value that no value of Python is."""
    try:
        return fetched(done)
    except UnheldValueError as error:
        raise DataRefusedError(str(error)) from None


def _refused(error: duckdb.Error | UnicodeDecodeError, origin: exp.Expr | None) -> SqlError:
    """The error in the statement's own words, with the place of the name that it is about."""
    import duckdb

    first, *more = message_of(error).partition("\n\nLINE")[0].splitlines()
    message = first.partition("Error: ")[2] or first
    hints = [line.strip() for line in more if line.startswith(_HINTS) and _OWN not in line]
    of_values = duckdb.DataError | duckdb.InvalidInputException | UnicodeDecodeError
    data = isinstance(error, of_values)
    kind = DataRefusedError if data else StatementInvalidError
    return kind(" ".join([message, *hints]), place_of(_culprit(message, origin)))


def _culprit(message: str, origin: exp.Expr | None) -> exp.Expr | None:
    if origin is None:
        return None
    names = {(a or b).lower() for a, b in _NAME.findall(message)}
    for node in origin.walk():
        if "line" in node.meta and node.name.lower() in names:
            return node
    return origin


def _is_in(name: str, sql: str) -> bool:
    """Return True if a text names one of our own tables, with quotes or without."""
    return re.search(rf"\b{name[1:-1]}\b", sql) is not None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

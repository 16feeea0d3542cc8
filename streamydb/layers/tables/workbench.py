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
from streamydb.layers.tables.errors import (
    DataRefusedError,
    SqlError,
    StatementInvalidError,
    place_of,
)
from streamydb.layers.tables.types import FINITE
from streamydb.sql.engine import connect, lock

if TYPE_CHECKING:
    import duckdb
    from sqlglot import exp

__all__ = ["Answer", "Workbench", "Workbenches"]

_OWN: Final = '"__'
"""With what the names of our own tables and columns begin."""

_HINTS = ("Candidate bindings", "Candidate tables", "Did you mean")
_FEW_MAX: Final = 50
"""How many rows of a table go with a query; each query that names them carries them."""

_FINITE: Final = (
    f"create macro {FINITE}(x) as case when isinf(x) then "
    "error('An infinite time is not within the years 1 to 9999.') else x end"
)

_BEGIN: Final = re.compile(r"(with recursive |with )|(?=select |\()", re.IGNORECASE)
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
    """

    def __init__(self) -> None:
        """Make it, and shut it off.

        Raises:
            SqlMissingError: DuckDB is not installed.
        """
        self._connection = connect({"threads": "1"})
        self._connection.execute("set timezone = 'UTC'")
        self._connection.execute(_FINITE)
        lock(self._connection)
        self.broken = False
        self._names = 0
        self._few: dict[str, _Rows] = {}
        self._made: list[str] = []

    def lay_out(
        self, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], *,
        settled: bool = False,
    ) -> str:  # fmt: skip
        """Make a table of columns (name and type), a real one if it is to be ``settled``; return
        its name, in quotes.
        """
        name = self._new_name()
        values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
        lists = ", ".join(f"unnest(?::{kind}[]) as {_quoted(each)}" for each, kind in columns)
        self._few[name] = _Rows(f"select {lists}", values)
        if settled or len(rows) > _FEW_MAX:
            self._settle()
        return name

    def define(self, columns: Sequence[str], sql: str) -> str:
        """Make a view of a query over what is laid out; return its name, in quotes.

        Raises:
            SqlError: as for `ask`.
        """
        self._settle()
        name = self._new_name()
        self.ask(f"create temp view {name} ({', '.join(map(_quoted, columns))}) as {sql}")
        self._made.append(f"view {name}")
        return name

    def ask(self, sql: str, origin: exp.Expr | None = None) -> Answer:
        """Run a query.

        Args:
            sql: the query over tables that are laid out.
            origin: what the user wrote, for the place of an error.

        Raises:
            StatementInvalidError: it cannot be run.
            DataRefusedError: it cannot be computed with these values.
            MemoryError: there is too little.
        """
        import duckdb

        try:
            done = self._connection.execute(*self._whole(sql))
            rows = done.fetchall()
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(str(error)) from None
        except duckdb.Error as error:
            internal = isinstance(error, duckdb.InternalException | duckdb.FatalException)
            self.broken = self.broken or internal
            raise _refused(error, origin) from None
        shown = done.description or []
        return Answer(
            tuple(column[0] for column in shown), tuple(str(column[1]) for column in shown), rows
        )

    def clear(self) -> None:
        """Remove all tables and views."""
        if self._made:
            self._connection.execute("; ".join(f"drop {made}" for made in self._made))
        self._made.clear()
        self._few.clear()
        self._names = 0

    def close(self) -> None:
        """End."""
        self._connection.close()

    def _new_name(self) -> str:
        self._names += 1
        return f'"__{self._names}"'

    def _whole(self, sql: str) -> tuple[str, list[list[Any]]]:
        """Return a query with the few rows that it names, and their values."""
        named = [name for name in self._few if name in sql]
        begin = None if _PIVOT.search(sql) else _BEGIN.match(sql)
        if named and begin is None:
            self._settle()
        if not named or begin is None:
            return sql, []
        rows = ", ".join(f"{name} as ({self._few[name].sql})" for name in named)
        values = [column for name in named for column in self._few[name].values]
        return f"{begin[1] or 'with '}{rows}{', ' if begin[1] else ' '}{sql[begin.end():]}", values

    def _settle(self) -> None:
        """Make tables of the few rows."""
        for name, rows in self._few.items():
            self._connection.execute(f"create temp table {name} as {rows.sql}", rows.values)
            self._made.append(f"table {name}")
        self._few.clear()


class Workbenches:
    """Workbenches for any number of threads; each is used again, by the process that made it."""

    def __init__(self) -> None:
        """None is made yet."""
        self._kept = Kept(Workbench, Workbench.close)

    @contextmanager
    def one(self) -> Iterator[Workbench]:
        """Lend one for a statement."""
        bench = self._kept.take()
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


def _refused(error: duckdb.Error, origin: exp.Expr | None) -> SqlError:
    """The error in the statement's own words, with the place of the name that it is about."""
    import duckdb

    first, *more = str(error).partition("\n\nLINE")[0].splitlines()
    message = first.partition("Error: ")[2] or first
    hints = [line.strip() for line in more if line.startswith(_HINTS) and _OWN not in line]
    data = isinstance(error, duckdb.DataError | duckdb.InvalidInputException)
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

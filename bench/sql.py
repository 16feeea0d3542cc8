"""`streamydb bench sql`: processor time of statements on SQL tables, in one thread.

Keys lie in memory, so that the figures are those of the layer: parsing, choosing keys, DuckDB,
indexes. A commit of a database, which no statement waits for less than, is not in it. SQLite does
the same statements in the same run, each parsed anew, as a measure of the machine.
"""

from __future__ import annotations

import sqlite3
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from rich.console import Console
from rich.table import Table

from bench.errors import BenchError
from bench.machine import machine
from streamydb import __version__
from streamydb.cli.phases import Phases
from streamydb.errors import install
from streamydb.records import canonical, decode_value

__all__ = ["SqlOptions", "show", "sql"]

_T = TypeVar("_T")
_SCHEMA: Final = (
    "create table customers (id int primary key, name text not null)",
    """create table orders (id int primary key, customer int not null references customers,
    total double not null check (total >= 0), state text)""",
    "create index by_customer on orders (customer)",
)
_CUSTOMERS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    """What to measure; see `streamydb bench sql --help`."""

    rows: int = 1_000
    statements: int = 200
    batches: int = 5


class _Store:
    """Keys in memory for one thread; see `streamydb_layers.tables.transaction.Store`."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._keys: list[str] = []

    def begin(self) -> _Store:
        return self

    def run(self, function: Callable[[Any], _T]) -> _T:
        from streamydb_layers.tables.transaction import Overlay

        overlay = Overlay(self)
        value = function(overlay)
        self.commit(overlay.writes)
        return value

    def read(self, keys: Sequence[str]) -> dict[str, Any]:
        found = ((key, self._values.get(key)) for key in keys)
        return {key: None if data is None else decode_value(data) for key, data in found}

    def scan(self, start: str, end: str) -> list[tuple[str, Any]]:
        inside = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
        return [(key, decode_value(self._values[key])) for key in inside]

    def commit(self, writes: Mapping[str, Any]) -> None:
        for key, value in writes.items():
            if value is None:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
                continue
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = canonical(value)


@dataclass(frozen=True, slots=True)
class _Case:
    """Statements of one kind; ``params`` are those of the n-th, ``share`` of how many are made."""

    name: str
    sql: str
    params: Callable[[int], list[Any]]
    share: float = 1.0


@dataclass(slots=True)
class _Best:
    """µs of processor time a statement; the least of some batches counts."""

    figures: dict[str, float] = field(default_factory=dict)

    def time(self, name: str, count: int, work: Callable[[], object]) -> None:
        begun = time.process_time()
        work()
        spent = (time.process_time() - begun) * 1e6 / count
        self.figures[name] = min(spent, self.figures.get(name, spent))


def _cases(rows: int) -> list[_Case]:
    total = "select sum(total) from orders o join customers c on o.customer = c.id"
    return [
        _Case("insert", "insert into orders values (?, ?, ?, ?)",
              lambda n: [rows + n, n % _CUSTOMERS, 1.5, "open"]),
        _Case("select by key", "select * from orders where id = ?", lambda n: [n % rows]),
        _Case("select by index", "select id from orders where customer = ?",
              lambda n: [n % _CUSTOMERS]),
        _Case("update", "update orders set total = total + ? where id = ?",
              lambda n: [0.5, n % rows]),
        _Case(f"join of {rows:,} rows", f"{total} where total >= ?", lambda _: [0.0], 0.1),
    ]  # fmt: skip


def sql(options: SqlOptions, phases: Phases) -> dict[str, Any]:
    """Measure each kind of statement.

    Raises:
        BenchError: the extra `sql` is missing, or SQLite and the tables differ in the end.
    """
    if find_spec("sqlglot") is None:
        raise BenchError(f"SQL tables need sqlglot and DuckDB: {install('sql')}")
    rows = []
    for case in _cases(options.rows):
        with phases.phase(case.name) as phase:
            best = _Best()
            for _ in range(options.batches):
                _batch(case, options, best)
            phase.outcome = f"{best.figures['total_us']:,.0f} µs a statement"
            rows.append(_row(case.name, best.figures))
    return {
        "benchmark": "sql", "rows": rows, "table_rows": options.rows, "version": __version__,
        "machine": machine(),
    }  # fmt: skip


def _batch(case: _Case, options: SqlOptions, best: _Best) -> None:
    """Execute some statements on new tables, and in SQLite."""
    from streamydb_layers.tables import Tables
    from streamydb_layers.tables.parsing import bind, parse

    count = max(1, round(options.statements * case.share))
    params = [case.params(number) for number in range(count)]
    with Tables(_Store()) as tables:
        lite = _filled(tables, options.rows)
        best.time("parse_us", count, lambda: [bind(parse(case.sql)[0], each) for each in params])
        best.time("total_us", count, lambda: [tables.sql(case.sql, each) for each in params])
        best.time(
            "sqlite_us", count, lambda: [lite.execute(case.sql, p).fetchall() for p in params]
        )
        _same(tables, lite)
        lite.close()


def _filled(tables: Any, rows: int) -> sqlite3.Connection:
    """Fill tables, and SQLite with the same."""
    lite = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
    customers = ", ".join(f"({n}, 'customer {n}')" for n in range(_CUSTOMERS))
    orders = ", ".join(f"({n}, {n % _CUSTOMERS}, {n}.25, 'open')" for n in range(rows))
    fill = [f"insert into customers values {customers}"]  # noqa: S608 - our own numbers
    fill += [f"insert into orders values {orders}"]  # noqa: S608 - as above
    for statement in (*_SCHEMA, *fill):
        tables.sql(statement)
        lite.execute(statement)
    return lite


def _same(tables: Any, lite: sqlite3.Connection) -> None:
    shown = "select count(*), sum(total), max(id) from orders"
    if list(tables.sql(shown)) != lite.execute(shown).fetchall():
        raise BenchError("SQLite and the tables differ: please report it")


def _row(name: str, figures: dict[str, float]) -> dict[str, Any]:
    told = {part: round(us, 1) for part, us in figures.items()}
    return {"case": name, **told, "per_s": round(1e6 / figures["total_us"])}


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the answer as a table."""
    table = Table("statement", "statements/s", "µs", "of it parse and bind", "SQLite, µs")
    for row in answer["rows"]:
        table.add_row(
            row["case"], f"{row['per_s']:,}", f"{row['total_us']:,.1f}",
            f"{row['parse_us']:,.1f}", f"{row['sqlite_us']:,.1f}",
        )  # fmt: skip
    console.print(table)
    told = answer["machine"]
    console.print(f"Processor time of one thread; {told['processor']}, load {told['load']}.")

"""Queries over few rows, which go with the query, and over many, which become a table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("duckdb")

import duckdb

from streamydb_layers.tables import StatementInvalidError, Tables, workbench
from streamydb_layers.tables.workbench import Workbench


class Invalidated:
    """A connection after a fault of DuckDB's own: it does nothing any more."""

    def execute(self, *_: object) -> None:
        raise duckdb.FatalException("database has been invalidated because of a previous error")

    def close(self) -> None:
        """End."""


QUERIES = [
    "select sum(a) from {0}",
    "(select a from {0} where a > 1 order by a) union all select a from {1}",
    "with x as (select a + 1 as a from {0}) select max(a) from x",
    "WITH x AS (SELECT a FROM {0}), y AS (SELECT a FROM {1}) SELECT x.a, y.a FROM x CROSS JOIN y",
    "with recursive x(n) as (select 1 union all select n + 1 from x where n < 3) select n from x",
    "describe (select a, b from {0})",
    "select count(*) from {0} as one join {0} as other on one.a = other.a",
    "select 'x' || b, '{0}' from {0} order by b",
]


@pytest.fixture
def bench() -> Iterator[Workbench]:
    made = Workbench()
    yield made
    made.close()


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("rows", [[], [(1, "a")], [(3, None), (1, "b"), (2, "c''")]])
def test_few_rows_are_seen_as_a_table_of_them_is(
    bench: Workbench, query: str, rows: list[tuple[int, str | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    shape = [("a", "INTEGER"), ("b", "VARCHAR")]
    found = []
    for most in (50, -1):
        monkeypatch.setattr(workbench, "_FEW_MAX", most)
        names = [bench.lay_out(shape, rows), bench.lay_out(shape, [(7, "z")])]
        found.append([bench.ask(query.format(*names)) for _ in range(2)])
        bench.clear()
    assert found[0] == found[1]
    assert found[0][0] == found[0][1]


def test_views_see_what_was_laid_out_and_nothing_is_left(bench: Workbench) -> None:
    rows = bench.lay_out([("a", "BIGINT")], [(1,), (2,)])
    view = bench.define(["n"], f"select a * 2 from {rows}")
    more = bench.lay_out([("a", "BIGINT")], [(4,)])
    assert bench.ask(f"select n from {view} join {more} on n = a").rows == [(4,)]
    bench.clear()
    assert bench.ask("select count(*) from duckdb_tables() where temporary").rows == [(0,)]
    assert bench.lay_out([("a", "BIGINT")], [(5,)]) == rows
    assert bench.ask(f"select a from {rows}").rows == [(5,)]


def test_a_fault_of_duckdb_ends_one_statement_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with Tables.in_memory() as tables:
        tables.sql("create table t (a int)")
        [bench] = tables._benches._kept._free.get()
        monkeypatch.setattr(bench, "_connection", Invalidated())
        with pytest.raises(StatementInvalidError, match="invalidated"):
            tables.sql("select a from t")
        assert tables.sql("select a from t").rows == ()

"""A statement with a subquery does the same each time: what is kept of its text is not changed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb_layers.tables import SqlError, Tables
from tests.support.seeds import thinned

INNER = (
    "(select k from t)", "(select k from t limit 2)",
    "(select k from t order by k limit 1 offset 1)",
    "(select max(k) from t)", "(select k from w)", "(select a.k from t a join t b using (k))",
    "(with c as (select k from t) select k from c)", "(select k from t union select v from t)",
    "(select k from t where k in (select max(v) from t))",
)  # fmt: skip
OUTER = (
    "select k from t where k in {inner}",
    "select * from {inner} x",
    "delete from t where k in {inner}",
    "delete from t where k in {inner} returning k, v",
    "delete from t using {inner} x where t.k = x.k",
    "update t set v = 5 where k in {inner} returning v",
    "update t set v = (select max(k) from {inner} x(k))",
    "update t set v = x.k from {inner} x(k) where t.k = x.k",
    "insert into t (k) select k + 100 from {inner} x(k)",
    "insert into t values (1, (select max(k) from {inner} x(k))) on conflict (k) do nothing",
    "insert into t values (1, 9) on conflict (k) do update set v = (select 5 in {inner})::int",
    "with q as {inner} delete from t where k in (select * from q)",
    "create table u as select * from {inner} x(k)",
)


@pytest.mark.parametrize("outer", thinned(OUTER, 3))
def test_a_statement_does_the_same_each_time(outer: str) -> None:
    for inner in INNER:
        sql = outer.format(inner=inner)
        seen = []
        for _ in range(2):
            with Tables.in_memory() as tables:
                tables.sql("create table t (k int primary key, v int)")
                tables.sql("create view w as select k from t where k > 1")
                tables.sql("insert into t values (1, 3), (2, 2), (3, 1), (4, null)")
                try:
                    answer: Any = tables.sql(sql).rows
                except SqlError as error:
                    answer = (type(error), str(error))
                seen.append((answer, tables.sql("select * from t order by k").rows))
        assert seen[0] == seen[1], sql
        assert "__streamydb" not in repr(seen), sql

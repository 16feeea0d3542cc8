"""SQL tables that are altered, and transactions that go back to a savepoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.layers.tables import StatementInvalidError, StatementUnsupportedError, Tables
from tests.unit.layers.test_tables import refused, state


@pytest.fixture
def tables() -> Iterator[Tables]:
    with Tables.in_memory("shop") as made:
        yield made


def test_tables_are_altered(tables: Tables) -> None:
    tables.sql("create table p (id int primary key)")
    tables.sql("create table t (id int primary key, n int check (t.n > 0), p int references p)")
    tables.sql("insert into p values (1)")
    tables.sql("insert into t values (1, 5, 1), (2, 6, null)")
    tables.sql("alter table t add column c int not null default 7 check (c > n)")
    tables.sql("alter table t add d text unique")
    found = tables.sql("select * from t order by id").rows
    assert found == ((1, 5, 1, 7, None), (2, 6, None, 7, None))
    tables.sql("update t set d = 'q' where id = 1")
    for sql, says in (
        ("add e int not null", "e is NULL"), ("add e int default 1 unique", "same values"),
        ("drop column n", "check t_check1"), ("drop column d", "index t_d_key"),
        ("alter p set not null", "p is NULL"), ("rename to p", "There is a table p"),
        ("drop constraint z", "no constraint z"), ("alter id drop not null", "primary key"),
    ):  # fmt: skip
        assert says in str(refused(tables, f"alter table t {sql}"))
    assert "foreign key t_p_fkey" in str(refused(tables, "alter table p drop column id"))
    for sql in ("t rename column n to m", "t rename id to k", "p rename column id to pid",
                "t rename to u", "p rename to q", "u alter c set default 9",
                "u alter column c drop not null", "if exists nope add c int",
                "u add column if not exists c text", "u drop column if exists z"):  # fmt: skip
        tables.sql(f"alter table {sql}")
    for sql, says in (
        ("insert into u values (9, -1, null, 9, 'z')", "check t_check1"),
        ("insert into u values (9, 1, 8, 9, 'z')", "no row with pid = 8"),
        ("insert into u values (9, 1, 1, 9, 'q')", "unique t_d_key"),
        ("delete from q", "Rows of u refer to pid = 1"),
    ):
        assert says in str(refused(tables, sql))
    for name in ("t_p_fkey", "t_check1", "t_check1_2", "t_d_key"):
        tables.sql(f"alter table u drop constraint {name}")
    tables.sql("alter table u drop column p")
    tables.sql("alter table u add p text")
    tables.sql("insert into u (k, m) values (9, -1)")
    assert tables.sql("select * from u order by k").rows == (
        (1, 5, 7, "q", None), (2, 6, 7, None, None), (9, -1, 9, None, None),
    )  # fmt: skip
    tables.sql("drop table q")
    tables.sql("drop table u")
    assert {key.rpartition("/")[2] for key in state(tables)} == {"number"}


def test_one_change_in_a_statement(tables: Tables) -> None:
    tables.sql("create table t (id int primary key, n int, m int)")
    for change in ("add column a int, add column b int", "drop column n, drop column m"):
        error = refused(tables, f"alter table t {change}")
        assert isinstance(error, StatementUnsupportedError)


def test_savepoints(tables: Tables) -> None:
    tables.sql("create table t (id int primary key)")
    with tables.begin() as several:
        several.sql("insert into t values (1)")
        several.savepoint("a")
        several.sql("insert into t values (2)")
        several.sql("savepoint A")
        several.sql("insert into t values (3)")
        several.sql("rollback to savepoint a")
        assert several.sql("select id from t order by id").rows == ((1,), (2,))
        several.sql("release a")
        several.rollback_to("a")
        assert several.sql("select id from t").rows == ((1,),)
        several.release("a")
        with pytest.raises(StatementInvalidError, match="no savepoint a"):
            several.sql("rollback to a")
    script = "insert into t values (5); savepoint s; delete from t; rollback to s"
    tables.script(f"begin; {script}; commit")
    assert tables.sql("select id from t order by id").rows == ((1,), (5,))

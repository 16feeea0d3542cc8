"""Views: what they show, what is read and checked for them, and what they keep others from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.testing.clients import MemoryHost
from streamydb_layers.tables import (
    SqlError,
    StatementInvalidError,
    StatementUnsupportedError,
    Tables,
    TransactionConflictError,
)
from streamydb_layers.tables.memory import MemoryStore, State
from streamydb_layers.tables.reading import VIEWS_DEEP_MAX
from tests.layers.unit.test_tables import refused, state
from tests.support.counting import Counting, make_people

SCHEMA = (
    "create table t (id int primary key, n int, x text)",
    "create table u (id int primary key, t int references t)",
    "insert into t values (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'a')",
    "insert into u values (1, 1), (2, 1), (3, 3)",
    "create view big as select id, n * 2 as m, x from t where n > 10",
    "create view counted (t, uses) as select t, count(*) from u group by t",
    "create view both as select b.id, m, uses from big b left join counted c on c.t = b.id",
)


def filled(tables: Tables) -> Tables:
    for sql in SCHEMA:
        tables.sql(sql)
    return tables


@cache
def filled_state() -> tuple[int, State]:
    """Return what tables in memory hold then, which is filled once."""
    with Tables(store := MemoryStore(), "shop") as made:
        filled(made)
    return store._last


@pytest.fixture
def alone() -> Iterator[Tables]:
    store = MemoryStore()
    store._last = filled_state()
    with Tables(store, "shop") as made:
        yield made


@pytest.fixture(params=["memory", "client"])
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    if request.param == "memory":
        yield request.getfixturevalue("alone")
        return
    with MemoryHost() as host, Tables(host.connect(), "shop") as made:
        yield filled(made)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select * from big", [(2, 40, "b"), (3, 60, "a")]),
        ("select B.ID from BIG as b where b.x = 'a'", [(3,)]),
        ("select * from both", [(2, 40, None), (3, 60, 1)]),
        ("select u.id, m from u join big on big.id = u.t", [(3, 60)]),
        ("select id from t where id in (select t from counted where uses > 1)", [(1,)]),
        ("with big as (select 1 as one) select * from big", [(1,)]),
        ("select a.id, b.id from big a, big b where a.id < b.id", [(2, 3)]),
        ("select x as y from big v(a, b, x) union select x from t where id = 1", [("a",), ("b",)]),
    ],
)
def test_a_view_is_read_as_a_table_is(alone: Tables, query: str, rows: list[Any]) -> None:
    assert sorted(alone.sql(query).rows) == rows


def test_rows_that_are_written_may_come_of_views(alone: Tables) -> None:
    alone.sql("insert into u select id + 10, id from big")
    alone.sql("update t set n = m from big where big.id = t.id and big.id = 2")
    alone.sql("delete from u using counted c where u.t = c.t and uses = 2")
    assert sorted(alone.sql("select * from u").rows) == [(12, 2)]
    assert alone.sql("select n from t where id = 2").rows == ((40,),)


def test_a_transaction_sees_its_own_writes_in_views(tables: Tables) -> None:
    with tables.begin() as several:
        several.sql("insert into t values (4, 40, 'd')")
        several.sql("create view last as select max(m) as m from big")
        assert several.sql("select m from last").rows == ((80,),)
        several.savepoint("a")
        several.sql("drop view last")
        assert [view.name for view in several.views()] == ["big", "both", "counted"]
        several.rollback_to("a")
        several.sql("create or replace view last as select min(m) as m from big")
    assert tables.sql("select m from last").rows == ((40,),)


def test_views_are_read_within_a_function_and_over_rest() -> None:
    with MemoryHost() as host:
        client = host.connect()
        with Tables(client, "shop") as tables:
            filled(tables)

            def function(view: Any) -> Any:
                tables.within(view).sql("delete from t where id = 2")
                tables.within(view).sql("create view few as select count(*) as c from big")
                return tables.within(view).sql("select c from few").rows

            assert client.run(function) == ((1,),)
            made, found = client.sql_transaction(
                ["create view more as select m + 1 as k from big", "select k from more"],
                tables="shop",
            )
            assert (made.changed, found.rows) == (None, ((61,),))
            assert tables.sql("select k from more").rows == ((61,),)


@pytest.mark.parametrize(
    ("view", "where", "read"),
    [
        ("select * from p", "id = 3", ["get row"]),
        ("select id as k, mail as m from p where born > 1", "k = 3", ["get row"]),
        ("select id as k, mail as m from p where born > 1", "m = 'm3'", ["get entry", "get row"]),
        ("select * from (select * from p) q", "id = 3", ["scan row 10"]),
        ("select p.id, q.id as other from p join p q on p.id = q.id", "id in (2, 3)",
         [*["get row"] * 2, "scan row 10"]),
        ("select city, count(*) as n from p group by city", "city = 'Bonn'",
         ["scan entry 5", *["get row"] * 5]),
        ("select city, count(*) as n from p group by rollup (city)", "city = 'Bonn'",
         ["scan entry 5", *["get row"] * 5]),
        ("select id, row_number() over () as r from p", "id = 3", ["scan row 10"]),
        ("select id from p order by id limit 5", "id = 3", ["scan row 10"]),
        ("select distinct id from p", "id = 3", ["scan row 10"]),
        ("select id + 1 as id from p", "id = 3", ["scan row 10"]),
        ("select * replace (id + 1 as id) from p", "id = 3", ["scan row 10"]),
        ("select id from p union all select id from p", "id = 3", ["scan row 10"]),
    ],
)  # fmt: skip
def test_a_condition_narrows_what_a_view_reads(view: str, where: str, read: list[str]) -> None:
    store = Counting()
    with Tables(store) as tables:
        make_people(tables, "city")
        tables.sql(f"create view v as {view}")
        tables.sql("create view w as select * from v")
        for name in ("v", "w"):
            store.noted.clear()
            found = tables.sql(f"select * from {name} where {where}").rows
            assert store.noted == read
            whole = tables.sql(f"select * from (select * from {name}) where {where}").rows
            assert sorted(found, key=repr) == sorted(whole, key=repr)
            assert whole


@pytest.mark.parametrize(
    ("other", "conflicts"),
    [
        ("insert into t values (9, 90, 'z')", True),
        ("update u set t = 2 where id = 1", True),
        ("create or replace view both as select id, m, 5::bigint as uses from big", True),
        ("create or replace view big as select id, n * 3 as m, x from t", True),
        ("alter table u add column more int", True),
        ("create view another as select * from both", False),
        ("create table another (id int)", False),
    ],
)
def test_a_select_from_a_view_is_checked_at_the_commit(
    tables: Tables, other: str, *, conflicts: bool
) -> None:
    several = tables.begin()
    found = several.sql("select sum(m) from both").rows
    several.sql("create view made as select 1 as k")
    tables.sql(other)
    assert several.sql("select sum(m) from both").rows == found == ((100,),)
    if conflicts:
        with pytest.raises(TransactionConflictError):
            several.commit()
    else:
        several.commit()


def test_a_narrowed_view_conflicts_with_what_it_reads_alone(tables: Tables) -> None:
    tables.sql("create table log (m int)")
    for other, conflicts in (("update t set n = 7 where id = 2", False), ("delete from t", True)):
        tables.sql("delete from u")
        several = tables.begin()
        several.sql("insert into log select m from big where id = 3")
        tables.sql(other)
        if conflicts:
            with pytest.raises(TransactionConflictError):
                several.commit()
        else:
            several.commit()
    assert tables.sql("select m from log").rows == ((60,),)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("create view late as select id from w", "drop table w"),
        ("create view late as select id from big", "drop view big"),
        ("create view late as select id from big", "create or replace view big as select 1 as k"),
        ("create view late as select 1 as k", "create table late (id int)"),
        ("create view late as select id from w", "alter table w rename column id to k"),
        ("create view late as select id from w", "alter table w rename to k"),
    ],
)
def test_a_view_and_what_it_uses_do_not_change_at_the_same_time(
    tables: Tables, one: str, other: str, *, turned: bool
) -> None:
    tables.sql("create table w (id int, more int)")
    tables.sql("drop view both")
    first, second = (other, one) if turned else (one, other)
    several = tables.begin()
    several.sql(first)
    tables.sql(second)
    with pytest.raises(TransactionConflictError):
        several.commit()
    for view in tables.views():
        tables.sql(f"select * from {view.name}")


def test_a_view_does_not_see_columns_that_are_added_later(alone: Tables) -> None:
    alone.sql("create view every as select * from t where id = 2")
    alone.sql("create view one as select x from t where exists (select 1 from u where n = 20)")
    before = alone.sql("select * from one").rows
    alone.sql("alter table t add column k int default 5")
    alone.sql("alter table u add column n int default 20")
    assert alone.sql("select * from every").rows == ((2, 20, "b"),)
    assert alone.sql("select * from one").rows == before == (("b",),)
    alone.sql("create or replace view every as select * from t where id = 2")
    assert alone.sql("select * from every").rows == ((2, 20, "b", 5),)
    assert "view every uses column k" in str(refused(alone, "alter table t drop column k")).lower()
    alone.sql("alter table u drop column n")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("drop table u", "View counted uses table u"),
        ("alter table u rename to w", "View counted uses table u"),
        ("alter table t drop column n", "View big uses column n of table t"),
        ("alter table t rename column x to y", "View big uses column x of table t"),
        ("drop view big", "View both uses view big"),
        ("create or replace view big as select 1 as k", "View both uses view big: it keeps"),
        ("create or replace view big as select id, m, 'x' as x from both", "would use itself"),
        ("create or replace view big as select id, m, x from big", "would use itself"),
        ("create view big as select 1 as k", "There is a view big"),
        ("create view t as select 1 as k", "There is a table t"),
        ("create or replace view t as select 1 as k", "There is a table t"),
        ("create table big (id int)", "There is a view big"),
        ("create table if not exists big (id int)", "There is a view big"),
        ("alter table u rename to big", "There is a view big"),
        ("insert into big values (1, 1, 'a')", "big is a view"),
        ("update big set x = 'a'", "big is a view"),
        ("delete from big", "big is a view"),
        ("drop table big", "big is a view"),
        ("drop table if exists big", "big is a view"),
        ("alter table big add column k int", "big is a view"),
        ("create index i on big (id)", "big is a view"),
        ("create table w (id int references big)", "There is no table big"),
        ("drop view t", "t is a table"),
        ("drop view if exists t", "t is a table"),
        ("drop view nope", "There is no view nope"),
        ("create view w as select * from nope", "There is no table nope"),
        ("create view w as select id, nope from t", "nope"),
        ("create view w as select * from t join u on true", "Two columns have the name id"),
        ("create view w (a) as select 1, 2", "1 names for 2 columns"),
        ("create view w (a, a) as select 1, 2", "Two columns have the name a"),
        ("create view w as select * from read_csv('x')", "disabled"),
        ("select nope from big", "nope"),
    ],
)
def test_what_would_break_a_view_is_refused(alone: Tables, sql: str, says: str) -> None:
    error = refused(alone, sql)
    assert isinstance(error, StatementInvalidError)
    assert says in str(error)
    assert str(error).startswith("line 1, column ")


@pytest.mark.parametrize(
    "sql",
    [
        "create materialized view w as select 1 as k",
        "create recursive view w (k) as select 1",
        "create view w as select 1 as k with check option",
        "create view s.w as select 1 as k",
        "create view w as insert into t values (1, 2, 'x') returning id",
        "drop view big cascade",
    ],
)
def test_what_views_do_not_have_is_refused(alone: Tables, sql: str) -> None:
    assert isinstance(refused(alone, sql), StatementUnsupportedError)


def test_what_is_not_there_or_there_may_be_passed_over(alone: Tables) -> None:
    before = state(alone)
    alone.sql("drop view if exists nope")
    alone.sql("create view if not exists big as select 1 as k")
    assert state(alone) == before
    alone.sql("create view if not exists w (k) as values (?)", [7])
    assert alone.sql("select k from w").rows == ((7,),)


def test_the_definition_is_a_key_and_nothing_is_left_of_what_is_dropped(alone: Tables) -> None:
    assert state(alone)["sql/shop/table/counted"] == {
        "name": "counted", "query": "select t, count(*) from u group by t", "renamed": True,
        "columns": [{"name": "t", "type": "INTEGER"}, {"name": "uses", "type": "BIGINT"}],
        "uses": {"u": ["t"]},
    }  # fmt: skip
    assert [table.name for table in alone.tables()] == ["t", "u"]
    assert [each.name for each in alone.relations()] == ["big", "both", "counted", "t", "u"]
    assert alone.table("big") is None
    alone.sql("drop view both, big, counted")
    alone.sql("drop table u, t")
    assert state(alone) == {"sql/shop/number": 3}


def test_views_lie_over_each_other_only_so_deep(alone: Tables) -> None:
    alone.sql("create view v0 as select id from t")
    for number in range(1, VIEWS_DEEP_MAX):
        alone.sql(f"create view v{number} as select id from v{number - 1}")
    last = f"v{VIEWS_DEEP_MAX - 1}"
    assert sorted(alone.sql(f"select id from {last} where id > 1").rows) == [(2,), (3,)]
    alone.sql(f"create view over as select id from {last}")
    assert "lie over each other" in str(refused(alone, "select id from over"))


def test_a_table_is_created_of_a_query(tables: Tables) -> None:
    made = tables.sql("create table k as select id, x, null as n, m::decimal(9, 1) as d from big")
    assert made.changed == 2
    found = tables.table("k")
    assert found is not None
    assert [(column.name, column.type) for column in found.columns] == [
        ("id", "INTEGER"), ("x", "VARCHAR"), ("n", "INTEGER"), ("d", "DECIMAL(9,1)"),
    ]  # fmt: skip
    tables.sql("drop view both, big")
    assert sorted(tables.sql("select id, x, n, d::int from k").rows) == [
        (2, "b", None, 40), (3, "a", None, 60),
    ]  # fmt: skip
    tables.sql("create table if not exists k as select 1 as one")
    assert tables.table("k") == found
    for sql, says in (
        ("create table k as select 1 as one", "There is a table k"),
        ("create table counted as select 1 as one", "There is a view counted"),
        ("create table j as select sum(id) as s from t", "no type INT128"),
        ("create table j as select id, id from t", "The name id is taken"),
        ("create table j as select * from j", "There is no table j"),
        ("create or replace table j as select 1 as one", "REPLACE"),
        ("create table j (a) as select 1", "SELECT 1"),
    ):
        with pytest.raises(SqlError, match=says):
            tables.sql(sql)
    assert [table.name for table in tables.tables()] == ["k", "t", "u"]

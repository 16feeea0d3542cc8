"""SQL tables: values, keys, constraints, what is read, and what errors say."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.testing.clients import MemoryHost
from streamydb_layers.tables import (
    ConstraintViolationError,
    DataRefusedError,
    SqlError,
    StatementInvalidError,
    StatementUnsupportedError,
    Tables,
    TransactionConflictError,
)
from streamydb_layers.tables.transaction import Overlay
from tests.support.counting import Counting, make_people
from tests.support.seeds import seeds

ROWS = [
    (True, -5, 2**63 - 1, 0.1, Decimal("12.50"), "é\x00 \U0001f600", dt.date(1, 1, 1),
     dt.datetime.fromisoformat("2026-02-03T04:05:06.000007"),
     {"a": [1, 2.5, None, True], "b": {"ü": -(2**63)}}),
    (False, 0, -(2**63), 1.0, Decimal("-99999999.99"), "", dt.date(9999, 12, 31),
     dt.datetime.fromisoformat("1969-12-31T00:00"), [[]]),
    (None,) * 9,
]  # fmt: skip


@pytest.fixture
def tables() -> Iterator[Tables]:
    with Tables.in_memory("shop") as made:
        yield made


@pytest.fixture
def store() -> Counting:
    return Counting()


def state(tables: Tables) -> dict[str, Any]:
    store: Any = tables._store
    with_values = Overlay(store.begin()).scan("", "~")
    return dict(with_values)


def refused(tables: Tables, sql: str, params: Any = ()) -> SqlError:
    before = state(tables)
    with pytest.raises(SqlError) as caught:
        tables.sql(sql, params)
    assert state(tables) == before
    return caught.value


def test_values_of_each_type_come_back(tables: Tables) -> None:
    tables.sql(
        "create table t (a boolean, b smallint, c bigint, d double, e decimal(10, 2), f text, "
        "g date, h timestamp, i json)"
    )
    for row in ROWS:
        tables.sql("insert into t values (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    found = tables.sql("select * from t").rows
    assert sorted(found, key=repr) == sorted(ROWS, key=repr)
    assert type(tables.sql("select d from t where d = 1").rows[0][0]) is float
    stored = [value for key, value in state(tables).items() if "/row/" in key]
    assert {"a": False, "b": 0, "c": -(2**63), "d": 1, "e": "-99999999.99", "f": "",
            "g": "9999-12-31", "h": "1969-12-31T00:00:00.000000", "i": [[]]} in stored  # fmt: skip
    assert {} in stored


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=seeds(30, 10))
@given(st.lists(st.lists(JSON, max_size=3) | st.dictionaries(st.text(max_size=3), JSON)))
def test_json_comes_back_as_the_same_value(values: list[Any]) -> None:
    with Tables.in_memory() as tables:
        tables.sql("create table t (id int primary key, j json)")
        for number, value in enumerate(values):
            tables.sql("insert into t values (?, ?)", [number, value])
        assert [j for (j,) in tables.sql("select j from t order by id")] == values


def test_json_null_is_not_null(tables: Tables) -> None:
    tables.sql("create table t (id int primary key, j json)")
    tables.sql("insert into t values (1, 'null'), (2, null)")
    assert tables.sql("select id from t where j is null").rows == ((2,),)


def test_the_layout_of_keys_is_the_documented_one(tables: Tables) -> None:
    tables.sql("create table o (id int primary key, mail text unique, city text)")
    tables.sql("create index by_city on o (city)")
    tables.sql("insert into o values (7, 'a@b', 'Bonn'), (8, null, null)")
    found = {key: value for key, value in state(tables).items() if "/table/" not in key}
    seven, eight = "3c01c000000000000000", "3c02000000000000000 0".replace(" ", "")
    assert found == {
        "sql/shop/number": 3,
        "sql/shop/index/o_mail_key": "o",
        "sql/shop/index/by_city": "o",
        f"sql/shop/row/1/{seven}": {"id": 7, "mail": "a@b", "city": "Bonn"},
        f"sql/shop/row/1/{eight}": {"id": 8},
        "sql/shop/entry/2/4a@b ": seven,
        f"sql/shop/entry/2/0/{eight}": eight,
        f"sql/shop/entry/3/4Bonn /{seven}": seven,
        f"sql/shop/entry/3/0/{eight}": eight,
    }


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ("id = 3", ["get row"]),
        ("3 = id and city = 'x'", ["get row"]),
        ("id in (3, 5, 99)", ["get row"] * 3),
        ("id > 3 and id <= 6", ["scan row 3"]),
        ("id > 6 and id < 3", []),
        ("id between 3 and 4 and id < 100", ["scan row 2"]),
        ("mail = 'm3'", ["get entry", "get row"]),
        ("city = 'Bonn'", ["scan entry 5", *["get row"] * 5]),
        ("city = 'Bonn' and born >= 7", ["scan entry 2", *["get row"] * 2]),
        ("lower(city) = 'bonn'", ["scan row 10"]),
        ("id = 3 or city = 'Bonn'", ["scan row 10"]),
        ("id = 2.5", ["scan row 10"]),
        ("id + 0 = 3", ["scan row 10"]),
        ("not (id = 3)", ["scan row 10"]),
    ],
)
def test_a_statement_reads_what_its_conditions_leave(
    store: Counting, where: str, read: list[str]
) -> None:
    with Tables(store) as tables:
        make_people(tables, "city, born")
        store.noted.clear()
        found = tables.sql(f"select id from p where {where}").rows
        assert store.noted == read
        # The same condition where nothing can be narrowed.
        whole = tables.sql(f"select id from (select * from p) where {where}").rows
        assert sorted(found) == sorted(whole)


@pytest.mark.parametrize(
    ("query", "scans"),
    [
        ("select * from p join q on p.id = q.p and q.p = 3 where p.id = 3", ["entry", "get row"]),
        ("select * from p left join q on p.id = q.p and p.id = 3", ["row 10", "row 10"]),
        ("select * from p left join q on p.id = q.p and q.id = 3", ["row 10", "get row"]),
        ("select * from p full join q on p.id = q.p where q.id = 3", ["row 10", "get row"]),
        ("with p as (select * from q where id = 1) select * from p where id = 2", ["get row"]),
        ("select * from p where exists (select 1 from q where id = 3)", ["row 10", "get row"]),
    ],
)
def test_conditions_narrow_each_table_of_a_join(
    store: Counting, query: str, scans: list[str]
) -> None:
    with Tables(store) as tables:
        tables.sql("create table p (id int primary key)")
        tables.sql("create table q (id int primary key, p int references p)")
        for number in range(10):
            tables.sql("insert into p values (?)", [number])
            tables.sql("insert into q values (?, ?)", [number, number])
        store.noted.clear()
        tables.sql(query)
        assert len(store.noted) >= len(scans)
        for wanted in scans:
            assert any(wanted in noted for noted in store.noted), store.noted


@pytest.mark.parametrize(
    ("sql", "kind", "place", "says"),
    [
        ("select *\nfrom nope", StatementInvalidError, (2, 6), "There is no table nope"),
        ("select id,\n nope from t", StatementInvalidError, (2, 2), "nope"),
        ("selec 1", StatementInvalidError, (1, 7), "Unexpected"),
        ("select 'x", StatementInvalidError, None, "no SQL"),
        ("alter table t alter x type int", StatementUnsupportedError, (1, 21), "type of a column"),
        ("alter table t add y int primary key", StatementUnsupportedError, (1, 19), "primary key"),
        ("alter table t drop column id", StatementInvalidError, (1, 27), "the primary key"),
        ("alter table t drop column z", StatementInvalidError, (1, 27), "Column z"),
        ("alter table t rename column x to id", StatementInvalidError, (1, 34), "id is taken"),
        ("savepoint a", StatementInvalidError, None, "no transaction"),
        ("create temp view v as select 1", StatementUnsupportedError, (1, 18), "TEMPORARY"),
        ("create table u (a blob)", StatementUnsupportedError, (1, 17), "type BLOB"),
        ("create table u (a int,\n a text)", StatementInvalidError, (2, 2), "taken"),
        ("create table u (a json primary key)", StatementUnsupportedError, (1, 17), "JSON"),
        ("create table u (a int check (b > 1))", StatementInvalidError, (1, 30), '"b"'),
        ("create table u (a int references t (x))", StatementInvalidError, (1, 34), "unique"),
        ("create table u", StatementUnsupportedError, (1, 14), "list of columns"),
        ("create index i on t (x desc)", StatementUnsupportedError, (1, 22), "desc"),
        ("insert into t (id, y) values (1, 2)", StatementInvalidError, (1, 20), "Column y"),
        ("insert into t values (1)", StatementInvalidError, (1, 23), "1 values for 2 columns"),
        ("insert into t select 1", StatementInvalidError, (1, 22), "1 columns for 2"),
        ("insert into t values (1, 'a') on conflict (x) do nothing", StatementInvalidError,
         (1, 44), "unique"),
        ("update t set z = 1", StatementInvalidError, (1, 14), "Column z"),
        ("update t set id = 1, id = 2", StatementInvalidError, (1, 14), "set twice"),
        ("insert into t values ('x', 'a')", DataRefusedError, None, "'x'"),
        ("insert into t values (99999999999, 'a')", DataRefusedError, None, "99999999999"),
        ("select * from read_csv('x')", StatementInvalidError, None, "disabled"),
        ("drop index nope", StatementInvalidError, (1, 12), "no index nope"),
        ("commit", StatementUnsupportedError, None, "begins and ends"),
        ("insert into t values (1, 'a') on conflict (id) do update set x = (select 1)",
         StatementUnsupportedError, (1, 74), "no queries"),
        ("select 1 % 0", DataRefusedError, None, "by zero"),
        ("select 1; select 2", StatementInvalidError, None, "2 statements"),
        ("select ?", StatementInvalidError, (1, 8), "parameter 1"),
    ],
)  # fmt: skip
def test_an_error_names_the_place(
    tables: Tables, sql: str, kind: type[SqlError], place: Any, says: str
) -> None:
    tables.sql("create table t (id int primary key, x text)")
    error = refused(tables, sql)
    assert type(error) is kind, error
    assert says.lower() in str(error).lower()
    if place is not None:
        assert error.place == place, error
        assert str(error).startswith(f"line {place[0]}, column {place[1]}: ")


@pytest.mark.parametrize(
    ("sql", "kind", "constraint"),
    [
        ("insert into c values (1, 9, 1)", "foreign key", "c_p_fkey"),
        ("insert into c values (1, 1, -1)", "check", "positive"),
        ("insert into c (id, p) values (1, null)", "not null", "n"),
        ("insert into c values (5, 1, 5)", "unique", "c_pkey"),
        ("insert into c values (6, 1, 5)", "unique", "c_n_key"),
        ("update c set n = 5", "unique", "c_n_key"),
        ("delete from p where id = 1", "foreign key", "c_p_fkey"),
        ("update p set id = 7 where id = 1", "foreign key", "c_p_fkey"),
    ],
)
def test_a_violation_names_the_constraint(
    tables: Tables, sql: str, kind: str, constraint: str
) -> None:
    tables.sql("create table p (id int primary key)")
    tables.sql(
        "create table c (id int primary key, p int references p, n int not null unique, "
        "constraint positive check (n > 0))"
    )
    tables.sql("insert into p values (1), (2)")
    tables.sql("insert into c values (5, 1, 5), (7, 2, 7)")
    error = refused(tables, sql)
    assert isinstance(error, ConstraintViolationError)
    assert (error.kind, error.constraint) == (kind, constraint)
    assert str(error).startswith("line 1, column ")


def test_a_row_that_is_left_out_takes_no_values(tables: Tables) -> None:
    tables.sql("create table t (a int primary key, b int unique)")
    tables.sql("insert into t values (1, 1)")
    rows = "(2, 1), (2, 2), (2, 3)"
    made = tables.sql(f"insert into t values {rows} on conflict do nothing returning *")
    assert made.rows == ((2, 2),)


def test_values_may_move_within_a_statement(tables: Tables) -> None:
    tables.sql("create table t (id int primary key, n int unique)")
    tables.sql("insert into t values (1, 1), (2, 2), (3, 3)")
    assert tables.sql("update t set id = id + 1, n = 4 - n").changed == 3
    assert tables.sql("select * from t order by id").rows == ((2, 3), (3, 2), (4, 1))


def test_rows_are_numbered(tables: Tables) -> None:
    tables.sql("create table t (id bigint generated by default as identity primary key, x text)")
    assert tables.sql("insert into t (x) values ('a'), ('b') returning id").rows == ((1,), (2,))
    tables.sql("insert into t values (10, 'c')")
    assert tables.sql("insert into t (x) values ('d') returning id, x").rows == ((11, "d"),)


@pytest.mark.parametrize("shown", ["*", "t.*", "columns(*)", "unnest(t)"])
def test_returning_shows_the_columns_of_the_table_in_order(tables: Tables, shown: str) -> None:
    tables.sql("create table t (id int primary key, x int)")
    for first, size in ((0, 3), (1000, 300)):
        rows = tuple((number, -number) for number in range(first + size, first, -1))
        values = ", ".join(map(str, rows))
        made = tables.sql(f"insert into t values {values} returning {shown}")
        assert (made.columns, made.rows) == (("id", "x"), rows)
    assert tables.sql(f"delete from t where id = 2 returning {shown}").rows == ((2, -2),)


def test_an_index_over_rows_has_all_of_them(tables: Tables) -> None:
    tables.sql("create table t (id int primary key, x text)")
    tables.sql("insert into t values (1, 'a'), (2, 'b'), (3, 'a')")
    refused(tables, "create unique index u on t (x)")
    tables.sql("create index i on t (x)")
    assert tables.sql("select id from t where x = 'a' order by id").rows == ((1,), (3,))
    tables.sql("drop index i")
    assert not [key for key in state(tables) if "/entry/" in key or "/index/" in key]


def test_nothing_is_left_of_a_dropped_table(tables: Tables) -> None:
    tables.sql("create table p (id int primary key)")
    tables.sql("create table c (id bigint generated by default as identity primary key, "
               "p int references p, n int unique)")  # fmt: skip
    tables.sql("insert into p values (1)")
    tables.sql("insert into c (p, n) values (1, 1)")
    assert "refers" in str(refused(tables, "drop table p"))
    assert [table.name for table in tables.tables()] == ["c", "p"]
    tables.sql("drop table c")
    tables.sql("drop table p")
    tables.sql("drop table if exists p")
    assert state(tables) == {"sql/shop/number": 4}
    assert tables.table("p") is None


def test_a_transaction_reads_its_own_writes_and_a_failed_statement_writes_nothing(
    tables: Tables,
) -> None:
    tables.sql("create table t (id int primary key, x int unique)")
    with tables.begin() as several:
        several.sql("insert into t values (1, 1)")
        assert several.sql("select x from t where id = 1").rows == ((1,),)
        with pytest.raises(ConstraintViolationError):
            several.sql("insert into t values (2, 2), (3, 1)")
        several.sql("update t set x = x + 1")
        assert several.sql("select * from t").rows == ((1, 2),)
        assert tables.sql("select * from t").rows == ()
    assert tables.sql("select * from t").rows == ((1, 2),)
    with pytest.raises(StatementInvalidError, match="ended"):
        several.sql("select 1")
    with pytest.raises(StatementInvalidError), tables.begin() as several:  # noqa: PT012 - the last
        several.sql("delete from t")
        several.sql("select * from nope")
    assert len(tables.sql("select * from t")) == 1


def test_a_script_has_transactions(tables: Tables) -> None:
    done = tables.script(
        "create table t (id int primary key); begin; insert into t values (1);"
        "insert into t values (2); commit; begin; delete from t; rollback; select id from t;"
    )
    assert done[-1].rows == ((1,), (2,))
    with pytest.raises(StatementInvalidError, match="COMMIT is missing"):
        tables.script("begin; delete from t")
    assert tables.sql("select count(*) as n from t").dicts() == [{"n": 2}]


def test_names_are_compared_without_case(tables: Tables) -> None:
    tables.sql('create table Orders ("Id" int primary key, Total int)')
    tables.sql("insert into ORDERS (ID, total) values (1, 2)")
    found = tables.sql('select id, o."TOTAL" from "orders" as o where o.iD = 1')
    assert found.rows == ((1, 2),)
    assert tables.sql("select * from orders").columns == ("Id", "Total")


def test_parameters_have_names_numbers_and_order(tables: Tables) -> None:
    assert tables.sql("with q as (select ? as a) select a, ? from q", ["x", 2]).rows == (("x", 2),)
    assert tables.sql("select $2, $1", [1, "b"]).rows == (("b", 1),)
    assert tables.sql("select $a, $b", {"a": -1, "b": None}).rows == ((-1, None),)
    assert tables.sql("select $1,$2::text||$1", ["a", "b"]).rows == (("a", "ba"),)
    assert tables.sql("select $a+$b,'$a,$b'", {"a": 1, "b": 2}).rows == ((3, "$a,$b"),)
    assert tables.sql("select $$'\\$1$$,$t$$$;$t$").rows == (("'\\$1", "$$;"),)
    assert tables.sql("select ?", [-(2**63)]).rows == ((-(2**63),),)
    error = refused(tables, "select ?", [1, 2])
    assert "2 values for 1 parameters" in str(error)
    assert isinstance(refused(tables, "select ?", [float("nan")]), DataRefusedError)
    assert isinstance(refused(tables, "select ?", [object()]), DataRefusedError)


def test_a_key_that_is_too_long_is_refused(tables: Tables) -> None:
    tables.sql("create table t (id text primary key)")
    assert "480 is the most" in str(refused(tables, "insert into t values (?)", ["x" * 480]))


def test_behind_a_client_single_rows_are_written_and_all_is_read() -> None:
    with MemoryHost() as host, Tables(host.connect(), "shop") as tables:
        tables.sql("create table t (id int primary key, x text unique, n int)")
        tables.sql("insert into t values (1, 'a', 1), (2, 'b', 2)")
        assert tables.sql("update t set n = n + 1 where x = 'a' returning *").rows == ((1, "a", 2),)
        assert tables.sql("select sum(n) from t").rows == ((4,),)
        with tables.begin() as several:
            several.sql("delete from t where id = 2")
            several.sql("insert into t values (2, 'b', 5)")
        done = host.connect().run(
            lambda view: tables.within(view).sql("update t set n = 0 where id = 2").changed
        )
        assert done == 1
        assert tables.sql("select n from t order by id").rows == ((2,), (0,))


def test_statements_within_a_function_see_what_it_wrote_before() -> None:
    with MemoryHost() as host, Tables(host.connect(), "shop") as tables:
        client = host.connect()
        tables.sql("create table t (id int primary key, n int)")
        tables.sql("insert into t values (1, 1), (2, 2)")

        def function(view: Any) -> list[Any]:
            mine = tables.within(view)
            mine.sql("insert into t values (3, 3)")
            mine.sql("delete from t where id = 1")
            mine.sql("update t set n = n * 10")
            view.put("seen", 1)
            return list(tables.within(view).sql("select id, n from t order by id"))

        assert client.run(function) == [(2, 20), (3, 30)]
        assert tables.sql("select sum(n) from t").rows == ((50,),)


def test_behind_a_client_a_scan_and_its_writes_are_one_transaction() -> None:
    with MemoryHost() as host, Tables(host.connect(), "shop") as tables:
        other = Tables(host.connect(), "shop")
        tables.sql("create table t (id int primary key)")
        tables.sql("insert into t values (1)")
        several = tables.begin()
        several.sql("insert into t select max(id) + 1 from t")
        other.sql("insert into t values (7)")
        with pytest.raises(TransactionConflictError):
            several.commit()
        assert tables.sql("select id from t order by id").rows == ((1,), (7,))
        assert tables.sql("delete from t").changed == 2
        tables.sql("drop table t")


@pytest.mark.parametrize("kind", ["join", "left join", "right join", "full join", "cross join"])
@pytest.mark.parametrize("on", ["p.id = 3", "q.id = 3", "p.id > 2 and q.id < 4"])
def test_a_condition_of_a_join_narrows_only_what_the_join_drops(
    tables: Tables, kind: str, on: str
) -> None:
    for name in ("p", "q"):
        tables.sql(f"create table {name} (id int primary key)")
        tables.sql(f"insert into {name} values (1), (2), (3), (4)")
    behind = f"where {on}" if kind == "cross join" else f"on p.id = q.id and {on}"
    found = tables.sql(f"select p.id, q.id from p {kind} q {behind}").rows
    whole = "(select * from p offset 0) as p", "(select * from q offset 0) as q"
    wanted = tables.sql(f"select p.id, q.id from {whole[0]} {kind} {whole[1]} {behind}").rows
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert wanted

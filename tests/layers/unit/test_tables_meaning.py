"""What is executed means what DuckDB means by the text: rows, names of columns, refusals.

The statements are those of the examples in DuckDB's table of functions, and of a list that goes
through its grammar; each runs in tables and in DuckDB with the same rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

import duckdb

from streamydb.sql.answers import python_value
from streamydb.sql.engine import connect, lock
from streamydb_layers.tables import OpenTransaction, SqlError, StatementInvalidError, Tables
from streamydb_layers.tables.trees import query_tree, text_of, write_tree
from tests.support.seeds import seeds

BEGIN = (
    "create table t (a int primary key, b text, c double, d date, e timestamp, j json)",
    """
    insert into t values
    (1, 'x.Y', 1.5, '2026-01-02', '2026-01-02 03:04:05', '{"a":{"b":1},"a.b":"z","k":"p"}'),
    (2, 'month', -2.5, null, null, '[1,2]'),
    (3, null, null, '1999-12-31', '1999-12-31 23:59:59.5', null)
    """,
    "create table u (id int, x int, kind text primary key)",
    "insert into u values (1, 1, 'a'), (2, 3, 'b'), (2, null, 'c')",
)
EXPRESSIONS = (
    "date_trunc(b, e)", "date_trunc('month', d)", "j->>'a.b'", "j->'a'->>'b'", "j->>'$.a.b'",
    "interval '2 days ago'", "d + interval '2 days ago'", "d - interval 1 month",
    "1 in (2, null)", "1 in [2, null]", "date '2026-01-02'::text", "date '2026-01-02' + 1",
    "j->>'k' = 'p'", "j->>'k' = 'p' and a = 1", "j->>'k' || 'x'", "not j->>'k' is null",
    "a + 1 -> 2", "regexp_replace(b, 'x', 'q', 'gi')", "regexp_replace(b, '[xy]', 'q', 'i')",
    "regexp_matches(b, 'Y', 'i')", "regexp_extract(b, '(x).(y)', 2, 'i')",
    "regexp_extract_all(b, '.', 0)", "string_split(b, '.')", "split_part(b, '.', 2)",
    "substring(b, 2, 1)", "substr(b from 2)", "round(c, 1, 2)", "log(8, 2)", "log(100)",
    "(42,)", "(42)", "row(42)", "{'a': 1}", "struct_pack(a := a, z := 1)", "[1, 2, 3][1:2]",
    "map {'a': 1}['a']", "strftime(e, '%H:%M')", "strptime('2026', '%Y')", "e::date", "b::text",
    "try_cast(b as int)", "c::int", "a / 2", "a // 2", "a % 2", "-a ** 2", "2 ^ 3 ^ 2",
    "a between 1 and 2", "not a = 1", "- - a", "~a & 1 | 2", "a is distinct from null", "@c",
    "case a when 1 then 'one' end", "if(a = 1, 2, 3)", "ifnull(c, 0)", "nullif(a, 1)",
    "greatest(a, c)", "b like 'x%'", "b similar to 'x.*'", "b ~ 'x'", "b glob 'x*'", "b ilike 'X%'",
    "b like '!%' escape '!'", "extract(year from d)", "datediff('month', d, e)", "epoch(e)",
    "date_part('dow', d)", "age(e, timestamp '2000-01-01')", "make_date(2026, a, 1)",
    "list_transform([1, 2], lambda x: x + a)", "[x + 1 for x in [1, 2] if x > 1]",
    "list_filter([1, 2], x -> x > 1)", "array_agg(a)", "string_agg(b, '-' order by a desc)",
    "count(*) filter (where a > 1)", "sum(a) filter (a > 1)", "arg_max(b, a)", "median(c)",
    "quantile_cont(a, 0.5)", "sum(distinct a)", "first(b order by a desc)", "bool_or(a > 1)",
    "last(c ignore nulls) over (order by a)", "lag(b, 1, 'none') over (order by a)",
    "first_value(c ignore nulls) over (order by a desc)", "nth_value(b, 2) over (order by a)",
    "row_number() over (order by b nulls first)", "sum(a) over (rows 1 preceding)",
    "sum(a) over (order by a range between 1 preceding and 1 following exclude current row)",
    "(select max(id) from u)", "exists (from u where x = a)", "a = any(select id from u)",
    "a > all(select id from u)", "array(select id from u order by id)", "t", "t.a", "count(t)",
    "to_json(t)", "json_extract(j, '$.a')", "json_extract_string(j, 'a.b')", "j.a", "hash(a)",
    "columns('a|c')", "struct_pack(columns(*))", "* exclude (j)",
    "* replace (a + 1 as a)", "* like 'a%'", "unnest([a, 2])", "generate_series(1, a)", "'a\\nb'",
    "e'a\\nb'", "$$it's$$", "0x1F", "1_000", "1e3", ".5", "12345678901234567890",
    "current_setting('timezone')", "typeof(1.5)", "typeof(2147483648)", "typeof('x')",
    "encode('é')", "bar(a, 0, 3)", "format('{} {}', a, b)", "printf('%d', a)", "a::decimal(5, 2)",
    "grouping(a)", 'a as "x y"',
    "trim(both 'x' from b)", "position('Y' in b)", "b collate nocase = 'X.y'", "overlay(b, 1)",
    "time '01:02:03'", "timestamptz '2026-01-01 00:00:00+02'", "interval (a) day", "null",
    "true and null or not false", "b is null and c is not null", "a not in (1, null)",
    "(a, c) = (1, 1.5)", "(a, b) in ((1, 'x.Y'))", "a::bit", "'101'::bit & '100'::bit",
)  # fmt: skip
QUERIES = (
    "from t select a", "table u", "values (1, 'a'), (2, 'b')", "select from t", "select 1 as a, a",
    "select distinct on (id) id, kind from u order by id, kind desc", "select all id from u",
    "select a from t order by b desc nulls last limit 1 offset 1", "select a from t limit 50%",
    "select id, count(*) from u group by all order by all", "select b as a from t where a = 1",
    "select a, x from t left join u on a = id and x > 1 order by all",
    "select * from t natural join (select 1 as a)", "select * from t semi join u on a = id",
    "select * from t anti join u on a = id", "select * from t asof join u on a >= x order by all",
    "select * from t positional join u", "select * from u join u as v using (id) order by all",
    "select a, k from t, lateral (select a + 1 as k) order by a",
    "select id, sum(x) from u group by rollup (id) order by all",
    "select id, kind, count(*) from u group by grouping sets ((id), (kind)) order by all",
    "select id from u union select a from t order by 1",
    "select 1 as a union by name select 2 as b",
    "select id from u except all select a from t", "select a from t intersect select id from u",
    "with recursive r as (select 1 as n union all select n + 1 from r where n < 4) select * from r",
    "with u as (select 7 as id) select * from u",
    "with v(p) as materialized (from u) select p from v",
    "with u as (select id + 1 as id from u) select * from u order by id",
    "select * from (with u as (select 5 as q) from u), u as w order by all",
    "select * from u qualify row_number() over (partition by id order by kind) = 1 order by all",
    "select sum(x) over w from u window w as (order by kind) order by all",
    "select * from (pivot u on kind in ('a', 'b') using sum(x) group by id) order by all",
    "from (unpivot (select a, c from t) on a, c into name n value v) order by all",
    "select * from (pivot u on kind using sum(x) group by id) order by all",
    "select * from range(2) r(i), t as s(p) order by all", "select s.* exclude (j) from t s",
    "select 'é' as x, (select max(id) from u), \"a\" from t where b = 'x.Y'",
    "select column_name from (describe t)", "select min from (summarize u)", "select #1 from u",
    "select a from t where b > 'm' and (a = 2 or (c is null and a between 1 and 3)) -- done",
    "/* first */ with /* x */ q as (select 1 as k) /* y */ select k from q",
    "(select 1) union (select 2)",
    "select u.id from main.u",
)  # fmt: skip
UNSTEADY = (
    "random", "uuid", "now", "current", "today", "transaction", "txid", "setseed", "bitstring_agg",
)  # fmt: skip
"""Examples whose values no two executions share, or which need statistics of a stored table."""


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Tables, duckdb.DuckDBPyConnection]]:
    with Tables.in_memory() as tables, connect({"threads": "1"}) as plain:
        plain.execute("set timezone = 'UTC'")
        for sql in BEGIN:
            tables.sql(sql)
            plain.execute(sql)
        lock(plain)
        yield tables, plain


def ours(tables: Tables | OpenTransaction, sql: str) -> Any:
    try:
        found = tables.sql(sql)
    except SqlError as error:
        return str(error)
    return found.columns, repr(found.rows)


def theirs(plain: duckdb.DuckDBPyConnection, sql: str) -> Any:
    try:
        done = plain.execute(sql)
        rows = done.fetchall()
    except (duckdb.Error, ValueError, OverflowError) as error:
        return str(error)
    shown = done.description or []
    cells = [
        tuple(python_value(cell, column[1]) for cell, column in zip(row, shown, strict=True))
        for row in rows
    ]
    return tuple(column[0] for column in shown), repr(tuple(cells))


def same(both: tuple[Tables, duckdb.DuckDBPyConnection], sql: str) -> bool:
    """Return False if tables refuse what DuckDB understands."""
    mine, known = ours(both[0], sql), theirs(both[1], sql)
    if isinstance(mine, str):
        return isinstance(known, str)
    assert mine == known, sql
    return True


@pytest.mark.parametrize("cell", EXPRESSIONS)
def test_an_expression_means_what_it_means_in_duckdb(both: Any, cell: str) -> None:
    assert same(both, f"select {cell} from t")
    assert same(both, f"select {cell} as k, a from t where a = 1 group by all order by all")
    assert same(both, f"select a from t where {cell} order by a")


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_means_what_it_means_in_duckdb(both: Any, sql: str) -> None:
    refused = sql == "select u.id from main.u"
    assert same(both, sql) is not refused


def test_examples_of_functions_mean_what_they_mean_in_duckdb(both: Any) -> None:
    found = both[1].execute(
        "select distinct function_name, unnest(examples) from duckdb_functions() order by all"
    )
    steady = [
        example.rstrip("; ")
        for name, example in found.fetchall()
        if not any(word in name for word in UNSTEADY)
    ]
    assert len(steady) > 450
    tails = ("", " from t")  # one of them for each in `make test`, by turns
    refused = [
        sql for number, example in enumerate(steady)
        for turn in range(min(len(tails), seeds(len(tails), 1)))
        if not same(both, sql := f"select {example}{tails[(number + turn) % len(tails)]}")
    ]  # fmt: skip
    unread = ("4!", "lambda")  # what sqlglot does not read
    assert all(any(part in sql for part in unread) for sql in refused), refused


@pytest.mark.parametrize(("number", "cell"), list(enumerate(EXPRESSIONS)))
def test_a_write_means_what_it_means_in_duckdb(both: Any, number: int, cell: str) -> None:
    tables, plain = both
    writes = (
        f"insert into t (a, b) select a + 10, cast(k as text) from (select a, {cell} as k from t)",
        f"insert into t (a, b) values (20, cast({cell} as text))",
        f"update t set b = cast({cell} as text) where a < 3",
        f"update t set c = 9 where ({cell}) is null",
        f"delete from t where cast({cell} as text) like '2%'",
    )
    for turn in range(min(len(writes), seeds(len(writes), 1))):  # in `make test` one, by turns
        sql = writes[(number + turn) % len(writes)]
        with tables.begin() as transaction:
            found = written(transaction, plain, sql)
            transaction.rollback()
        assert found is None or found[0] == found[1], sql


def written(transaction: OpenTransaction, plain: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """The rows after a statement, in tables and in DuckDB; None: one of them refuses it."""
    shown = "select * from t order by a"
    try:
        changed = transaction.sql(sql).changed
    except SqlError:
        return None
    plain.execute("begin")
    try:
        [[count]] = plain.execute(sql).fetchall()
        return (changed, *ours(transaction, shown)), (count, *theirs(plain, shown))
    except duckdb.BinderException:  # it takes less in an UPDATE
        return None
    finally:
        plain.execute("rollback")


def test_what_sqlglot_does_not_read_is_refused(both: Any) -> None:
    for cell in ("4!", "x'41'", "sum(a) export_state + 1", "apply([1], lambda x : x + 1)"):
        with pytest.raises(StatementInvalidError):
            both[0].sql(f"select {cell} from t")


@pytest.mark.parametrize("cell", ["j->>'a.b' = 'z'", "(42,)", "interval '2 days ago'"])
def test_a_view_keeps_the_text_of_the_user(both: Any, cell: str) -> None:
    with Tables.in_memory() as tables:
        for sql in BEGIN:
            tables.sql(sql)
        tables.sql(f"create view v as select {cell} as k, a from t where a = 1")
        found = tables.sql("select k from v where a = 1")
        known = theirs(both[1], f"select {cell} as k from t where a = 1")
        assert (found.columns, repr(found.rows)) == known
        assert cell in tables.views()[0].query


def test_checks_and_defaults_mean_what_they_say() -> None:
    with Tables.in_memory() as tables:
        tables.sql(
            "create table k (id int primary key, j json check (j->>'a.b' = 'z'), "
            "at text default (timestamp '2026-01-05' - interval '2 days')::text)"
        )
        tables.sql("""insert into k (id, j) values (1, '{"a.b": "z"}')""")
        assert tables.sql("select at from k").rows == (("2026-01-03 00:00:00",),)
        with pytest.raises(SqlError, match="check"):
            tables.sql("""insert into k (id, j) values (2, '{"a.b": "y", "a": {"b": "z"}}')""")
        tables.sql("alter table k rename column j to doc")
        [check] = (tables.table("k") or pytest.fail("no table")).checks
        assert check.expression == "((doc ->> 'a.b') = 'z')"
        with pytest.raises(SqlError, match="check"):
            tables.sql("""insert into k (id, doc) values (2, '{"a.b": "y", "a": {"b": "z"}}')""")


def test_parameters_are_where_they_were_written(both: Any) -> None:
    tables, plain = both
    for sql, values in (
        ("select ?, ? || 'é', (select max(id) from u where id < $3), b from t where a = ?",
         None),
        ("select 'é', cast(? as text), '?', \"a\" /* ? */ from t where b = ? -- ?", ["q", "x.Y"]),
        ("select a from t where e = ? and d = ?",
         [dt.datetime.fromisoformat("2026-01-02T03:04:05"), dt.date(2026, 1, 2)]),
        ("select $2, $1 || $1 as k", ["1", 5]),
    ):  # fmt: skip
        if values is None:
            with pytest.raises(StatementInvalidError, match="not both"):
                tables.sql(sql, [1, "a", 3])
            continue
        assert tables.sql(sql, values).rows == tuple(plain.execute(sql, values).fetchall())
    named = {"low": 1, "text": "it's"}
    assert tables.sql("select $text, a from t where a <= $low", named).rows == (("it's", 1),)
    pivot = "select * from (pivot u on kind using sum(x) group by id) where id = ?"
    assert tables.sql(pivot, [1]).rows == ((1, 1, None, None),)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("select (select max(id) from u)", ["(SELECT max(id) FROM u)"]),
        ("select ?, a + ? from t limit 0", ["$1", "(a + $2)"]),
        ("update t set b = b where a = 1 returning a + ?, upper(b), b as k",
         ["(a + $1)", "upper(b)", "k"]),
        ("select t.a, count(*), u.* from t, u as u group by all",
         ["a", "count_star()", "id", "x", "kind"]),
    ],
)  # fmt: skip
def test_columns_have_the_names_of_the_users_text(both: Any, sql: str, names: list[str]) -> None:
    count = sql.count("?")
    assert list(both[0].sql(sql, list(range(count))).columns) == names


def test_a_tree_is_executed_only_if_its_text_means_the_same() -> None:
    for cell in EXPRESSIONS:
        tree = query_tree(f"select {cell} from t")
        if tree is not None:
            text_of(tree)
    assert write_tree("delete from t using (pivot u on kind using sum(x))") is None

"""What users of SQL over stores report, tried here; `tests/reports.md` names the reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

import duckdb

from streamydb.facade import create_app
from streamydb.sql.engine import connect, lock, message_of
from streamydb.sql.worker import Job, QueryOutcome, StoredRow, run
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from streamydb_layers.tables import (
    ConstraintViolationError,
    DataRefusedError,
    SqlError,
    StatementInvalidError,
    Tables,
    TablesView,
)

ADVICE = ("SET ", "INSTALL ", "LOAD ", "auto-install")
FAULTS = (
    "select 1 // 0", "select 5 % 0", "select mod(7, 0)", "select (select unnest([1, 2]))",
    "select st_point(1, 2)", "select * from sqlite_scan('a', 'b')",
    "select list_transform([1], x -> x + 1)", "select 1 order by 'a'",
)  # fmt: skip
"""Queries of whose errors DuckDB tells how settings or extensions would avoid them."""


@pytest.fixture
def tables() -> Iterator[Tables]:
    with Tables.in_memory() as made:
        made.sql("create table t (k int primary key, g text, v int, u int unique)")
        made.sql("insert into t (k, g, v) values (1, 'a', 1), (2, 'b', 2), (3, 'a', 3)")
        made.sql("create view w as select k, g, v from t where k > 1")
        yield made


def queried(sql: str) -> QueryOutcome:
    """What the process of a query makes of it, here in this one."""
    rows = [StoredRow(key, b"01"[n % 2 : n % 2 + 1], 1, 1) for n, key in enumerate("abc")]
    return run(
        Job(
            sql=sql, params=[], prefixes=[""], folder=None, database="", at=1, rows=rows,
            memory_bytes=1 << 28, threads=1, cpu_s=60, rows_max=100, bytes_max=1 << 20,
        )
    )  # fmt: skip


def answered(sql: str) -> Any:
    outcome = queried(sql)
    assert outcome.kind == "done", outcome
    return json.loads(bytes(outcome.body))


# Errors that tell of settings


def test_no_error_tells_to_change_what_cannot_be_changed(tables: Tables) -> None:
    connection = connect()
    lock(connection)
    advised = 0
    for sql in FAULTS:
        with pytest.raises(duckdb.Error) as fault:
            connection.execute(sql).fetchall()
        advised += any(word in str(fault.value) for word in ADVICE)
        shown = message_of(fault.value)
        assert shown.strip(), sql
        assert not any(word in shown for word in ADVICE), (sql, shown)
        with pytest.raises(SqlError) as refused:
            tables.sql(sql)
        assert not any(word in str(refused.value) for word in ADVICE), (sql, refused.value)
    assert advised >= 5  # else there is nothing to leave out


def test_no_error_of_a_query_tells_to_change_a_setting() -> None:
    for sql in FAULTS:
        outcome = queried(sql)
        assert outcome.kind == "invalid", sql
        assert not any(word in outcome.message for word in ADVICE), (sql, outcome.message)
    shown = queried("select 1 // 0").message
    assert shown.endswith("Use TRY(...) to return NULL for this expression.")
    shown = queried("select 'SET a=1; INSTALL b' from nowhere").message
    assert "LINE 1: select 'SET a=1; INSTALL b' from nowhere" in shown


@pytest.mark.parametrize("text", ["SET a=1", "Use SET a=1 to win.", "LOAD x;", "a, or SET b=1."])
def test_a_text_of_the_user_stays_in_an_error(tables: Tables, text: str) -> None:
    with pytest.raises(DataRefusedError, match="Could not convert string") as refused:
        tables.sql(f"select cast('{text}' as int)")
    assert text.rsplit(maxsplit=1)[-1].strip(".;") in str(refused.value)


# PIVOT


@pytest.mark.parametrize("on", ["v", "v in (1, 2)"])
@pytest.mark.parametrize("source", ["t", "w", "(select g, k, v from t)"])
def test_a_pivot_is_a_query_wherever_it_stands(tables: Tables, on: str, source: str) -> None:
    pivot = f"pivot {source} on {on} using count(*)"
    columns = {"v": "123" if source != "w" else "23"}.get(on, "12")
    for tail in (
        "",
        " group by g",
        " group by g order by g desc",
        " order by k limit 1 offset 1",
        " order by all",
        " order by k desc limit 2;",
    ):
        whole = tables.sql(pivot + tail)
        assert [each for each in whole.columns if each.isdigit()] == list(columns), tail
        if tail.endswith(";"):
            assert [row[whole.columns.index("k")] for row in whole.rows] == [3, 2]
            continue
        for nested in (f"select * from ({pivot}{tail})", f"with c as ({pivot}{tail}) from c"):
            found = tables.sql(nested)
            assert (found.columns, sorted(found.rows)) == (whole.columns, sorted(whole.rows))
    pages = tables.sql(f"{pivot} group by g order by g limit 1 offset 1")
    assert [row[0] for row in pages.rows] == ["b"]


@pytest.mark.parametrize("on", ["v", "v in (1, 2)"])
def test_a_table_is_made_of_a_pivot(tables: Tables, on: str) -> None:
    pivot = f"pivot t on {on} using count(*) group by g order by g"
    for name, query in (("one", pivot), ("two", f"from ({pivot})")):
        tables.sql(f"create table {name} as {query}")
        made = tables.sql(f"select * from {name} order by g")
        assert (made.columns, made.rows) == (tables.sql(pivot).columns, tables.sql(pivot).rows)
    if on == "v":
        for writes in ("create view z as", "insert into t (g, k, v)"):
            with pytest.raises(SqlError, match=r"(?i)pivot.*(view|create a table of it)"):
                tables.sql(f"{writes} {pivot}")


@pytest.mark.parametrize(
    "tail",
    ["order k", "bla bla", "order by nope", "limit -1", "union all", "order by k order by k"],
)
def test_what_is_no_pivot_is_refused(tables: Tables, tail: str) -> None:
    with pytest.raises(StatementInvalidError):
        tables.sql(f"pivot t on v using count(*) {tail}")


PIVOT = "pivot (select key, value::int as v from kv) on v using count(*)"


@pytest.mark.parametrize(
    "sql",
    [
        f"{PIVOT} order by key", f"{PIVOT} order by key;", f"{PIVOT} order by key ; -- a; b\n;",
        f"select * from ({PIVOT}) order by key", f"with c as ({PIVOT}) from c order by key",
        f"/* \u00fc; */ {PIVOT} order by key /* ; */",
    ],
)  # fmt: skip
def test_a_pivot_by_the_values_that_there_are_is_one_query(sql: str) -> None:
    answer = answered(sql)
    assert [each["name"] for each in answer["columns"]] == ["key", "0", "1"]
    assert answer["rows"] == [["a", 1, 0], ["b", 0, 1], ["c", 1, 0]]


@pytest.mark.parametrize(
    "sql",
    [
        f"create table x as {PIVOT}", f"explain {PIVOT}", f"{PIVOT}; {PIVOT}",
        f"create or replace temp view kv as {PIVOT}", f"select 1; {PIVOT}", f"{PIVOT}; select 1",
        f"copy ({PIVOT}) to 'x'", f"create table x as from ({PIVOT}); from x", ";", "",
        f"create table x as from ({PIVOT}) y) ; from (select 1",
    ],
)  # fmt: skip
def test_what_is_not_one_query_is_refused(sql: str) -> None:
    assert queried(sql).kind == "invalid"


@scenario
async def test_a_pivot_goes_over_rest() -> None:
    database = MemoryDatabase()
    async with InProcess(create_app(database.model, database.log, database.changes)) as client:
        await client.request("PUT", "/v1/kv/a", b"5")
        body = json.dumps({"sql": f"{PIVOT} order by key"}).encode()
        assert (await client.request("POST", "/v1/query", body)).json()["rows"] == [["a", 1]]


# Rows that a statement meets twice


@pytest.mark.parametrize("step", ["k + 1", "k - 1", "4 - k", "k * 10", "-k"])
@pytest.mark.parametrize("column", ["k", "u"])
def test_keys_may_change_places_in_one_update(tables: Tables, step: str, column: str) -> None:
    tables.sql("update t set u = k")
    before = dict(tables.sql("select k, v from t").rows)
    tables.sql(f"update t set {column} = {step}")
    found = dict(tables.sql(f"select {column}, v from t").rows)
    wanted = {eval(step, {"k": key}): value for key, value in before.items()}  # noqa: S307
    assert found == wanted
    with pytest.raises(ConstraintViolationError):
        tables.sql(f"update t set {column} = 7")
    assert dict(tables.sql(f"select {column}, v from t").rows) == wanted


def test_a_row_that_comes_twice_in_an_insert_is_told(tables: Tables) -> None:
    rows = "insert into t (k, v) values (9, 1), (9, 2)"
    for sql in (rows, f"{rows} on conflict (k) do update set v = excluded.v"):
        with pytest.raises(ConstraintViolationError):
            tables.sql(sql)
        assert tables.sql("select v from t where k = 9").rows == ()
    tables.sql(f"{rows} on conflict (k) do nothing")
    assert tables.sql("select v from t where k = 9").rows == ((1,),)


def test_a_key_that_was_given_away_is_free_in_the_same_transaction(tables: Tables) -> None:
    def moved(txn: TablesView) -> None:
        txn.sql("update t set k = 4 where k = 1")
        txn.sql("insert into t (k, v) values (1, 10)")
        txn.sql("delete from t where k = 2")
        txn.sql("insert into t (k, v) values (2, 20)")

    tables.run(moved)
    assert tables.sql("select k, v from t order by k").rows == ((1, 10), (2, 20), (3, 3), (4, 1))


@pytest.mark.parametrize("clause", ["limit -1", "offset -1", "limit 1 offset -1"])
def test_a_negative_limit_is_refused(tables: Tables, clause: str) -> None:
    with pytest.raises(StatementInvalidError, match="cannot be negative"):
        tables.sql(f"select * from t {clause}")

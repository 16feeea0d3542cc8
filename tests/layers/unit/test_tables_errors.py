"""Errors of statements are those of tables, and the time of a transaction is one instant."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

import duckdb

from streamydb_layers.tables import DataRefusedError, SqlError, Tables
from streamydb_layers.tables.clock import asks
from tests.support.seeds import seeds

EXTREMES = (
    "interval '100000000 years'", "interval '9000000000 days'", "date 'infinity'",
    "timestamp '-infinity'", "timestamp '294247-01-10 04:00:54'", "date '5877642-06-25 (BC)'",
    "170141183460469231731687303715884105727::hugeint", "1e400", "'nan'::double", "time '24:00:00'",
    "340282366920938463463374607431768211455::uhugeint", "chr(0)", "'\\xFF'::blob", "map {[1]: 2}",
    "decode('\\xFF'::blob)", "'101'::bit", "repeat('[', 9000)", "make_date(0, 1, 1)", "9" * 5000,
    "json('1e999')", "timestamp_ns '2026-01-01 00:00:00.123456789'", "timetz '01:02:03+15:59'",
)  # fmt: skip
PLACES = (
    "select {}", "select [{}]", "select {{'a': {}}}", "select map {{1: {}}}",
    "insert into t (a, b) values (1, {}) returning b", "insert into t (a, e) select 2, {}",
    "select a from t where c < {}", "select a from t where a = {}", "select a from t limit {}",
    "insert into t (a, j) values (1, {})", "update t set c = {}", "delete from t where e = {}",
    "create table u (a int default {}, check (a < {}))", "create view v as select {} as k",
)  # fmt: skip
CLOCKS = (
    "now()", "current_timestamp", "get_current_timestamp()", "transaction_timestamp()",
    "current_time", "localtime", "localtimestamp", "current_localtimestamp()", "today()",
    "current_date", "current_localtime()", "get_current_time()", "age(timestamp '2001-02-03')",
)  # fmt: skip


@pytest.fixture
def tables() -> Iterator[Tables]:
    with Tables.in_memory() as made:
        made.sql("create table t (a int primary key, b text, c double, e timestamp, j json)")
        yield made


@pytest.mark.parametrize("place", PLACES)
def test_a_value_beyond_all_others_is_a_value_or_an_error_of_tables(
    tables: Tables, place: str
) -> None:
    done = 0
    for value in EXTREMES:
        with tables.begin() as transaction:
            with suppress(SqlError):
                transaction.sql(place.format(value, value))
            done += 1
            transaction.rollback()
    assert done == len(EXTREMES)


def test_a_value_that_python_does_not_have_is_named(tables: Tables) -> None:
    with pytest.raises(DataRefusedError, match="cast it to text"):
        tables.sql("select {'a': interval '100000000 years'}")
    assert tables.sql("select {'a': interval '100000000 years'}::text").rows


@given(st.integers(0, 2**32))
@settings(max_examples=seeds(20, 8))
def test_any_text_is_a_statement_or_an_error_of_tables(seed: int) -> None:
    dice = random.Random(seed)
    words = "select from where t a b 'x 1e 0x ( ) [ ] { } , ; . :: -> ->> ? $ $1 @ # ! e' \\ /* "
    words += "case when end over interval date array map lambda x: := => * with as values insert"
    words += " into update set delete create table view cast try_cast extract at zone like in is"
    with Tables.in_memory() as tables:
        tables.sql("create table t (a int primary key, b text)")
        for _ in range(20):
            text = " ".join(dice.choices(words.split(), k=dice.randrange(1, 9)))
            try:
                done = tables.script(dice.choice(["", "select ", "select a from t where "]) + text)
            except SqlError:
                continue
            assert isinstance(done, list)


def test_the_time_is_one_instant_in_a_transaction(tables: Tables) -> None:
    asked = f"select {', '.join(CLOCKS)}"
    tables.sql("create table stamped (a int, at timestamp default current_timestamp::timestamp)")
    tables.sql("create view clock as select now() as at")
    with tables.begin() as transaction:
        first = transaction.sql(asked).rows
        transaction.sql("insert into stamped (a) select range from range(100)")
        assert transaction.sql(asked).rows == first
        [[moment]] = transaction.sql("select at from clock").rows
        assert moment == first[0][0]
        stamps = transaction.sql("select distinct at from stamped").rows
        assert stamps == ((moment.replace(tzinfo=None),),)
    assert tables.sql(asked).rows != first
    assert abs(dt.datetime.now(dt.UTC) - moment) < dt.timedelta(hours=1)


def test_each_function_of_the_time_is_ours() -> None:
    with Tables.in_memory() as tables, duckdb.connect() as plain:
        plain.execute("set timezone = 'UTC'")
        for cell in CLOCKS:
            assert asks(cell)
            mine = tables.sql(f"select {cell}, typeof({cell})")
            [theirs] = plain.execute(f"select {cell}, typeof({cell})").fetchall()
            assert mine.rows[0][1] == theirs[1], cell
            shown = plain.execute(f"select {cell}").description
            assert mine.columns[0] == shown[0][0]
        found = plain.execute(
            "select distinct function_name from duckdb_functions() "
            "where stability = 'CONSISTENT_WITHIN_QUERY' and contains(return_type, 'TIME') "
            "or function_name in ('today', 'current_date')"
        )
        assert {f"{name}()" for [name] in found.fetchall()} <= {*CLOCKS, "current_date()"}

"""Every word of DuckDB's grammar is the name of a column and of a table, whoever writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")
pytest.importorskip("sqlalchemy")

import duckdb
import pandas as pd
from sqlalchemy import (
    Column,
    Computed,
    Identity,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    inspect,
    select,
)
from sqlalchemy.dialects import registry
from sqlalchemy.engine import Engine
from sqlalchemy.exc import CompileError

from streamydb_layers.tables import Tables
from streamydb_layers.tables.alchemy import TablesDialect
from tests.support.seeds import thinned

KEYWORDS = sorted(
    {name for (name,) in duckdb.execute("select keyword_name from duckdb_keywords()").fetchall()}
)
OTHERS = ("rowid", "excluded", "user", "date", "json", "now", "current_date", "kv", "row_", "t")
COLUMNS_AT_ONCE = 200
ODD = ("a b", "é", "A", 'x"y', "a.b", "a?b", "$1", "%", "a%s", ":name", "1", "--", "/*", "ß\n", "'")


@pytest.fixture
def engine() -> Iterator[Engine]:
    for name in ("streamydb", "streamydb.rest"):
        registry.register(name, TablesDialect.__module__, TablesDialect.__name__)
    made = create_engine("streamydb:///names")
    yield made
    with made.begin() as connection:
        MetaData().drop_all(connection)
        for name in inspect(connection).get_table_names():
            connection.exec_driver_sql(f'drop table "{name}"')
    made.dispose()


def parts() -> Iterator[Sequence[str]]:
    """Yield the words, as many as a table has columns."""
    every = list(dict.fromkeys([*KEYWORDS, *OTHERS]))
    for start in range(0, len(every), COLUMNS_AT_ONCE):
        yield every[start : start + COLUMNS_AT_ONCE]


def words(number: int) -> list[str]:
    """Every fourth of the words, beginning with that one: a table for each takes long."""
    return list(dict.fromkeys([*KEYWORDS, *OTHERS]))[number::4]


def quoted(names: Sequence[str]) -> list[str]:
    return ['"' + name.replace('"', '""') + '"' for name in names]


def test_the_words_are_those_of_duckdb() -> None:
    assert len(KEYWORDS) > 400
    assert {"map", "all", "values", "select", "lambda"} <= set(KEYWORDS)


@pytest.mark.parametrize("names", [*parts(), ODD])
def test_a_word_is_a_column_in_sql(names: Sequence[str]) -> None:
    columns = quoted(names)
    with Tables.in_memory() as tables:
        kinds = ", ".join(f"{column} int" for column in columns)
        tables.sql(f'create table t ({kinds}, "key 0" int primary key)')
        values = list(range(len(columns)))
        places = ", ".join("?" for _ in columns)
        tables.sql(f"insert into t values ({places}, 7)", values)
        found = tables.sql(f"select {', '.join(columns)} from t where {columns[-1]} = ?",
                           [values[-1]])  # fmt: skip
        assert (found.columns, found.rows) == (tuple(names), (tuple(values),))
        sets = ", ".join(f"{column} = t.{column} + 1" for column in columns)
        back = tables.sql(f"update t set {sets} where {columns[0]} = 0 returning {columns[1]}")
        assert (back.columns, back.rows) == ((names[1],), ((2,),))
        written = f'insert into t ({columns[0]}, "key 0") values (5, 7)'
        on = f"do update set {columns[0]} = excluded.{columns[0]} + t.{columns[1]}"
        tables.sql(f'{written} on conflict ("key 0") {on}')
        tables.sql(f"create view v as select {', '.join(columns)} from t")
        assert tables.sql(f"select {columns[0]} from v where {columns[0]} = 7").rows == ((7,),)
        tables.sql(f"alter table t add column more int check ({columns[2]} > 0)")
        with pytest.raises(Exception, match="check"):
            tables.sql(f"update t set {columns[2]} = 0")


@pytest.mark.parametrize("part", thinned(range(4), 4))
def test_a_word_is_a_table_in_sql(part: int) -> None:
    with Tables.in_memory() as tables, tables.begin() as transaction:
        for name in words(part):
            transaction.sql(f'create table "{name}" (a int primary key, "{name}" int)')
            transaction.sql(f'insert into "{name}" values (1, 2)')
            transaction.sql(f'create index "{name}_index" on "{name}" ("{name}")')
            transaction.sql(f'update "{name}" set a = 3 where "{name}"."{name}" = 2')
            read = f'select x."{name}", (select max(a) from "{name}") from "{name}" x'
            assert transaction.sql(read).rows == ((2, 3),), name


@pytest.mark.parametrize("name", ["all", "map", "values", "select", "lambda", "t", "current_date"])
def test_a_word_is_a_view_in_sql(name: str) -> None:
    with Tables.in_memory() as tables:
        tables.sql("create table base (a int primary key)")
        tables.sql("insert into base values (3), (4)")
        tables.sql(f'create view "{name}" as select * from base')
        assert tables.sql(f'select a from "{name}" where a = 3').rows == ((3,),)
        tables.sql(f'create view "{name}_" as select "{name}".a as "{name}" from "{name}"')
        assert tables.sql(f'select "{name}" from "{name}_" where "{name}" > 3').rows == ((4,),)
        tables.sql(f'delete from base where a in (select "{name}" from "{name}_" limit 1)')
        tables.sql(f'drop view "{name}_"')


@pytest.mark.parametrize("names", [*parts(), ODD])
def test_a_word_is_a_column_in_sqlalchemy(engine: Engine, names: Sequence[str]) -> None:
    metadata = MetaData()
    key = Column("key 0", Integer, primary_key=True)
    table = Table("words", metadata, key, *(Column(name, Integer) for name in names))
    metadata.create_all(engine)
    values: dict[str, Any] = {name: number for number, name in enumerate(names)}
    with engine.begin() as connection:
        connection.execute(table.insert(), [{**values, "key 0": 1}, {**values, "key 0": 2}])
        chosen = select(*(table.c[name] for name in names)).where(table.c[names[3]] == 3)
        assert dict(connection.execute(chosen).mappings().all()[0]) == values
        connection.execute(table.update().values({names[0]: table.c[names[1]] + 6}))
        assert connection.scalars(select(table.c[names[0]]).distinct()).all() == [7]
        there = inspect(connection).get_columns("words")
        assert [column["name"] for column in there] == ["key 0", *names]


@pytest.mark.parametrize("part", thinned(range(4), 4))
def test_a_word_is_a_table_in_sqlalchemy(engine: Engine, part: int) -> None:
    for number, name in enumerate(words(part)):
        metadata = MetaData()
        table = Table(name, metadata, Column("id", Integer, primary_key=True), Column(name, String))
        with engine.begin() as connection:
            table.create(connection)
            connection.execute(table.insert().values({name: "x"}))
            assert connection.execute(select(table)).all() == [(1, "x")], name
            if number % 20 == 0 or name in {"all", "map", "values"}:
                Index(f"{name}_index", table.c[name]).create(connection)
                again = Table(name, MetaData(), autoload_with=connection)
                assert list(again.c.keys()) == ["id", name]
            table.drop(connection)


@pytest.mark.parametrize("names", [*parts(), ODD])
def test_a_word_is_a_column_in_pandas(engine: Engine, names: Sequence[str]) -> None:
    frame = pd.DataFrame({name: [number, 1] for number, name in enumerate(names)})
    with engine.begin() as connection:
        assert frame.to_sql("frame", connection, index=False) == 2
        assert frame.to_sql("frame", connection, index=False, if_exists="append") == 2
        found = pd.read_sql_table("frame", connection)
        assert list(found.columns) == list(names)
        both = pd.concat([frame, frame]).sort_values(list(names)[:2]).reset_index(drop=True)
        assert found.sort_values(list(names)[:2]).reset_index(drop=True).equals(both)


@pytest.mark.parametrize("name", [*KEYWORDS[::9], *OTHERS])
def test_a_word_is_a_table_in_pandas(engine: Engine, name: str) -> None:
    frame = pd.DataFrame({"a": [1, 2], name + "_": ["x", None]})
    with engine.begin() as connection:
        frame.to_sql(name, connection, index=True, index_label="at")
        found = pd.read_sql(f'select a from "{name}" where at = 1', connection)
        assert found["a"].to_list() == [2]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (Column("a", Integer, Computed("1 + 1")), "no computed columns"),
        (Column("a", Integer, Identity(start=5)), "no 'start'"),
        (Column("a", Integer, Identity(increment=2)), "no 'increment'"),
        (Column("a", Integer, Identity(always=True)), "no 'always'"),
        (Column("a", Integer, Identity(minvalue=0)), "no 'minvalue'"),
        (Column("a", Integer, Identity(maxvalue=9)), "no 'maxvalue'"),
        (Column("a", Integer, Identity(cycle=True)), "no 'cycle'"),
        (Column("a", Integer, Identity(cache=9)), "no 'cache'"),
    ],
)
def test_what_a_column_says_more_is_refused(engine: Engine, column: Column[Any], told: str) -> None:
    table = Table("t", MetaData(), Column("id", String, primary_key=True), column._copy())
    with pytest.raises(CompileError, match=told):
        table.create(engine)
    assert not inspect(engine).has_table("t")


def test_rows_are_numbered_from_one(engine: Engine) -> None:
    for identity in (Identity(), Identity(start=1, increment=1)):
        table = Table(
            "t", MetaData(), Column("id", Integer, identity, primary_key=True), Column("b", Integer)
        )
        table.create(engine)
        with engine.begin() as connection:
            assert connection.execute(table.insert().values(b=2)).inserted_primary_key == (1,)
        table.drop(engine)

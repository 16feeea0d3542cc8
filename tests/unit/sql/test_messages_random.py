"""Drawn SQL that is wrong, on real DuckDB: every error is a sentence that its reader can use.

No message names a setting or a folder that the query does not name, and none advises what a query
cannot do. What runs in the service's process, and SQL tables, raise nothing else.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

import duckdb

from streamydb.sql.engine import connect, lock, message_of
from streamydb.sql.worker import Job, StoredRow, run
from streamydb_layers.tables import SqlError, Tables
from tests.support.seeds import seeds

ATOMS = (
    "1", "0", "-1", "null", "'a'", "''", "1.5", "key", "value", "version", "ts", "[1, 2]",
    "{'a': 1}", "map {1: 2}", "x -> x", "interval '1 day'", "date '2020-01-01'", r"'\xff'::blob",
    "*", "nokey", "kv", "(select 1)", "9223372036854775807", "1e308", "true", "$1", "x := 1",
    "'2020-13-01'::date", "lambda x: x", "(select unnest([1, 2]))",
)  # fmt: skip
OPERATORS = (
    "+", "-", "*", "/", "//", "%", "||", "->", "->>", "=", "<", "and", "in", "like", "~", "^",
    "<<", "similar to", "at time zone", "collate",
)  # fmt: skip
TYPES = (
    "int", "uuid", "date", "bit", "json", "foo", "struct(a int)", "int[]", "decimal(99, 1)",
    "varint", "timestamptz", "enum",
)  # fmt: skip
SOURCES = (
    "kv", "kv a, kv b", "nothing", "kv join kv using (k)", "range(3)", "'file.csv'",
    "'https://host/z.parquet'", "kv tablesample 200%", "duckdb_settings()", "duckdb_secrets()",
    "duckdb_extensions()", "information_schema.tables", "'~/x.json'", "s3.t",
)  # fmt: skip
STRANGE = (
    "select current_setting('nope')", "select getenv('HOME')", "select 1 // 0", "select 5 % 0",
    "select * from year()", "select * from has_table_privilege()", "select 1 order by 'a'",
    "select st_point(1, 2)", "select * from sqlite_scan('a', 'b')", "from read_csv('~/a')",
    "select install_path from duckdb_extensions()", "from duckdb_extension_repositories()",
    "select getvariable('x')", "select error('x')",
    r"select cast('\xff'::blob as uuid)", "select list_transform([1], x -> x + 1)",
)  # fmt: skip
ADVICE = re.compile(r"(?<!')\b(?:SET|INSTALL|LOAD|auto-?install\w*|Stack Trace|Traceback|codec)\b")
COMMON = {"TimeZone", "null_order", "schema", "user", "username"}
"""Settings whose names are common words, or those of parameters of functions."""


class Drawing:
    """Draws statements from the functions that DuckDB has."""

    def __init__(self, dice: random.Random, functions: list[str]) -> None:
        self._dice = dice
        self._functions = functions

    def expression(self, depth: int) -> str:
        dice = self._dice
        kind = dice.randrange(7)
        if depth == 0 or kind == 0:
            return dice.choice(ATOMS)
        if kind < 4:
            return self._call(depth, (0, 1, 1, 2, 2, 3))
        one = self.expression(depth - 1)
        if kind == 4:
            return f"({one} {dice.choice(OPERATORS)} {self.expression(depth - 1)})"
        if kind == 5:
            return f"cast({one} as {dice.choice(TYPES)})"
        return f"(select {one} from {self.source(depth - 1)})"

    def _call(self, depth: int, counts: tuple[int, ...]) -> str:
        name = self._dice.choice(self._functions)
        given = [self.expression(depth - 1) for _ in range(self._dice.choice(counts))]
        return f"{name}({', '.join(given)})"

    def source(self, depth: int) -> str:
        if depth <= 0 or self._dice.random() < 0.6:
            return self._dice.choice(SOURCES)
        return self._call(depth, (0, 1, 2))

    def statement(self) -> str:
        dice = self._dice
        if dice.random() < 0.1:
            return dice.choice(STRANGE)
        if dice.random() < 0.1:
            return f"pivot kv on {self.expression(1)} using {self.expression(1)}"
        made = f"select {self.expression(3)} from {self.source(2)}"
        for clause in ("where", "group by", "order by", "limit"):
            if dice.random() < 0.2:
                made += f" {clause} {self.expression(1)}"
        if dice.random() < 0.15:
            words = re.findall(r"\w+|\S", made)
            at = dice.randrange(len(words))
            words[at : at + dice.randrange(2)] = dice.sample(words, dice.randrange(2))
            made = " ".join(words)
        return made


@pytest.fixture(scope="module")
def locked() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect({"memory_limit": "300MB", "threads": "1"})
    connection.execute(
        "create table kv as select 'a' as key, '1'::json as value, 1::bigint as version, "
        "timestamp '2026-01-01' as ts"
    )
    lock(connection)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def functions(locked: duckdb.DuckDBPyConnection) -> list[str]:
    named = locked.execute("select distinct function_name from duckdb_functions()").fetchall()
    plain = sorted(name for (name,) in named if re.fullmatch("[a-z_0-9]+", name))
    return [name for name in plain if not re.search("sleep|repeat|range|generate|pad", name)]


@pytest.fixture(scope="module")
def settings(locked: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in locked.execute("select name from duckdb_settings()").fetchall()}


def unusable(told: str, sql: str, settings: set[str]) -> list[str]:
    """Return what a message tells that its reader cannot know or do."""
    told = told.partition("\n\nLINE ")[0]  # behind it stands the query
    known = set(re.findall(r"\w+", sql + sql.replace("disable_", " enable_")))
    words = set(re.findall(r"\w+", told)) - known
    own = [str(Path.home()), str(Path.cwd()), tempfile.gettempdir(), ".duckdb"]
    return [
        *sorted(words & settings - COMMON),
        *ADVICE.findall(told),
        *(folder for folder in own if len(folder) > 1 and folder in told),
    ]


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(6, 2)))
def test_no_message_names_what_its_reader_cannot_know_or_do(
    seed: int, locked: duckdb.DuckDBPyConnection, functions: list[str], settings: set[str]
) -> None:
    drawing, failed = Drawing(random.Random(seed), functions), 0
    for sql in (*STRANGE, *(drawing.statement() for _ in range(400))):
        try:
            locked.execute(sql).fetchmany(3)
        except (duckdb.Error, UnicodeDecodeError) as error:
            failed += 1
            told = message_of(error)
            assert told.strip(), sql
            assert unusable(told, sql, settings) == [], (sql, told)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            failed += 1  # of a value that Python does not have
    assert failed > 200


def test_no_setting_shows_a_folder_of_the_service(locked: duckdb.DuckDBPyConnection) -> None:
    shown = locked.execute("select string_agg(value, ' ') from duckdb_settings()").fetchall()
    assert str(Path.home()) not in str(shown)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(4, 2)))
def test_a_query_of_the_service_has_an_outcome_and_tables_raise_errors_of_their_own(
    seed: int, functions: list[str], settings: set[str]
) -> None:
    drawing = Drawing(random.Random(1_000 + seed), functions)
    rows = [StoredRow("a", b"1", 1, 1)]
    with Tables.in_memory() as tables:
        tables.sql("create table kv (key text primary key, value json, version bigint)")
        for sql in (*STRANGE, *(drawing.statement() for _ in range(60))):
            outcome = run(
                Job(
                    sql=sql, params=[], prefixes=[""], folder=None, database="", at=1, rows=rows,
                    memory_bytes=1 << 28, threads=1, cpu_s=60, rows_max=100, bytes_max=1 << 20,
                )
            )  # fmt: skip
            assert outcome.kind in ("done", "invalid", "large", "costly")
            assert (outcome.kind == "invalid") == bool(outcome.message)
            assert unusable(outcome.message, sql, settings) == [], (sql, outcome.message)
            with suppress(SqlError):
                tables.sql(sql)

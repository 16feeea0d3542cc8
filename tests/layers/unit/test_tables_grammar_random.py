"""Statements that write and read, with a word too many, too few, or in another place.

What SQL tables execute of them, DuckDB understands, too, and it leaves or shows the same rows. A
name may be a word that DuckDB reserves: there it has quotes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

import duckdb

from streamydb_layers.tables import SqlError, Tables
from tests.support.seeds import seeds

pytestmark = pytest.mark.randomized
BEGIN = (
    "create table t (a int primary key, b text, c int)",
    "insert into t values (1, 'x', 1), (2, 'y', 2), (3, null, 3)",
)
ROWS = "select a, b, c from t order by a"
WRITES = (
    "update t set b = 'z' , c = c + 1 where a = 1 and c < 5",
    "update t as u set c = case when u.a = 1 then 2 else 3 end where u.b is not null returning c",
    "delete from t where a in ( 1 , 2 ) or b like 'x%' returning a , b",
    "delete from t where not ( a between 1 and 2 )",
    "insert into t ( a , c ) values ( 4 , 5 ) , ( 6 , 7 )",
    "insert into t values ( 1 , 'z' , 3 ) on conflict ( a ) do update set c = excluded.c + t.c",
    "insert into t select a + 10 , b , c from t where c > 1 order by a limit 2",
    "insert into t values ( 8 , 'w' , 9 ) on conflict do nothing returning a",
)
READS = (
    "select a , b from t where a in ( 1 , 2 ) and c < 5 order by a desc",
    "select t.a , u.b from t join t as u on t.a = u.c where u.b is not null",
    "select t.a , u.c from t left join t as u using ( b ) where not ( t.a between 1 and 2 )",
    "select b , count ( * ) as n from t group by b having count ( * ) > 0",
    "select distinct c from t where b like 'x%' or b is null",
    "with v as ( select a , c from t ) select v.a from v where v.c = ( select min ( a ) from t )",
    "select a from t union all select c from t where b = 'x'",
)
TOKEN = re.compile(r"'[^']*'|[\w.]+|[^\s\w]")
TURNS = 12


def changed(dice: random.Random, statements: Sequence[str] = WRITES) -> str:
    """One of the statements, with one or two of its words changed, but the first."""
    words = TOKEN.findall(dice.choice(statements))
    for _ in range(dice.choice([1, 1, 1, 2])):
        at = dice.randrange(1, len(words))
        kind = dice.choice(["drop", "double", "move", "foreign"])
        if kind == "drop":
            words.pop(at)
        elif kind == "double":
            words.insert(at, words[at])
        elif kind == "move":
            words.insert(dice.randrange(1, len(words)), words.pop(at))
        else:
            words.insert(at, dice.choice(TOKEN.findall(dice.choice(statements))))
    return " ".join(words)


def quoted(sql: str) -> Iterator[str]:
    """The statement, and those in which one or two of its words are names."""
    words = TOKEN.findall(sql)
    names = [at for at, word in enumerate(words) if word.isalpha()]
    for chosen in (pair for count in range(3) for pair in combinations(names, count)):
        yield " ".join(f'"{word}"' if at in chosen else word for at, word in enumerate(words))


def in_duckdb(sql: str, *, shown: bool = False) -> list[Any] | None:
    """The rows after a statement, or those that it shows; None: DuckDB understands it, and refuses
    it.

    It says of some updates of a key that they violate it, and chooses no types where sqlglot has
    left something out that means nothing, as a plus before a text.
    """
    understood = next(filter(is_parsed, quoted(sql)), None)
    assert understood is not None, sql
    with duckdb.connect() as connection:
        for each in BEGIN:
            connection.execute(each)
        try:
            done = connection.execute(understood)
        except duckdb.Error:
            return None
        found: list[Any] = (done if shown else connection.execute(ROWS)).fetchall()
        return found


def is_parsed(sql: str) -> bool:
    try:
        duckdb.extract_statements(sql)
    except duckdb.ParserException:
        return False
    return True


@given(st.integers(0, 2**32))
@settings(max_examples=seeds(10))
def test_what_is_executed_is_what_duckdb_understands(seed: int) -> None:
    dice = random.Random(seed)
    with Tables.in_memory() as tables:
        for each in BEGIN:
            tables.sql(each)
        before = tables.sql(ROWS).rows
        for sql in (changed(dice) for _ in range(TURNS)):
            try:
                tables.sql(sql)
            except SqlError:
                assert tables.sql(ROWS).rows == before, sql
                continue
            after = in_duckdb(sql)
            assert after is None or list(tables.sql(ROWS).rows) == after, sql
            tables.sql("delete from t")
            tables.sql(BEGIN[1])


@given(st.integers(0, 2**32))
@settings(max_examples=seeds(10))
def test_what_is_shown_is_what_duckdb_understands(seed: int) -> None:
    dice = random.Random(seed)
    with Tables.in_memory() as tables:
        for each in BEGIN:
            tables.sql(each)
        for sql in (changed(dice, READS) for _ in range(TURNS)):
            try:
                found = tables.sql(sql).rows
            except SqlError:
                continue
            known = in_duckdb(sql, shown=True)
            assert known is None or sorted(map(repr, found)) == sorted(map(repr, known)), sql

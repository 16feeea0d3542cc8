"""Random statements over random schemas, in SQL tables and in SQLite: every answer is the same.

Transactions run at the same time, too; those that commit gave the answers that SQLite gives one
after the other, in the order of the commits.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.client import Client, ConstraintViolatedError, SqlResult
from streamydb.testing.clients import MemoryHost
from streamydb_layers.tables import ConstraintViolationError, Tables
from tests.support.interleaving import interleave
from tests.support.seeds import seeds
from tests.support.tables import Drawn, Pair

pytestmark = pytest.mark.randomized
STATEMENTS = 25


@given(st.integers(0, 2**32))
@settings(max_examples=seeds(20, 5))
def test_each_statement_does_what_it_does_in_sqlite(seed: int) -> None:
    drawn = Drawn(random.Random(seed))
    pair = Pair(Tables.in_memory())
    try:
        for sql in drawn.schema():
            pair.same(sql)
        for _ in range(STATEMENTS):
            pair.same(drawn.statement())
        for shape in drawn.shapes:
            pair.same(f"select * from {shape.name}")
    finally:
        pair.close()


@given(st.integers(0, 2**32))
@settings(max_examples=seeds(20, 5))
def test_transactions_that_commit_are_serial(seed: int) -> None:
    interleave(seed, Tables.in_memory(), STATEMENTS)


@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_transactions_of_a_client_that_commit_are_serial(seed: int) -> None:
    with MemoryHost() as host:
        interleave(seed, Tables(host.connect(), "shop"), STATEMENTS)


@given(st.integers(0, 2**32))
@settings(max_examples=5)
def test_each_statement_within_a_function_does_what_it_does_in_sqlite(seed: int) -> None:
    drawn = Drawn(random.Random(seed))
    with MemoryHost() as host:
        client = host.connect()
        pair = Pair(Tables(client, "shop"))
        for sql in drawn.schema():
            pair.same(sql)
        statements = [drawn.statement() for _ in range(STATEMENTS)]

        def function(view: Any) -> list[Any]:
            return [pair.mine(sql, pair.tables.within(view)) for sql in statements]

        for sql, answer in zip(statements, client.run(function), strict=True):
            assert answer == "on conflict" or answer == pair.theirs(sql), sql
        for shape in drawn.shapes:
            pair.same(f"select * from {shape.name}")
        pair.close()


class OverRest:
    """Tables behind a facade, with the errors of those in this process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def sql(self, sql: str) -> SqlResult:
        try:
            return self._client.sql(sql)
        except ConstraintViolatedError as error:
            told = error.members
            raise ConstraintViolationError(
                told["of"], told["constraint"], told["table"], told["violated"]
            ) from error

    def close(self) -> None:
        self._client.close()


@given(st.integers(0, 2**32))
@settings(max_examples=2)
def test_each_statement_over_rest_does_what_it_does_in_sqlite(seed: int) -> None:
    drawn = Drawn(random.Random(seed))
    with MemoryHost() as host:
        tables: Any = OverRest(host.connect())
        pair = Pair(tables)
        for sql in [*drawn.schema(), *(drawn.statement() for _ in range(STATEMENTS))]:
            pair.same(sql)
        for shape in drawn.shapes:
            pair.same(f"select * from {shape.name}")
        pair.close()


@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_tables_are_altered_as_in_sqlite(seed: int) -> None:
    dice = random.Random(seed)
    pair = Pair(Tables.in_memory())
    table, columns, numbers = "t", ["n"], iter(range(100))
    pair.same("create table t (id int primary key, n int)")
    for _ in range(STATEMENTS):
        number, column = next(numbers), dice.choice(columns)
        step = dice.choice(["insert", "insert", "update", "add", "add", "drop", "rename", "table"])
        if step == "insert":
            pair.same(f"insert into {table} (id, {column}) values ({number}, {number % 3})")
        elif step == "update":
            pair.same(f"update {table} set {column} = id where id % 2 = {number % 2}")
        elif step == "add":
            default = dice.choice(["", f" default {number}", f" not null default {number}"])
            pair.same(f"alter table {table} add column c{number} int{default}")
            columns.append(f"c{number}")
        elif step == "drop" and len(columns) > 1:
            pair.same(f"alter table {table} drop column {column}")
            columns.remove(column)
        elif step == "rename":
            pair.same(f"alter table {table} rename column {column} to c{number}")
            columns[columns.index(column)] = f"c{number}"
        elif step == "table":
            pair.same(f"alter table {table} rename to t{number}")
            table = f"t{number}"
        pair.same(f"select {', '.join(['id', *columns])} from {table}")
    pair.close()

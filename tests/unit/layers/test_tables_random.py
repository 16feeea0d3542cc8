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

from streamydb.layers.tables import Tables
from streamydb.testing.clients import MemoryHost
from tests.support.interleaving import interleave
from tests.support.tables import Drawn, Pair

pytestmark = pytest.mark.randomized
STATEMENTS = 25


@given(st.integers(0, 2**32))
@settings(max_examples=60)
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
@settings(max_examples=60)
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

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

from streamydb.layers.tables import OpenTransaction, Tables, TransactionConflictError
from streamydb.testing.clients import MemoryHost
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
    interleave(seed, Tables.in_memory())


@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_transactions_of_a_client_that_commit_are_serial(seed: int) -> None:
    with MemoryHost() as host:
        interleave(seed, Tables(host.connect(), "shop"))


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


def interleave(seed: int, tables: Tables) -> None:
    """Run random transactions at the same time; hold those that commit against SQLite."""
    rng = random.Random(seed)
    drawn = Drawn(rng)
    pair = Pair(tables)
    try:
        for sql in [*drawn.schema(), *(drawn.insert() for _ in range(6))]:
            pair.same(sql)
        opened: list[tuple[OpenTransaction, list[tuple[str, object]]]] = []
        for _ in range(STATEMENTS):
            if len(opened) < 3:
                opened.append((pair.tables.begin(), []))
            transaction, said = rng.choice(opened)
            if len(said) > 1 and rng.random() < 0.4:
                opened.remove((transaction, said))
                committed(pair, transaction, said)
                continue
            sql = drawn.statement()
            said.append((sql, pair.mine(sql, transaction)))
        for shape in drawn.shapes:
            pair.same(f"select * from {shape.name}")
    finally:
        pair.close()


def committed(
    pair: Pair, transaction: OpenTransaction, said: list[tuple[str, object]]
) -> None:
    """Commit; if that succeeds, and if it wrote, SQLite gives the same answers now."""
    wrote = transaction.writes
    try:
        transaction.commit()
    except TransactionConflictError:
        return
    if wrote:
        for sql, answer in said:
            if answer != "on conflict":
                assert pair.theirs(sql) == answer, sql

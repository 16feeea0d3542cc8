"""Random statements over random schemas, in SQL tables and in SQLite: every answer is the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.layers.tables import Tables
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

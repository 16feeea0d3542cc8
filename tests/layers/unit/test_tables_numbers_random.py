"""Rows that number themselves, under random statements and transactions, held against a model."""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from streamydb.testing.clients import MemoryHost
from streamydb_layers.tables import OpenTransaction, Tables, TransactionConflictError
from tests.support.numbers import REFUSED, SCHEMA, Insert, Model, Update, answer, drawn
from tests.support.seeds import seeds

pytestmark = pytest.mark.randomized
STEPS = 40
SEEN: Counter[str] = Counter()


@given(st.integers(0, 2**32))
@settings(max_examples=seeds(25, 5))
def test_each_statement_does_what_the_model_does(seed: int) -> None:
    rng, model = random.Random(seed), Model()
    with Tables.in_memory() as tables:
        tables.sql(SCHEMA)
        for _ in range(STEPS):
            statement = drawn(rng)
            assert answer(tables.sql, statement) == model.execute(statement), statement.sql()
        assert sorted(tables.sql("select * from t").rows, key=repr) == model.shown()


class Opened:
    """A transaction on its way: what was executed, and what it answered.

    A step is a statement, "savepoint" or "rollback".
    """

    def __init__(self, transaction: OpenTransaction, commits: int) -> None:
        self.transaction = transaction
        self.commits = commits
        self.steps: list[tuple[Insert | Update | str, Any]] = []
        self.saved = False

    def step(self, rng: random.Random) -> None:
        """Execute something."""
        if rng.random() < 0.25:
            what = rng.choice(["savepoint", "rollback"]) if self.saved else "savepoint"
            if what == "savepoint":
                self.transaction.savepoint("s")
            else:
                self.transaction.rollback_to("s")
            self.saved = True
            self.steps.append((what, None))
            return
        statement = drawn(rng)
        self.steps.append((statement, answer(self.transaction.sql, statement)))

    def replayed(self, model: Model) -> None:
        """Do it to the model, where it gives the same answers."""
        saved = deepcopy(model)
        for step, told in self.steps:
            if step == "savepoint":
                saved = deepcopy(model)
            elif step == "rollback":
                model.rows, model.last = deepcopy((saved.rows, saved.last))
            elif not isinstance(step, str):
                assert model.execute(step) == told, step.sql()


def _ended(one: Opened, model: Model, commits: int, rng: random.Random) -> bool:
    """End a transaction; return True if it has written."""
    if rng.random() < 0.25:
        one.transaction.rollback()
        return False
    wrote = bool(one.transaction.writes)
    try:
        one.transaction.commit()
    except TransactionConflictError:
        assert commits > one.commits, "nobody else has written"
        SEEN["conflicts"] += 1
        return False
    if wrote:
        one.replayed(model)
    SEEN["commits"] += wrote
    return wrote


def _interleaved(seed: int, tables: Tables) -> None:
    rng, model, commits = random.Random(seed), Model(), 0
    tables.sql(SCHEMA)
    opened: list[Opened] = []
    for _ in range(STEPS):
        if len(opened) < 3 and rng.random() < 0.5:
            opened.append(Opened(tables.begin(), commits))
        elif opened and rng.random() < 0.4:
            commits += _ended(opened.pop(rng.randrange(len(opened))), model, commits, rng)
        elif opened and rng.random() < 0.9:
            rng.choice(opened).step(rng)
        else:
            statement = drawn(rng)
            told = answer(tables.sql, statement)
            assert told == model.execute(statement), statement.sql()
            commits += told != REFUSED
    for one in opened:
        one.transaction.rollback()
    assert sorted(tables.sql("select * from t").rows, key=repr) == model.shown()
    statement = Insert(({},))
    assert answer(tables.sql, statement) == model.execute(statement), "the last number"


@given(st.integers(0, 2**32))
@settings(max_examples=seeds(25, 5))
def test_transactions_that_commit_are_serial(seed: int) -> None:
    with Tables.in_memory() as tables:
        _interleaved(seed, tables)


@given(st.integers(0, 2**32))
@settings(max_examples=8)
def test_transactions_of_a_client_that_commit_are_serial(seed: int) -> None:
    with MemoryHost() as host, Tables(host.connect(), "shop") as tables:
        _interleaved(seed, tables)


def test_there_are_conflicts_and_commits_among_them() -> None:
    SEEN.clear()
    for seed in range(12):
        with Tables.in_memory() as tables:
            _interleaved(seed, tables)
    assert min(SEEN["commits"], SEEN["conflicts"]) > 5, SEEN

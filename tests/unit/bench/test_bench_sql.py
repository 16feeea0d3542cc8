"""Statements on tables beside SQLite's: each kind has its figures, and both end alike."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

from bench.sql import SqlOptions, show, sql
from streamydb.cli.phases import Phases


def test_each_kind_of_statement_has_its_figures() -> None:
    # A few statements may be over before the clock of the processor time has moved.
    answer = sql(SqlOptions(rows=20, statements=40, batches=1), Phases())
    kinds = [row["case"] for row in answer["rows"]]
    assert kinds == [
        "insert", "select by key", "select by index", "update", "join of 20 rows",
    ]  # fmt: skip
    for row in answer["rows"]:
        assert 0 < row["parse_us"] < row["total_us"]
        assert row["per_s"] > 0
    shown = io.StringIO()
    show(answer, Console(file=shown, width=120))
    assert "join of 20 rows" in shown.getvalue()

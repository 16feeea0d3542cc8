"""The arithmetic of the benchmarks: percentiles, curves, intervals, limits, verdicts."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import typer
from rich.console import Console

from bench.command import named
from bench.copy_limit import rate_of
from bench.latency import summary
from bench.proof import Ledger, Verdicts
from bench.report import show
from bench.sustain import Curve, Interval, late_ms, long_run
from bench.workload import DISTRIBUTIONS


def interval(start: float, done: float, **more: Any) -> Interval:
    fields = {
        "from_s": start, "to_s": start + 10, "offered_per_s": 150.0, "done_per_s": done,
        "backlog": 0, "p50_ms": 10.0, "p99_ms": 20.0, "rss_mb": 100.0, "state_mb": 5.0,
        "batch_ms": 50.0, "handles": 70, "checkpoint_mb": 2.0, "topics_mb": 9.0,
        "cpu_percent": 120.0, "stolen_percent": 0.5,
    }  # fmt: skip
    return Interval(**{**fields, **more})


def test_latency_summary_counts_everything_once() -> None:
    found = summary(np.arange(1, 1001) / 1000)
    assert (found["p50"], found["max"], found["count"]) == (500.5, 1000.0, 1000)
    assert sum(found["histogram"]["count"]) == 1000
    assert len(found["histogram"]["count"]) == len(found["histogram"]["up_to_ms"])


def test_a_curve_gives_the_time_of_each_result() -> None:
    curve = Curve()
    curve.add(1.0, 2)
    curve.add(2.0, 2)
    curve.add(3.0, 5)
    assert curve.times_of(0, 5).tolist() == [1.0, 1.0, 3.0, 3.0, 3.0]
    assert curve.done == 5


def test_latency_of_a_curve_runs_from_the_due_time() -> None:
    curve = Curve()
    curve.add(1.0, 10)
    p50, p99 = late_ms(curve, 0, 10, rate=10.0)
    assert p50 == pytest.approx(550.0)
    assert p99 is not None
    assert p50 is not None
    assert p99 > p50
    assert late_ms(curve, 10, 10, rate=10.0) == (None, None)


def test_a_long_run_compares_its_first_and_last_minute() -> None:
    rows = [interval(10.0 * n, 100.0 - n, p99_ms=None if n == 0 else 20.0 + n) for n in range(20)]
    found = long_run(rows, capacity=100.0)
    assert found["first_minute"]["done_per_s"] == 97.5
    assert found["last_minute"]["done_per_s"] == 83.5
    assert found["first_minute"]["p99_ms"] == 23.0
    assert found["slowest_interval_to_capacity"] == 0.81
    assert len(found["intervals"]) == 20


def test_the_copy_rate_leaves_the_batch_before_the_range_out() -> None:
    batches = [
        {"rows": 100, "start": 0, "end": 100, "begun_ms": 0, "ms": 5000},
        {"rows": 0, "start": 100, "end": 100, "begun_ms": 5000, "ms": 3},
        {"rows": 100, "start": 100, "end": 200, "begun_ms": 6000, "ms": 400},
        {"rows": 100, "start": 200, "end": 300, "begun_ms": 6500, "ms": 500},
    ]
    assert rate_of(batches, first=100) == 200.0
    assert rate_of(batches[:1], first=100) == 20.0


def test_a_ledger_tells_what_is_wrong() -> None:
    assert Ledger(changes=4, accounts=2, total=200, least=0).problems(2, 200) == []
    wrong = Ledger(changes=4, accounts=1, total=199, least=-1, unreadable=["x"])
    assert len(wrong.problems(2, 200)) == 4


def test_verdicts_count_what_is_lost() -> None:
    assert Verdicts(expected=5, answered=3).lost == 2


def test_distributions_are_named_one_by_one_or_all() -> None:
    assert named("all", DISTRIBUTIONS) == ("uniform", "zipf", "hotpair")
    assert named("zipf,uniform", DISTRIBUTIONS) == ("zipf", "uniform")
    with pytest.raises(typer.BadParameter, match="normal"):
        named("normal", DISTRIBUTIONS)


def test_a_report_shows_every_kind_of_answer() -> None:
    rates = {"txn_per_s": 5.0, "us_per_transaction": 2.0, "runs": [5.0, 6.0]}
    answer: dict[str, Any] = {
        "benchmark": "bank", "txn_per_s": 5.0, "copy_limit_txn_per_s": None, "aborted": 0,
        "ratio_to_copy_limit": None, "latency_ms": {"p50": 1.0, "p99": 2.0, "rate": 500.0},
        "shards": 1, "cores": 4, "peak_rss_mb": 12345.6, "distributions": {"uniform": rates},
        "proof": {"results": 7, "accounts": 2, "balances": 20},
        "sustained": {**long_run([interval(0.0, 100.0)], 100.0), "drain": {"seconds": 1.0}},
    }  # fmt: skip
    out = io.StringIO()
    show(answer, Console(file=out, width=200))
    for text in ("uniform", "5 6", "12,346", "p50 1, p99 2", "first minute", "add up to 20"):
        assert text in out.getvalue()

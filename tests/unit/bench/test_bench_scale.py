"""Processor time by stage: what is divided, repeated and serial, and what follows from it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.in_memory import STAGES, InMemory
from bench.scale import CORES, ScaleOptions, capacity, line, scale, show
from bench.workload import BALANCE, Bank, funding
from streamydb.cli.phases import Phases


def test_a_line_tells_what_is_divided_from_what_is_repeated() -> None:
    assert line({1: 1.0, 2: 3.4, 4: 3.8, 8: 4.6}) == pytest.approx((3.0, 0.2))
    longest = {1: 9.0, 2: 2.5, 4: 1.5, 8: 1.0}
    assert line(longest, inverse=True) == pytest.approx((0.5, 4.0))


def test_a_line_has_no_part_below_nothing() -> None:
    assert line({2: 3.0, 4: 2.0, 8: 1.0}) == (2.0, 0.0)
    assert line({2: 1.0, 4: 2.2}) == pytest.approx((0.0, 0.525))
    assert line({1: 2.0}) == (2.0, 0.0)


def row(*, ours: bool, **parts: float) -> dict[str, Any]:
    names = ("divided_us", "repeated_us", "serial_us", "shared_us")
    return {"ours": ours, **{name: parts.get(name, 0.0) for name in names}}


def test_capacity_is_bound_by_what_is_serial_and_repeated() -> None:
    rows = [
        row(ours=True, serial_us=0.5, shared_us=2.0, divided_us=50.0),
        row(ours=False, divided_us=8.0, repeated_us=0.1),
    ]
    assert capacity(rows, 4) == pytest.approx(1e6 / (0.5 + 0.5 + 2.0 + 0.1))
    assert capacity(rows, 10**9) == pytest.approx(1e6 / 0.6)


def test_the_stages_execute_every_transfer(tmp_path: Path) -> None:
    for shards, folder in ((1, None), (3, tmp_path)):
        database, bank = InMemory(shards, folder), Bank(50)
        database.run(list(funding(0, 50, b"%d" % BALANCE)))
        for _ in range(2):
            times = database.run(bank.payloads(database.offset, 200))
        assert {stage: len(tasks) for stage, tasks in times.items()} == {
            stage: 2 * shards if stage == "parse" else shards for stage in STAGES
        }
        assert all(seconds > 0 for tasks in times.values() for seconds in tasks)
        assert database.committed() == 200
        database.close()


def test_the_answer_has_every_stage_and_says_that_capacity_is_computed(tmp_path: Path) -> None:
    options = ScaleOptions(
        shards=(1, 2), transactions=300, batches=2, accounts=100, parent=tmp_path
    )
    answer = scale(options, Phases())
    assert [found["stage"] for found in answer["rows"]] == list(STAGES)
    for shards in ("1", "2"):
        stages = [found["total_us"][shards] for found in answer["rows"]]
        assert answer["total_us"][shards] == pytest.approx(sum(stages), abs=0.01)
    assert answer["ratio"] == pytest.approx(
        answer["total_us"]["2"] / answer["total_us"]["1"], abs=0.01
    )
    assert set(answer["capacity"]) == {str(cores) for cores in CORES}
    assert list(tmp_path.iterdir()) == []
    out = io.StringIO()
    show(answer, Console(file=out, width=200))
    assert "Computed, not measured" in out.getvalue()
    assert "Without the JVM" in out.getvalue()

"""Benchmarks say which gear they measure: forms of `bench floor`, the answer of `bench latency`."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import common, floor
from bench.common import CommonOptions, Run
from bench.engine import EngineOptions
from streamydb.cli.phases import Phases
from streamydb.local.folder import PipelineStatus
from streamydb.records.gears import REAL_TIME, GearStatus


@pytest.mark.parametrize(
    ("form", "shards", "gear"),
    [
        ("pipeline", 1, "micro-batch"),
        ("pipeline-2", 2, "micro-batch"),
        ("real-time-pipeline", 1, "both"),
    ],
)
def test_a_pipeline_of_the_floor_has_the_gears_of_its_row(
    form: str, shards: int, gear: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[EngineOptions] = []
    monkeypatch.setattr(floor, "Engine", lambda options, *_: made.append(options))
    floor._engine(form, tmp_path / form, "nowhere:1")
    assert [(each.shards, each.extra) for each in made] == [(shards, ("--gear", gear))]


def _run(monkeypatch: pytest.MonkeyPatch, gear: GearStatus | None, *, gears: bool) -> Run:
    """A run of an engine that only says which gear leads."""
    engine: Any = SimpleNamespace(
        connection={},
        names=SimpleNamespace(transactions="t"),
        status=lambda: PipelineStatus(state="running", gear=gear),
    )
    monkeypatch.setattr(common, "Appender", lambda *_: None)
    return Run(CommonOptions(seed=1, parent=None, gears=gears), engine, Phases())


def test_an_answer_says_which_gear_leads_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 100.0)
    led = GearStatus(REAL_TIME, 40_000, "the load is small")
    assert _run(monkeypatch, led, gears=True).leader() == {"leads": REAL_TIME, "leads_s": 60.0}
    assert _run(monkeypatch, led, gears=False).leader() == {}
    assert _run(monkeypatch, None, gears=True).leader() == {}

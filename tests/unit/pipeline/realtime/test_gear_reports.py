"""The report on the gears: at once which one leads, once a second how far the other one is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.outcome import RunParts
from streamydb.pipeline.progress import PipelineMetrics, StatusWriter
from streamydb.pipeline.realtime.report import GearReports, Reach, one_gear
from streamydb.pipeline.standby.coordinator import StandbyReport
from streamydb.records.gears import MICRO_BATCH, REAL_TIME, GearStatus
from streamydb.settings import Settings


def part(role: str) -> StandbyReport:
    return StandbyReport(role, 3, "a", ready=True, lag_ms=0, behind=7, alarm=None)


def parts_of(tmp_path: Path) -> RunParts:
    unused: Any = None
    config = PipelineConfig(Settings(bootstrap="127.0.0.1:1"), tmp_path, None, tmp_path)
    status, metrics = StatusWriter(None, "bank"), PipelineMetrics()
    return RunParts(config, status, unused, unused, metrics, unused, unused)


def figure(parts: RunParts, name: str, **labels: str) -> float:
    found = parts.metrics.registry.get_sample_value(name, labels)
    assert found is not None
    return found


def test_how_far_the_other_gear_is_is_told_once_a_second() -> None:
    told: list[GearStatus] = []
    now_s, reached = [10.0], [Reach(5, 6)]
    reports = GearReports([told.append], lambda _: None, lambda: reached[-1], lambda: now_s[-1])
    reports.note(Reach(7, 9))
    assert told == [], "nobody leads yet"
    reports.show(GearStatus(REAL_TIME, 1, "calm", 77))
    reports.note(Reach(7, 9))
    assert (told[-1].behind, told[-1].behind_records, told[-1].worker) == (2, 3, 77)
    reports.note(Reach(100, 100))
    assert len(told) == 2, "it was told just now"
    now_s.append(11.5)
    reports.show(GearStatus(MICRO_BATCH, 2, "too fast"))
    assert told[-1] == GearStatus(MICRO_BATCH, 2, "too fast"), "how far is not known yet"
    reached.append(Reach(50, 60))
    reports.note(Reach(20, 20))
    assert (told[-1].behind, told[-1].behind_records) == (30, 40)
    now_s.append(13.0)
    shown = len(told)
    reports.note(Reach(20, 20))
    assert len(told) == shown, "nothing has changed"


def test_a_pipeline_leads_while_its_real_time_gear_does(tmp_path: Path) -> None:
    """The micro-batch gear follows then; an alert on `streamydb_leads` must not fire."""
    parts = parts_of(tmp_path)
    reports, status = parts.reports, parts.status.status
    reports.show(part("leading"))
    reports.show_gear(GearStatus(MICRO_BATCH, 1, "begins"))
    reports.show_gear(GearStatus(REAL_TIME, 2, "calm", 77, behind=4, behind_records=5))
    reports.show(part("following"))
    assert (status.role, status.behind, figure(parts, "streamydb_leads")) == ("leading", None, 1)
    assert figure(parts, "streamydb_behind_records") == 0
    assert figure(parts, "streamydb_gear", gear=REAL_TIME) == 1
    assert figure(parts, "streamydb_gear_behind_seqs", gear=MICRO_BATCH) == 4
    assert figure(parts, "streamydb_gear_behind_records", gear=MICRO_BATCH) == 5
    assert figure(parts, "streamydb_gear_behind_records", gear=REAL_TIME) == 0
    reports.show_gear(GearStatus(MICRO_BATCH, 3, "its worker is gone"))
    assert (status.role, figure(parts, "streamydb_leads")) == ("following", 0)
    assert math.isnan(figure(parts, "streamydb_gear_behind_seqs", gear=REAL_TIME))
    reports.show(part("leading"))
    assert (status.role, figure(parts, "streamydb_leads")) == ("leading", 1)
    assert figure(parts, "streamydb_gear_shifts_total") == 2
    assert figure(parts, "streamydb_gear_available") == 1


def test_a_pipeline_with_one_gear_says_why(tmp_path: Path) -> None:
    parts = parts_of(tmp_path)
    parts.reports.show_gear(one_gear("it has 2 shards"))
    gear = parts.status.status.gear
    assert gear is not None
    assert (gear.gear, gear.obstacle) == (MICRO_BATCH, "it has 2 shards")
    assert figure(parts, "streamydb_gear_available") == 0
    assert figure(parts, "streamydb_gear", gear=MICRO_BATCH) == 1

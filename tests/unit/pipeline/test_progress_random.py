"""Whatever micro-batches report, metrics, status, position and choices of a pipeline agree."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from streamydb.pipeline.adaptive import BatchSize
from streamydb.pipeline.config import PipelineConfig
from streamydb.pipeline.outcome import RunParts
from streamydb.pipeline.progress import PipelineMetrics, ProgressListener, StatusWriter
from streamydb.pipeline.standby.coordinator import StandbyReport
from streamydb.pipeline.standby.position import PipelinePosition
from streamydb.settings import Settings
from tests.support.seeds import seeds

METRIC_OF = {
    "seq": "streamydb_seq",
    "resolved": "streamydb_resolved",
    "feedback_ignored": "streamydb_feedback_ignored",
    "lag": "streamydb_lag_records",
    "read": "streamydb_read_records",
}


class Reader(StatusWriter):
    """Who waits for a status reads the metrics at once, and finds them as far."""

    def __init__(self, metrics: PipelineMetrics) -> None:
        super().__init__(None, "bank")
        self.metrics = metrics
        self.batches = 0
        self.shown: dict[str, float | None] = {}

    def update(self, **changes: Any) -> None:
        super().update(**changes)
        value = self.metrics.registry.get_sample_value
        for name, metric in METRIC_OF.items():
            if name in changes:
                assert value(metric) == changes[name], name
        if "batch" in changes:
            self.batches += 1
            assert value("streamydb_batch_seconds_count") == self.batches
        names = ("leads", "epoch", "ready", "diverged", "behind_records")
        self.shown = {name: value(f"streamydb_{name}") for name in names}


class Reports:
    """Spark's reports of micro-batches, one after the other."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.batch, self.rows = dice, 0, 0
        self.ends = {str(partition): 0 for partition in range(dice.randint(1, 3))}
        self.feedback = 0
        self.seq = self.resolved = self.ignored = 0

    def source(self, rows: dict[str, int]) -> dict[str, Any]:
        """The log: what was read, what there is; Spark gives offsets as JSON or as a text of it."""
        for partition, more in rows.items():
            self.ends[partition] += more
        latest = {name: end + self.dice.choice([0, 0, 9]) for name, end in self.ends.items()}
        end: Any = {"bank.log": dict(self.ends)}
        return {
            "numInputRows": sum(rows.values()),
            "endOffset": json.dumps(end) if self.dice.random() < 0.5 else end,
            "latestOffset": {"bank.log": latest} if self.dice.random() < 0.8 else None,
        }

    def next(self) -> dict[str, Any]:
        """A micro-batch; it may have no transactions, and then no figures of the query."""
        dice = self.dice
        rows = {name: dice.choice([0, 0, 1, 75, 9_000]) for name in self.ends}
        self.rows = sum(rows.values())
        self.feedback += dice.randint(0, 2)
        self.batch += dice.randint(1, 2)
        seen: dict[str, Any] = {}
        if dice.random() < 0.8:
            self.seq += self.rows
            self.resolved = dice.randint(self.resolved, self.seq)
            self.ignored = dice.choice([self.ignored, 0])
            seen["progress"] = {
                "seq": self.seq or None,
                "resolved": self.resolved or None,
                "ignored": self.ignored or None,
                "resolves": f"resolved {self.resolved}",
            }
            seen["executing"] = {"cpu_us": dice.choice([None, 700, 90_000])}
        return {
            "batchId": self.batch,
            "batchDuration": dice.choice([0, 90]),
            "numInputRows": self.rows + 1,
            "observedMetrics": seen,
            "sources": [
                self.source(rows),
                {"numInputRows": 1, "endOffset": {"bank.feedback": {"0": self.feedback}}},
            ],
        }


@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_what_a_batch_reports_is_told_alike_everywhere(seed: int) -> None:
    reports, metrics = Reports(random.Random(seed)), PipelineMetrics()
    status = Reader(metrics)
    positions: list[PipelinePosition] = []
    announced: list[str | None] = []
    sizes: list[BatchSize] = []
    listener = ProgressListener(status, metrics, positions.append, announced.append, [sizes.append])
    rows = 0
    for number in range(1, 30):
        report = reports.next()
        rows += reports.rows
        listener.note(json.dumps(report))
        shown = status.status
        assert (shown.batch, shown.seq, shown.resolved) == (
            reports.batch,
            reports.seq,
            reports.resolved,
        )
        assert (
            shown.read == rows == metrics.registry.get_sample_value("streamydb_input_records_total")
        )
        latest = (report["sources"][0]["latestOffset"] or {}).get("bank.log", {})
        assert shown.lag == sum(latest.values()) - (rows if latest else 0)
        assert positions[-1] == PipelinePosition(
            reports.resolved, rows, reports.feedback, reports.seq
        )
        seen = report["observedMetrics"]
        assert announced[-1] == seen.get("progress", {}).get("resolves")
        executing = seen.get("executing", {}).get("cpu_us") or 0
        assert sizes[-1] == BatchSize(reports.rows + 1, reports.rows, executing)
        assert len(positions) == len(announced) == len(sizes) == number


@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_who_reads_the_part_of_a_pipeline_finds_its_metrics_so(seed: int, tmp_path: Path) -> None:
    dice, metrics = random.Random(seed), PipelineMetrics()
    status = Reader(metrics)
    settings = Settings(bootstrap="127.0.0.1:1")
    config = PipelineConfig(settings, checkpoint=tmp_path, master=None, local=tmp_path)
    unused: Any = None
    parts = RunParts(config, status, unused, unused, metrics, unused, unused)
    for _ in range(20):
        report = StandbyReport(
            role=dice.choice(["leading", "following"]),
            epoch=dice.randint(0, 9),
            leader="a",
            ready=dice.random() < 0.5,
            lag_ms=dice.randint(0, 99),
            behind=dice.choice([None, 0, 8]),
            alarm=dice.choice([None, "they differ"]),
        )
        parts.reports.show(report)
        leads = report.role == "leading"
        behind = status.shown.pop("behind_records")
        assert behind is not None
        if report.behind is None and not leads:
            assert math.isnan(behind)
        else:
            assert behind == (0 if leads else report.behind)
        assert status.shown == {
            "leads": leads,
            "epoch": report.epoch,
            "ready": report.ready or leads,
            "diverged": report.alarm is not None,
        }
        assert (status.status.role, status.status.epoch) == (report.role, report.epoch)

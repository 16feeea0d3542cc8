"""Several shards: few records are read by few tasks, many by several, as Spark's event log says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamydb.testing.database import Database
from tests.support.bank import transfers
from tests.support.faulty import resolved
from tests.support.heap import keeps_no_records

pytestmark = pytest.mark.timeout(400)


def tasks_that_read(folder: Path) -> Iterator[int]:
    """How many tasks the first stage of each micro-batch had that has ended."""
    for file in sorted(folder.rglob("events*")):
        stages: dict[int, int] = {}
        for line in file.read_text("utf-8").splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerStageCompleted":
                found = event["Stage Info"]
                stages[found["Stage ID"]] = found["Number of Tasks"]
            elif event["Event"] == "SparkListenerJobStart":
                first = min(event["Stage IDs"])
                stages[first] = 0
            elif event["Event"] == "SparkListenerJobEnd" and stages:
                yield stages[first]


def test_few_records_are_read_by_few_tasks_and_many_by_several(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    logged = [
        "spark.eventLog.enabled=true", "spark.eventLog.compress=false",
        f"spark.eventLog.dir=file://{events}",
    ]  # fmt: skip
    options = [word for setting in logged for word in ("--conf", setting)]
    with Database(tmp_path, shards=4, options=options) as db:
        count = db.load(transfers(20))
        resolved(db, count)
        assert db.stop_pipeline() == 0
        few = [*tasks_that_read(events)]
        assert max(few) in {1, 2}, few  # one reads the log, one the feedback of all four
        count += db.load([None] * 130_000)
        db.start_pipeline()
        resolved(db, count)
        # What the tasks had fetched beyond their ends is given up soon, as nobody will ask for it.
        keeps_no_records(db)
        assert db.stop_pipeline() == 0
    many = [*tasks_that_read(events)][len(few) :]
    assert max(many) == 4, many  # three pieces of the log, and the feedback

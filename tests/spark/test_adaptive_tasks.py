"""With several shards one task executes small micro-batches, and one for each shard large ones."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from streamydb.testing.database import Database
from tests.support.bank import transfers
from tests.support.faulty import load, progressed, resolved

pytestmark = pytest.mark.timeout(300)
SHARDS = 4


def tasks(events: Path) -> list[list[int]]:
    """How many tasks each stage of each micro-batch had, from Spark's event log."""
    jobs: list[list[int]] = []
    count: dict[int, int] = defaultdict(int)
    for file in sorted(events.glob("*/events_*")):
        for line in file.read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                jobs.append(sorted(event["Stage IDs"]))
            elif event["Event"] == "SparkListenerTaskEnd":
                count[event["Stage ID"]] += 1
    return [[count[stage] for stage in stages] for stages in jobs]


def test_tasks_follow_the_size_and_state_does_not(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    log = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    options = ["--max-offsets", "5000", *(f"--conf=spark.eventLog.{k}={v}" for k, v in log.items())]
    with Database(tmp_path, shards=SHARDS, options=options) as db:
        with load(db, seed=1):
            progressed(db, 1_500)
        done = db.status().seq or 0
        resolved(db, done + db.load(transfers(25_000, seed=2)))
        assert db.stop_pipeline() == 0
        found = [stages[1:] for stages in tasks(events) if len(stages) == 4]
        assert found[0] == [SHARDS] * 3, "a query begins with a task for each shard"
        assert {stages[0] for stages in found} == {SHARDS}, "state is divided by shards"
        kinds = [tuple(stages[1:]) for stages in found]
        number = {1, SHARDS}  # of each stage: the choice may come while Spark plans the two
        assert {count for kind in kinds for count in kind} == number
        first = kinds.index((1, 1))
        assert (SHARDS, SHARDS) in kinds[first:], "for the large ones"
        offsets = db.place.checkpoint / "query" / "offsets"
        last = max((path for path in offsets.iterdir() if path.name.isdigit()),
                   key=lambda path: int(path.name))
        remembered = json.loads(last.read_text().splitlines()[1])["conf"]
        assert remembered["spark.sql.shuffle.partitions"] == str(SHARDS)
        db.start_pipeline()
        db.load(transfers(30, seed=3))
        assert db.assert_serial().transactions > 25_000

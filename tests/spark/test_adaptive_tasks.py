"""With several shards one task executes small micro-batches, and one for each shard large ones; few
records are read by few tasks, many by several. Spark's event log says so.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.bank import transfers
from tests.support.faulty import load, progressed, resolved
from tests.support.heap import keeps_no_records
from tests.support.shared import OnShared

pytestmark = pytest.mark.timeout(400)
SHARDS = 4


def tasks(events: Path) -> list[list[int]]:
    """How many tasks each stage of each micro-batch had, from Spark's event log."""
    found: list[list[int]] = []
    for file in sorted(events.glob("*/events_*")):  # stages are counted anew in each session
        jobs: list[list[int]] = []
        count: dict[int, int] = defaultdict(int)
        for line in file.read_text().splitlines():
            event: dict[str, Any] = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                jobs.append(sorted(event["Stage IDs"]))
            elif event["Event"] == "SparkListenerTaskEnd":
                count[event["Stage ID"]] += 1
        found += [[count[stage] for stage in stages] for stages in jobs]
    return found


def reading(events: Path) -> list[int]:
    """How many tasks the first stage of each micro-batch had."""
    return [stages[0] for stages in tasks(events) if stages[0]]


def test_tasks_follow_the_size_and_state_does_not(
    tmp_path: Path, database_on_shared: Callable[..., OnShared]
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    log = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    options = ["--max-offsets", "5000", *(f"--conf=spark.eventLog.{k}={v}" for k, v in log.items())]
    with database_on_shared(shards=SHARDS, options=options) as db:
        with load(db, seed=1):
            progressed(db, 1_500)
        done = db.status().seq or 0
        done += db.load(transfers(25_000, seed=2))
        resolved(db, done)
        assert db.stop_pipeline() == 0
        begins_with_all_and_goes_on_as_large_as_it_must(events)
        offsets = db.place.checkpoint / "query" / "offsets"
        last = max((path for path in offsets.iterdir() if path.name.isdigit()),
                   key=lambda path: int(path.name))
        remembered = json.loads(last.read_text().splitlines()[1])["conf"]
        assert remembered["spark.sql.shuffle.partitions"] == str(SHARDS)
        few = reading(events)
        assert max(few) in {1, 2}, few  # one reads the log, one the feedback of all four
        done += db.load([None] * 110_000)
        db.start_pipeline(["--max-offsets", "1000000"])
        resolved(db, done)
        # What the tasks had fetched beyond their ends is given up soon, as nobody will ask for it.
        keeps_no_records(db)
        db.load(transfers(30, seed=3))
        assert db.assert_serial().transactions > 135_000
        assert db.stop_pipeline() == 0
    many = reading(events)[len(few) :]
    assert max(many) == 4, many  # three pieces of the log, and the feedback


def begins_with_all_and_goes_on_as_large_as_it_must(events: Path) -> None:
    """How many tasks executed each micro-batch."""
    found = [stages[1:] for stages in tasks(events) if len(stages) == 4]
    assert found[0] == [SHARDS] * 3, "a query begins with a task for each shard"
    assert {stages[0] for stages in found} == {SHARDS}, "state is divided by shards"
    kinds = [tuple(stages[1:]) for stages in found]
    number = {1, SHARDS}  # of each stage: the choice may come while Spark plans the two
    assert {count for kind in kinds for count in kind} == number
    first = kinds.index((1, 1))
    assert (SHARDS, SHARDS) in kinds[first:], "for the large ones"

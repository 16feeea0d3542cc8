"""On one machine Spark moves references to large blocks, and its folder has the blocks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.bank import transfers
from tests.support.faulty import resolved
from tests.support.shared import OnShared

pytestmark = pytest.mark.timeout(300)
SHARDS = 2
RECORDS = 20_000
_ALL_BYTES = 150
"""At least so many bytes of blocks has each transfer on its way with two shards."""


def moved(events: Path) -> list[int]:
    """How many bytes Spark has moved between the stages of each micro-batch, by its event log."""
    jobs: list[list[int]] = []
    found: dict[int, int] = defaultdict(int)
    for file in sorted(events.glob("*/events_*")):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerJobStart":
                jobs.append(event["Stage IDs"])
            elif event["Event"] == "SparkListenerTaskEnd":
                written = event["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
                found[event["Stage ID"]] += written
    return [sum(found[stage] for stage in stages) for stages in jobs]


def test_spark_moves_references(
    tmp_path: Path, database_on_shared: Callable[..., OnShared]
) -> None:
    events, temporary = tmp_path / "events", tmp_path / "spark"
    events.mkdir()
    temporary.mkdir()
    log = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    settings = [*(f"spark.eventLog.{k}={v}" for k, v in log.items()),
                f"spark.local.dir={temporary}"]  # fmt: skip
    options = ["--max-offsets", "10000", *(f"--conf={setting}" for setting in settings)]
    with database_on_shared(shards=SHARDS, options=options) as db:
        count = db.load(transfers(RECORDS))
        resolved(db, count)
        count += db.load(transfers(20, seed=2))
        resolved(db, count)
        files = [path for path in temporary.rglob("spool/*/*/*") if path.is_file()]
        assert not files, "a small micro-batch has no files, and removes those of earlier ones"
        assert db.assert_serial().transactions == count
        assert db.stop_pipeline() == 0
        assert not [*temporary.rglob("spool")]
    found = moved(events)
    assert sum(found) < RECORDS * _ALL_BYTES / 3, found

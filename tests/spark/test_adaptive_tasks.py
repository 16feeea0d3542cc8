"""With more shards than run at the same time one task executes small micro-batches, and one for
each shard large ones; few records are read by few tasks, many by several. Of large blocks Spark
moves references, and its folder has the blocks. Where the tasks of all shards run at the same time,
each micro-batch has two stages, whatever its size, on the same state. Spark's event log says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from streamydb.testing.database import wait_for
from tests.support.bank import transfers
from tests.support.events import Events, log_events
from tests.support.faulty import load, progressed, resolved
from tests.support.heap import keeps_no_records
from tests.support.shared import OnShared

pytestmark = pytest.mark.timeout(400)
SHARDS = 4
RECORDS, AT_ONCE = 25_000, 10_000
_BLOCK_BYTES = 70_000
"""More than what Spark moves of a block has, at most: larger ones lie in files (`spool`)."""


@pytest.mark.long
def test_tasks_follow_the_size_and_state_does_not(
    tmp_path: Path, database_on_shared: Callable[..., OnShared]
) -> None:
    events, temporary = tmp_path / "events", tmp_path / "spark"
    temporary.mkdir()
    options = ["--max-offsets", f"{AT_ONCE}", f"--conf=spark.local.dir={temporary}"]
    options += log_events(events)
    with database_on_shared(shards=SHARDS, options=options) as db:
        with load(db, seed=1):
            progressed(db, 1_500)
        done = db.status().seq or 0
        done += db.load(transfers(RECORDS, seed=2))
        resolved(db, done)
        done += db.load(transfers(20, seed=4))
        resolved(db, done)
        # A small micro-batch has no files, and removes those of earlier ones.
        wait_for(lambda: not [*temporary.rglob("spool/*/*/*")], "no files of blocks", 30)
        assert db.stop_pipeline() == 0
        assert not [*temporary.rglob("spool")]
        first = Events(events)
        assert max(first.blocks) < _BLOCK_BYTES
        begins_with_all_and_goes_on_as_large_as_it_must(first)
        offsets = db.place.checkpoint / "query" / "offsets"
        last = max(
            (path for path in offsets.iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        remembered = json.loads(last.read_text().splitlines()[1])["conf"]
        assert remembered["spark.sql.shuffle.partitions"] == str(SHARDS)
        few = first.reading()
        assert max(few) in {1, 2}, few  # one reads the log, one the feedback of all four
        done += db.load([None] * 110_000)
        db.master = f"local[{SHARDS}]"
        db.start_pipeline(["--max-offsets", "1000000"])
        done += db.load(transfers(RECORDS, seed=5))
        resolved(db, done)
        # What the tasks had fetched beyond their ends is given up soon, as nobody will ask for it.
        keeps_no_records(db)
        db.load(transfers(30, seed=3))
        assert db.assert_serial().transactions > 160_000
        assert db.stop_pipeline() == 0
    both = Events(events)
    at_once = both.tasks[len(first.tasks) :]
    assert {len(stages) for stages in at_once} == {2}
    assert {stages[1] for stages in at_once} == {SHARDS}
    many = both.reading()[len(few) :]
    assert max(many) == 4, many  # three pieces of the log, and the feedback


def begins_with_all_and_goes_on_as_large_as_it_must(events: Events) -> None:
    """How many tasks executed each micro-batch."""
    found = [stages[1:] for stages in events.tasks if len(stages) == 4]
    assert found[0] == [SHARDS] * 3, "a query begins with a task for each shard"
    assert {stages[0] for stages in found} == {SHARDS}, "state is divided by shards"
    kinds = [tuple(stages[1:]) for stages in found]
    number = {1, SHARDS}  # of each stage: the choice may come while Spark plans the two
    assert {count for kind in kinds for count in kind} == number
    first = kinds.index((1, 1))
    assert (SHARDS, SHARDS) in kinds[first:], "for the large ones"

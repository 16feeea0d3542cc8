"""Shards whose tasks run at the same time: a micro-batch has two stages, whatever its size.

Tasks that wait for one that fails go on when it is tried again, and end when the query does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.events import Events, log_events
from tests.support.faulty import POISONED, TRIED_TWICE, load, poisoned, progressed
from tests.support.shared import OnShared

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
SHARDS = 2
LARGE = 8_000
"""Transfers of one micro-batch; the tasks divide among them what they write."""


def test_a_micro_batch_has_two_stages_if_all_shards_run_at_once(
    tmp_path: Path, database_on_shared: Callable[..., OnShared]
) -> None:
    """A start with fewer tasks has four again, on the same state."""
    events = tmp_path / "events"
    with database_on_shared(shards=SHARDS, options=log_events(events)) as db:
        with load(db, seed=1):
            progressed(db, 200)
        assert db.stop_pipeline() == 0
        few = Events(events)
        db.master = "local[1]"
        db.start_pipeline()
        with load(db, seed=3):
            progressed(db, 200)
        assert db.stop_pipeline() == 0
        apart = Events(events).tasks[len(few.tasks) :]
        assert {len(stages) for stages in apart} == {4}
        db.load(transfers(LARGE, seed=2))
        db.master = "local[2]"
        db.start_pipeline()
        assert db.assert_serial().transactions > LARGE + 400
        assert db.stop_pipeline() == 0
        many = Events(events).tasks[len(few.tasks) + len(apart) :]
        assert {len(stages) for stages in (*few.tasks, *many)} == {2}
        assert {stages[1] for stages in (*few.tasks, *many)} == {SHARDS}


def test_tasks_that_wait_for_one_that_fails_end_with_the_query(tmp_path: Path) -> None:
    """Our own code fails on some transactions of a large plan, while the other task waits."""
    with poisoned(tmp_path), Database(tmp_path, shards=SHARDS, master=TRIED_TWICE) as db:
        db.load(transfers(50))
        assert db.stop_pipeline() == 0
        db.load(transfers(LARGE, seed=2))
        db.load(POISONED[:3])
        db.start_pipeline()
        db.load(transfers(50, seed=3))
        report = db.assert_serial()
        assert report.faults == 3
        assert report.transactions > LARGE + 100
        assert db.log_file.read_text().count("LookupError") >= 3
        # Two for each shard, and some of them also read.
        wait_for(lambda: len(workers(db)) == 2 * SHARDS, "no worker of an earlier query", 60)


def workers(db: Database) -> set[int]:
    """The Python workers that the daemon has forked, which look like it; none that has ended."""
    parents = {}
    for process in db.processes():
        with suppress(psutil.NoSuchProcess):
            if "--early" in process.cmdline():
                parents[process.pid] = process.ppid()
    return {pid for pid, parent in parents.items() if parent in parents}

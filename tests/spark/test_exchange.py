"""Tasks that wait for one that fails go on when it is tried again, and end when the query does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import POISONED, TRIED_TWICE, poisoned
from tests.support.shared import OnShared

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]
SHARDS = 2
LARGE = 8_000
"""Transfers of one micro-batch; the tasks divide among them what they write."""


class Loaded(OnShared):
    """A database whose log has transactions before the pipeline starts."""

    def start_pipeline(self, extra: Iterable[str] = ()) -> None:
        self.load(transfers(LARGE, seed=2))
        self.load(POISONED[:3])
        super().start_pipeline(extra)


def test_tasks_that_wait_for_one_that_fails_end_with_the_query(
    tmp_path: Path, bootstrap: str, run_folder: Path
) -> None:
    """Our own code fails on some transactions of a large plan, while the other task waits."""
    assert bootstrap
    db = Loaded(tmp_path, run_folder / "home", shards=SHARDS)
    db.master = TRIED_TWICE
    with poisoned(tmp_path), db:
        db.load(transfers(50, seed=3))
        report = db.assert_serial()
        assert report.faults == 3
        assert report.transactions > LARGE
        assert db.log_file.read_text().count("LookupError") >= 3
        # Two for each shard, and some of them also read; those without a task end after a while.
        wait_for(lambda: len(workers(db)) <= 2 * SHARDS, "no worker of an earlier query", 60)


def workers(db: Database) -> set[int]:
    """The Python workers that the daemon has forked, which look like it; none that has ended."""
    parents = {}
    for process in db.processes():
        with suppress(psutil.NoSuchProcess):
            if "--early" in process.cmdline():
                parents[process.pid] = process.ppid()
    return {pid for pid, parent in parents.items() if parent in parents}

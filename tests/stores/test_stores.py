"""A checkpoint in an object store: killed, halted and started twice, the database stays serial."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from streamydb.testing.database import wait_for
from tests.stores.store import PATIENCE_S, StoreDatabase, object_store
from tests.support.bank import transfers
from tests.support.faulty import load

pytestmark = pytest.mark.timeout(1_800)


def halted(db: StoreDatabase) -> list[psutil.Process]:
    """SIGSTOP to the driver, its JVM and the workers."""
    processes = db.processes()
    for each in processes:
        each.suspend()
    return processes


def progressed(db: StoreDatabase, by: int) -> None:
    """Wait until so many more transactions have been released."""
    begun = db.status().seq or 0
    wait_for(lambda: (db.status().seq or 0) >= begun + by, f"{by} more transactions", PATIENCE_S)


def test_killed_halted_and_started_twice_it_stays_serial(tmp_path: Path) -> None:
    db = StoreDatabase(tmp_path, shards=2)
    with object_store(tmp_path) as db.store, db:
        twin = db.twin()
        with load(db, 0):
            progressed(db, 200)
            twin.launch_pipeline()
            assert twin.wait_pipeline(PATIENCE_S) == 2
            assert "another pipeline runs on the checkpoint s3a://" in (twin.status().error or "")
            progressed(db, 100)
            db.kill_pipeline()
        shutil.rmtree(db.place.folder / "local")
        db.start_pipeline()
        with load(db, 1):
            progressed(db, 200)
            processes = halted(db)
            twin.start_pipeline()
            progressed(twin, 100)
            for each in processes:
                each.resume()
            assert db.wait_pipeline(PATIENCE_S) == 1
            assert "is lost: " in (db.status().error or "")
            progressed(twin, 100)
        assert db.assert_serial(PATIENCE_S).ok
        assert twin.stop_pipeline() == 0
        db.start_pipeline()
        waits = db.log_file.read_text().count("waiting 30 s whether it is renewed")
        assert waits == 1, "after the kill, and not after a stop"
        db.load(transfers(100, seed=7, prefix="after"))
        assert db.assert_serial(PATIENCE_S).ok

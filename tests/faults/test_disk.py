"""Full disks: of the checkpoint, of the broker, of a read model."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from psutil import STATUS_ZOMBIE

from streamydb.read_model.verify import verify
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import load, progressed
from tests.support.machine import Disk, can_mount, small_disk
from tests.support.serving import Served

pytestmark = [
    pytest.mark.spark, pytest.mark.timeout(900),
    pytest.mark.skipif(not can_mount(), reason="file systems can be mounted by root only"),
]  # fmt: skip

SIZE_MB = 192


@pytest.fixture
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """A small disk where the test's parameter says."""
    with small_disk(tmp_path / str(request.param), SIZE_MB) as disk:
        yield disk


def pipeline_ends(db: Database, small: Disk, seed: int) -> str:
    """Fill a disk under load, and wait for the end of the pipeline; what the status says of it."""
    with load(db, seed):
        progressed(db, 200)
        ended = small.stay_full_until(lambda: db.status().state == "failed")
        wait_for(ended, "the end of the pipeline", 240)
    return db.status().error or ""


def pipeline_goes_on(db: Database, small: Disk) -> None:
    """Make room, and start the pipeline; it executes what has come meanwhile."""
    db.kill_pipeline()
    small.free()
    db.load(transfers(100, seed=77))
    db.start_pipeline()
    assert db.assert_serial().ok


@pytest.mark.long
@pytest.mark.parametrize("small", ["home/databases/bank/checkpoint"], indirect=True)
@pytest.mark.fault(
    20, "the checkpoint's file system is filled under load",
    "stops before the next output; goes on when there is space; equal to the serial replay",
)  # fmt: skip
def test_the_disk_of_the_checkpoint_is_full(tmp_path: Path, small: Disk) -> None:
    with Database(tmp_path) as db:
        error = pipeline_ends(db, small, 1)
        assert str(small.folder) in error or os.strerror(errno.ENOSPC) in error
        assert "'A full disk'" in error
        pipeline_goes_on(db, small)


@pytest.mark.long
@pytest.mark.parametrize("small", ["home/databases/bank"], indirect=True)
@pytest.mark.fault(
    20, "the file system of all that a pipeline writes is filled under load",
    "the pipeline ends, and the status says why although it cannot be written; as above",
)  # fmt: skip
def test_the_disk_of_the_status_is_full_too(tmp_path: Path, small: Disk) -> None:
    with Database(tmp_path) as db:
        driver = db.processes()[0]
        error = pipeline_ends(db, small, 4)
        wait_for(lambda: not driver.is_running() or driver.status() == STATUS_ZOMBIE, "its end")
        assert f"the disk of {small.folder} is full" in error
        said = db.log_file.read_text()
        assert "'A full disk'" in said
        assert "the status cannot be written" in said
        pipeline_goes_on(db, small)


@pytest.mark.long
@pytest.mark.parametrize("small", ["home/broker/data"], indirect=True)
@pytest.mark.fault(
    20, "the broker's file system is filled under load: Kafka ends; it is started again with space",
    "the pipeline waits and goes on without a restart; equal to the serial replay",
)  # fmt: skip
def test_the_disk_of_the_broker_is_full(tmp_path: Path, small: Disk) -> None:
    with Database(tmp_path) as db:
        db.load(transfers(300))
        assert db.assert_serial().ok
        driver = db.processes()[0].pid
        small.fill()
        with load(db, 2, refusals=True):
            wait_for(small.stay_full_until(lambda: not db.broker.alive), "the end of the broker")
            small.free()
            db.broker.start()
            progressed(db, 200)
        assert db.assert_serial().ok
        assert db.processes()[0].pid == driver


@pytest.mark.long
@pytest.mark.parametrize("small", ["read-model-0"], indirect=True)
@pytest.mark.fault(
    20, "the read model's file system is filled under load",
    "the follower stops or waits, reads stay whole; it goes on when there is space",
)  # fmt: skip
def test_the_disk_of_a_read_model_is_full(tmp_path: Path, small: Disk) -> None:
    with Served(tmp_path, facades=1) as db:
        follower = db.read_models[0]
        small.fill()
        with load(db, 3):
            ended = small.stay_full_until(lambda: follower.exit_code is not None)
            wait_for(ended, "the end of the follower", 240)
        said = follower.log_file.read_text()
        assert os.strerror(errno.ENOSPC) in said, said[-2000:]
        assert str(small.folder) in said
        small.free()
        db.load(transfers(100, seed=77))
        report = db.assert_serial()
        follower.start()
        folder = tmp_path / "read-model-0"

        def caught_up() -> bool:
            found = verify(folder, db.settings, tmp_path / f"verified-{len(tried)}")
            tried.append(found.seq)
            assert found.differing == []
            return found.seq >= report.transactions

        tried: list[int] = []
        wait_for(caught_up, "all changes in the read model")

"""Real faults under load: what runs is killed, what is stored is taken away, what is sent is
hostile.

Each test ends with a serial replay of the log: nothing lost, nothing twice, nothing different. The
short forms
are part of `make test`; the long ones run with `make test-faults`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from streamydb.testing.database import Database
from tests.support.bank import transfers
from tests.support.faulty import load, progressed
from tests.support.hostile import HOSTILE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]


def kill_the_driver(folder: Path, rounds: int, shards: int) -> None:
    rng = random.Random(rounds)
    with Database(folder, shards=shards) as db:
        for number in range(rounds):
            with load(db, number):
                progressed(db, rng.randint(1, 400))
                db.kill_pipeline()
            db.start_pipeline()
        db.load(transfers(20, seed=77, prefix="after"))
        assert db.assert_serial().ok


@pytest.mark.fault(
    1, "SIGKILL of driver, JVM and workers at random moments, ten times, one and two shards"
)
@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 2])
def test_sigkill_of_the_driver_ten_times(
    tmp_path: Path, shards: int, injected: Callable[..., None]
) -> None:
    kill_the_driver(tmp_path, rounds=10, shards=shards)
    injected(10)


@pytest.mark.fault(1, "SIGKILL of driver, JVM and workers at a random moment under load")
@pytest.mark.fault(2, "SIGKILL of all Python workers under load, and of the daemons that fork them")
@pytest.mark.fault(4, "SIGKILL of the broker")
@pytest.mark.fault(12, "records that are no transactions between the others under load")
@pytest.mark.fault(31, "SIGKILL at a random moment under load, started again with --plan-limit=100")
def test_everything_killed_files_deleted_and_hostile_records(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    with Database(tmp_path, shards=2, partitions=3) as db:
        with load(db, 0):
            progressed(db, random.Random(1).randint(1, 200))
            db.kill_pipeline()
            injected(1, 1)
            injected(1, 31)
        db.start_pipeline(["--plan-limit=100"])
        with load(db, 1):
            progressed(db, 100)
            killed = db.kill_workers()
            assert killed > 0
            progressed(db, 100)
            everything = db.kill_workers(daemons=True)
            assert everything >= 2  # a daemon and its worker
            injected(killed + everything, 2)
            progressed(db, 100)
            db.delete_local_files()
            progressed(db, 100)
            injected(db.load(HOSTILE), 12)
            progressed(db, 100)
        assert db.assert_serial().ok
        db.broker.kill()
        injected(1, 4)
        db.broker.start()
        db.load(transfers(200, seed=5))
        report = db.assert_serial()
        assert report.transactions > 500

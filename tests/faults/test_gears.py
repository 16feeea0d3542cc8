"""Two gears of one pipeline on real Kafka and Spark: shifts, and the loss of the real-time gear.

Every test ends with a serial replay of the log.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from streamydb.testing.database import wait_for
from tests.support.bank import transfers
from tests.support.shared import OnShared

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

BOTH = ["--gear", "both"]


def leading(db: OnShared) -> str:
    """Return the gear that leads."""
    gear = db.status().gear
    return "" if gear is None else gear.gear


def wait_until_real_time(db: OnShared) -> None:
    """Wait until the real-time gear leads."""
    wait_for(lambda: leading(db) == "real-time", "the lead of the real-time gear", 180)


def kill_worker(db: OnShared) -> None:
    """SIGKILL the worker of the real-time gear, which leads."""
    gear = db.status().gear
    assert gear is not None
    assert gear.worker is not None
    os.kill(gear.worker, signal.SIGKILL)


@pytest.mark.fault(
    47, "SIGKILL of the worker of the real-time gear while it leads",
    "the micro-batch gear goes on; nothing lost, nothing twice; the real-time gear leads again",
)  # fmt: skip
def test_the_other_gear_goes_on_when_the_real_time_gear_is_killed(
    database_on_shared: Callable[..., OnShared], injected: Callable[..., None]
) -> None:
    with database_on_shared(options=BOTH) as db:
        db.load(transfers(20, seed=1))  # a base begins with what was executed
        wait_until_real_time(db)
        db.load(transfers(300, seed=2))
        kill_worker(db)
        injected(1)
        db.load(transfers(300, seed=3))
        wait_for(lambda: leading(db) == "micro-batch", "the lead of the micro-batch gear")
        wait_until_real_time(db)
        db.load(transfers(200, seed=4))
        report = db.assert_serial()
        assert report.transactions >= 820
        assert db.status().state == "running"

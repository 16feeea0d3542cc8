"""Two gears of one pipeline on real Kafka and Spark: shifts, and the loss of the real-time gear.

Every test ends with a serial replay of the log.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest

from streamydb.kafka.positions import written_until
from streamydb.pipeline.realtime.files import base_behind
from streamydb.pipeline.realtime.gear import ELSEWHERE
from streamydb.pipeline.realtime.shifting import LATE_RECORDS_MIN
from streamydb.pipeline.record import read_record
from streamydb.testing.database import wait_for
from tests.support.bank import transfers
from tests.support.faulty import load, progressed, results_of
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


def worker_of(db: OnShared) -> int:
    """Wait until the real-time gear leads; return the process of its worker.

    What a test has just loaded may have been too much for it on a busy machine.
    """
    workers: list[int] = []

    def leads() -> bool:
        gear = db.status().gear
        if gear is not None and gear.worker is not None:
            workers.append(gear.worker)
        return bool(workers)

    wait_for(leads, "the lead of the real-time gear", 180)
    return workers[0]


def kill_worker(db: OnShared) -> None:
    """SIGKILL that process."""
    os.kill(worker_of(db), signal.SIGKILL)


def has_base(db: OnShared) -> bool:
    """Return True if the local files are a base, with which the real-time gear can begin."""
    config = read_record(db.place.checkpoint)
    return config is not None and base_behind(-1, db.folder / "local", config) is not None


def goes_on(db: OnShared, seed: int) -> None:
    """Wait until the micro-batch gear leads, and then the real-time gear; each executes 200."""
    wait_for(lambda: leading(db) == "micro-batch", "the lead of the micro-batch gear")
    db.load(transfers(200, seed=seed))
    wait_until_real_time(db)
    db.load(transfers(200, seed=seed + 1))


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


@pytest.mark.fault(
    48, "two pipelines with two gears each",
    "the real-time gear of the pipeline that leads stays in the lead: no flapping",
)  # fmt: skip
@pytest.mark.long
def test_a_standby_leaves_the_lead_to_the_real_time_gear_of_the_leader(
    database_on_shared: Callable[..., OnShared], injected: Callable[..., None]
) -> None:
    with database_on_shared(options=BOTH) as db, db.beside("standby") as standby:
        db.load(transfers(20, seed=1))
        wait_until_real_time(db)

        def waits() -> bool:
            gear = standby.status().gear
            return gear is not None and gear.why == ELSEWHERE

        wait_for(waits, "a standby that leaves the lead to the other pipeline", 180)
        injected(1)
        db.load(transfers(LATE_RECORDS_MIN - 1, seed=2))  # which are no load, however slow it is
        db.assert_serial()
        assert leading(db) == "real-time"


@pytest.mark.fault(
    47, "the base of the real-time gear is deleted while it leads, then its worker is killed",
    "the micro-batch gear goes on; the real-time gear leads again with a new base",
)  # fmt: skip
@pytest.mark.long
def test_the_real_time_gear_comes_back_after_its_base_was_deleted(
    database_on_shared: Callable[..., OnShared], injected: Callable[..., None]
) -> None:
    with database_on_shared(options=BOTH) as db:
        db.load(transfers(20, seed=1))
        wait_until_real_time(db)
        db.delete_local_files()
        injected(1)
        db.load(transfers(200, seed=2))
        kill_worker(db)
        goes_on(db, seed=3)
        assert db.assert_serial().transactions >= 620


@pytest.mark.fault(
    48, "more load than the real-time gear takes, again and again",
    "both gears lead by turns; equal to the serial replay",
)  # fmt: skip
@pytest.mark.long
def test_gears_shift_under_load(
    database_on_shared: Callable[..., OnShared], injected: Callable[..., None]
) -> None:
    with database_on_shared(options=BOTH) as db:
        db.load(transfers(20, seed=1))
        for number in range(3):
            wait_until_real_time(db)
            db.load(transfers(20_000, seed=2 + number, accounts=10_000))
            wait_for(lambda: leading(db) == "micro-batch", "the lead of the micro-batch gear")
            injected(1)
        assert db.assert_serial().transactions >= 60_000


@pytest.mark.long
def test_a_restart_begins_with_the_base_of_the_run_before(
    database_on_shared: Callable[..., OnShared],
) -> None:
    with database_on_shared(options=BOTH) as db:
        db.load(transfers(20, seed=1))
        wait_until_real_time(db)
        at_once = 0
        for turn in range(3):
            db.load(transfers(200, seed=2 + turn))
            wait_for(lambda: has_base(db), "a base")
            db.kill_pipeline()  # if that is between the values and what they are, there is no base
            left = has_base(db)
            db.load(transfers(200, seed=10 + turn))
            begun = db.log_file.stat().st_size
            db.start_pipeline()
            wait_until_real_time(db)
            said = db.log_file.read_bytes()[begun:].decode()
            assert "not of this log" not in said
            begins = "begins with the base of an earlier run" in said
            assert left or not begins
            at_once += begins
        assert at_once
        report = db.assert_serial()
        assert report.transactions >= 1_220


@pytest.mark.fault(
    47, "SIGSTOP of the worker of the real-time gear while it leads, and few transactions come",
    "the micro-batch gear goes on; another worker leads again; nothing twice when it is let go",
)  # fmt: skip
@pytest.mark.long
def test_the_other_gear_goes_on_when_the_worker_is_halted(
    database_on_shared: Callable[..., OnShared], injected: Callable[..., None]
) -> None:
    with database_on_shared(options=BOTH) as db:
        db.load(transfers(20, seed=1))
        wait_until_real_time(db)
        db.load(transfers(300, seed=2))
        halted = psutil.Process(worker_of(db))
        halted.suspend()
        injected(1)
        db.load(transfers(20, seed=3))  # the log is not too fast for it
        wait_for(lambda: leading(db) == "micro-batch", "the lead of the micro-batch gear")
        db.load(transfers(200, seed=4))
        wait_until_real_time(db)
        assert worker_of(db) != halted.pid
        with suppress(psutil.NoSuchProcess):
            halted.resume()
        db.load(transfers(200, seed=5))
        assert db.assert_serial().transactions >= 740
        assert db.status().state == "running"


@pytest.mark.fault(
    47, "local files of an earlier time are put back while the real-time gear leads, then its "
    "worker is killed", "both gears go on from where the log and the checkpoint are",
)  # fmt: skip
@pytest.mark.long
def test_a_base_of_an_earlier_time_is_put_back_while_it_runs(
    database_on_shared: Callable[..., OnShared], injected: Callable[..., None]
) -> None:
    with database_on_shared(options=BOTH) as db:
        db.load(transfers(50, seed=1))
        wait_until_real_time(db)
        assert db.stop_pipeline() == 0
        local, earlier = db.folder / "local", db.folder / "earlier"
        shutil.copytree(local, earlier)
        db.start_pipeline()
        db.load(transfers(300, seed=2))
        wait_until_real_time(db)
        local.rename(db.folder / "later")
        earlier.rename(local)
        injected(1)
        db.load(transfers(300, seed=3))
        kill_worker(db)
        goes_on(db, seed=4)
        assert db.assert_serial().transactions >= 1_050


@pytest.mark.fault(
    47, "SIGKILL of the daemon that forks the workers of both gears, and of all its workers",
    "the pipeline goes on; the real-time gear leads again",
)  # fmt: skip
@pytest.mark.long
def test_both_gears_come_back_when_the_daemon_of_their_workers_is_killed(
    database_on_shared: Callable[..., OnShared], injected: Callable[..., None]
) -> None:
    with database_on_shared(options=BOTH) as db:
        db.load(transfers(20, seed=1))
        wait_until_real_time(db)
        db.load(transfers(300, seed=2))
        assert db.kill_workers(daemons=True) >= 2
        injected(1)
        db.load(transfers(200, seed=3))
        wait_for(lambda: leading(db) == "micro-batch", "the lead of the micro-batch gear")
        wait_until_real_time(db)
        db.load(transfers(200, seed=4))
        assert db.assert_serial().transactions >= 720
        assert db.status().state == "running"


def assert_one_verdict_each(db: OnShared) -> None:
    """Each record of the log has a verdict, and no two that differ; so does one whose id is used.

    A real-time gear that begins at once may write again what the last plan wrote: the same bytes.
    """
    report = db.assert_serial()  # when all of the log has been executed
    verdicts: dict[int, set[str]] = {}
    for result in results_of(db):
        place = result.get("duplicate", result["source"])["offset"]
        verdicts.setdefault(place, set()).add(json.dumps(result, sort_keys=True))
    assert {place: found for place, found in verdicts.items() if len(found) > 1} == {}
    assert len(verdicts) == report.transactions


@pytest.mark.fault(
    54, "SIGTERM at a random moment under load, with either gear in the lead, six times",
    "it ends in order; what the real-time gear wrote is resolved; each transaction has one "
    "verdict; equal to the serial replay",
)  # fmt: skip
@pytest.mark.long
def test_a_stop_under_load_executes_nothing_twice_and_loses_nothing(
    database_on_shared: Callable[..., OnShared], injected: Callable[..., None]
) -> None:
    rng, stopped_by = random.Random(54), set[str]()
    with database_on_shared(options=BOTH) as db:
        db.load(transfers(20, seed=1))
        for turn in range(6):
            if turn % 2:
                wait_until_real_time(db)
            begun = db.log_file.stat().st_size
            with load(db, 2 + turn):
                progressed(db, rng.randint(1, 400))
                stopped_by.add(gear := leading(db))
                assert db.stop_pipeline() == 0
                assert (db.status().state, db.status().error) == ("stopped", None)
                assert not db.processes()
            assert b"stopped after a finished batch" in db.log_file.read_bytes()[begun:]
            if gear == "real-time":
                assert_all_is_resolved(db)
            injected(1)
            db.start_pipeline()
            assert_one_verdict_each(db)
    assert stopped_by == {"micro-batch", "real-time"}


def assert_all_is_resolved(db: OnShared) -> None:
    """What the real-time gear wrote before a stop is resolved, so nobody writes it again."""
    written = written_until(db.settings.client_config(), db.name)
    assert written == max(result["seq"] for result in results_of(db))

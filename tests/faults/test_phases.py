"""Kills that fall into a chosen phase of a micro-batch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import load, progressed
from tests.support.machine import halted
from tests.support.phases import ATTEMPTS_MAX, LEFT, Batches, executing, kill_in, outputs_written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.long
@pytest.mark.fault(
    1, "SIGKILL in each phase: before the offsets, in execution, after outputs, after the state"
)
def test_sigkill_in_every_phase_of_a_batch(tmp_path: Path, injected: Callable[..., None]) -> None:
    with Database(tmp_path) as db:
        seed = 0
        for phase in LEFT:
            for _attempt in range(ATTEMPTS_MAX):
                seed += 1
                with load(db, seed):
                    progressed(db, 50)
                    hit = kill_in(db, phase)
                db.start_pipeline()
                injected(1)
                if hit:
                    break
            else:
                pytest.fail(f"no kill fell into {phase.__name__}")
        report = db.assert_serial()
        assert report.results.duplicates > 0, "no batch was repeated after its outputs"


@pytest.mark.long
@pytest.mark.fault(
    31, "SIGKILL after the outputs of a batch, started again with --plan-limit 100, 7 and 400000"
)
def test_other_plan_limits_in_the_middle_of_a_plan(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    """The first attempt's feedback is in Kafka; the repeated batch is told to plan otherwise."""
    with Database(tmp_path) as db:
        db.load(transfers(20_000, seed=1))
        for limit in (100, 7, 400_000):
            for seed in range(ATTEMPTS_MAX):
                with load(db, 100 * limit + seed):
                    progressed(db, 5)
                    hit = kill_in(db, outputs_written)
                db.start_pipeline([f"--plan-limit={limit}"])
                if hit:
                    injected(1)
                    break
            else:
                pytest.fail("no kill fell between the outputs and the commit")
        assert db.assert_serial(400).results.duplicates > 0
        wait_for(lambda: bool(db.status().feedback_ignored), "feedback that was ignored")


@pytest.mark.long
@pytest.mark.fault(
    2, "SIGKILL of the workers while a micro-batch executes, five times",
    "the query survives; equal to the serial replay",
)  # fmt: skip
def test_workers_are_killed_in_a_batch(tmp_path: Path, injected: Callable[..., None]) -> None:
    with Database(tmp_path) as db, load(db, 1):
        progressed(db, 100)
        driver = db.processes()[0].pid
        batches = Batches(db)
        for _round in range(5):
            wait_for(lambda: executing(batches), "a batch")
            killed = db.kill_workers()
            assert killed > 0
            injected(killed)
            progressed(db, 100)
        batches.close()
        assert db.processes()[0].pid == driver
        assert db.assert_serial().ok


@pytest.mark.long
@pytest.mark.fault(
    3, "SIGSTOP, and a second driver on the same checkpoint",
    "the second refuses; equal to the serial replay",
)  # fmt: skip
def test_a_second_driver_while_the_first_is_stopped(tmp_path: Path) -> None:
    with Database(tmp_path) as db, load(db, 1):
        progressed(db, 100)
        with halted(db.processes()):
            second = subprocess.run(
                db.command(), capture_output=True, text=True, timeout=120, check=False
            )
            assert second.returncode == 2
            assert "another pipeline runs on the checkpoint" in second.stderr
        progressed(db, 100)
        assert db.assert_serial().ok

"""Kills that fall into a chosen phase of a micro-batch, known by the files of the checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from streamydb.testing import Database, wait_for
from streamydb.topics import TopicNames
from tests.bank import transfers
from tests.faulty import load, progressed
from tests.machine import halted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ATTEMPTS_MAX = 25


def numbers(folder: Path) -> set[int]:
    """The batches that have a file in a folder of the checkpoint."""
    with suppress(FileNotFoundError):
        return {int(path.name) for path in folder.iterdir() if path.name.isdigit()}
    return set()


class Batches:
    """Where the query is, by its checkpoint and by the results topic."""

    def __init__(self, db: Database) -> None:
        self._query = db.place.checkpoint / "query"
        self._results = TopicPartition(TopicNames(db.name).results, 0)
        self._consumer = Consumer({**db.settings.client_config(), "group.id": "phases"})
        self.before = 0

    def close(self) -> None:
        self._consumer.close()

    @property
    def open(self) -> int | None:
        """The batch that was begun and not committed."""
        begun, done = numbers(self._query / "offsets"), numbers(self._query / "commits")
        newest = max(begun, default=-1)
        return None if newest < 0 or newest in done else newest

    def written(self) -> int:
        """How many results there are."""
        return int(self._consumer.get_watermark_offsets(self._results, timeout=10)[1])

    def state_is_committed(self, batch: int) -> bool:
        """Whether the state of a batch lies in the checkpoint."""
        begins = f"{batch + 1}.", f"{batch + 1}_"
        return any(p.name.startswith(begins) for p in (self._query / "state/0/0").iterdir())


def before_offsets(batches: Batches) -> bool:
    """A batch has just been committed, the next one is not begun."""
    found = batches.open
    while found is not None and batches.open == found:
        pass
    return found is not None and batches.open is None


def executing(batches: Batches) -> bool:
    """The offsets are written, the state is not."""
    found = batches.open
    return found is not None and not batches.state_is_committed(found)


def outputs_written(batches: Batches) -> bool:
    """Results of the batch are in Kafka, and the batch is not committed."""
    found = batches.open
    batches.before = batches.written()
    while found is not None and batches.open == found:
        if batches.written() > batches.before:
            return True
    return False


def state_committed(batches: Batches) -> bool:
    """The state of the batch is in the checkpoint, and the batch is not committed."""
    found = batches.open
    return found is not None and batches.state_is_committed(found)


Phase = Callable[[Batches], bool]

LEFT: dict[Phase, Phase] = {
    before_offsets: lambda batches: batches.open is None,
    executing: executing,
    outputs_written: lambda b: b.open is not None and b.written() > b.before,
    state_committed: state_committed,
}
"""Each phase, and how what a kill has left shows that it fell into it."""


def kill_in(db: Database, phase: Phase) -> bool:
    """Kill the JVM when it comes to a phase, then the rest; whether that was in time."""
    batches = Batches(db)
    try:
        jvm = next(process for process in db.processes() if process.name() == "java")
        until = time.monotonic() + 60
        while not phase(batches):
            assert time.monotonic() < until, f"no batch came to {phase.__name__}"
        os.kill(jvm.pid, signal.SIGKILL)
        db.kill_pipeline()
        return LEFT[phase](batches)
    finally:
        batches.close()


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

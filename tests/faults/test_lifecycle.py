"""A pipeline is told to stop, loses its JVM, or starts before its broker; an `up` is hurt."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streamydb.local import fork_server
from streamydb.local.launcher import OUTPUT
from streamydb.testing.database import Database, wait_for
from tests.support.bank import transfers
from tests.support.faulty import load, progressed, results_of
from tests.support.stack import Stack

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_START_S = 10.0
_FINISH_S = 30.0
_END_S = 65.0

ONE_GEAR = ["--gear", "micro-batch"]
"""Then a stop and a start write nothing twice. A real-time gear that begins at once may write again
what the last plan wrote, because only the feedback in Kafka tells what that was."""


def newest(db: Database, what: str) -> int:
    """The newest batch among those that were begun (offsets) or committed (commits)."""
    folder = db.place.checkpoint / "query" / what
    return max(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def sources(db: Database) -> list[int]:
    """The places in the log of what has a result, as the results came."""
    return [result["source"]["offset"] for result in results_of(db)]


def log_since(db: Database, mark: int) -> str:
    """What the pipeline's log has got since it was so long."""
    return db.log_file.read_bytes()[mark:].decode()


def stopped(db: Database, times: int = 1) -> tuple[int, float]:
    """Tell a pipeline to stop; its exit code, and how many seconds it took to end."""
    began_s = time.monotonic()
    for number in range(times):
        if number:
            wait_for(lambda: db.status().state == "stopping", "the first signal to be heard")
        db.signal_pipeline(signal.SIGTERM)
    code = db.wait_pipeline()
    return code, time.monotonic() - began_s


@pytest.mark.long
@pytest.mark.fault(
    44, "SIGTERM while it waits for Kafka to start, and in batches under load", "the batch is "
    "finished: newest offsets and newest commit are equal; nothing comes twice",
)  # fmt: skip
@pytest.mark.fault(45, "a pipeline is started before its broker", "it waits, says so, and runs")
@pytest.mark.fault(1, "SIGKILL of the JVM alone, under load", "one sentence; exit code 1")
def test_a_pipeline_starts_without_a_broker_loses_its_jvm_and_is_told_to_stop(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    with Database(tmp_path, options=ONE_GEAR) as db:
        with load(db, 0):
            progressed(db, 50)
            assert_the_death_of_its_jvm_is_told(db)
        injected(1, 1)
        db.broker.kill()
        waits(db)
        code, seconds = stopped(db)
        assert (code, db.status().state) == (0, "stopped")
        assert seconds < _START_S + 10
        waits(db)
        db.broker.start()
        injected(1, 45)
        wait_for(lambda: db.status().state == "running", "the start")
        assert db.status().waiting is None
        with load(db, 1):
            progressed(db, 50)
            code, seconds = stopped(db)
        assert (code, db.status().state, db.status().error) == (0, "stopped", None)
        assert seconds < _FINISH_S
        assert newest(db, "offsets") == newest(db, "commits")
        before = sources(db)
        injected(2, 44)
        db.start_pipeline()
        db.load(transfers(50, seed=9, prefix="after"))
        assert db.assert_serial().ok
        after = sources(db)[len(before) :]
        assert after
        assert not set(before) & set(after)


def assert_the_death_of_its_jvm_is_told(db: Database) -> None:
    """Kill the JVM under a pipeline; look at what it says."""
    mark = db.log_file.stat().st_size
    (jvm,) = [process for process in db.processes()[0].children() if "java" in process.name()]
    jvm.kill()
    assert db.wait_pipeline(30) == 1
    assert db.status().state == "failed"
    assert f"Spark's JVM (process {jvm.pid}) has ended: killed (SIGKILL)" in str(db.status().error)
    assert "start the pipeline again" in str(db.status().error)
    said = log_since(db, mark)
    assert str(db.status().error) in said
    assert "Traceback" not in said


def waits(db: Database) -> None:
    """Start a pipeline that has no broker; wait until it says so, in its status and its log."""
    mark = db.log_file.stat().st_size
    db.launch_pipeline()
    wait_for(lambda: db.status().waiting is not None, "the status of one that waits")
    assert db.status().state == "starting"
    said = "waiting for Kafka: Kafka does not answer"
    wait_for(lambda: said in log_since(db, mark), "the log of one that waits")


@pytest.mark.long
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("state", ["starting", "running"])
@pytest.mark.fault(44, "SIGTERM, once and twice, while Spark starts and in a backlog's first batch")
def test_it_ends_in_time_whenever_it_is_told_to(
    tmp_path: Path, state: str, times: int, injected: Callable[..., None]
) -> None:
    with Database(tmp_path, shards=2) as db:
        db.kill_pipeline()
        db.load(transfers(20_000, seed=3))
        db.launch_pipeline()
        wait_for(lambda: db.status().state == state, f"the state {state}")
        code, seconds = stopped(db, times)
        assert (code, db.status().state) == (0, "stopped")
        assert seconds < _END_S
        assert not db.processes()
        injected(times)
        db.start_pipeline()
        assert db.assert_serial().ok


def killed_half_way(stack: Stack, at_s: float) -> subprocess.CompletedProcess[str]:
    """Run `up`, and SIGKILL the process that forks its processes so long after it began."""
    done = threading.Event()

    def kill() -> None:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if fork_server.__name__ in process.cmdline() and serves(process, stack.home):
                    done.wait(at_s)
                    process.kill()

    def watch() -> None:
        while not done.wait(0.02):
            kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        return stack.run("up", "--master", "local[2]")
    finally:
        done.set()
        watcher.join()


def serves(process: psutil.Process, home: Path) -> bool:
    """Return True if it is the server of the `up` of this home."""
    parent = process.parent()
    return parent is not None and str(home) in parent.cmdline()


def running(home: Path) -> list[str]:
    """The logs of the processes that were started from a home, one for each session."""
    logs = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            log = process.environ().get(OUTPUT, "")
            if log.startswith(str(home)) and os.getsid(process.pid) == process.pid:
                logs.append(Path(log).stem)
    return sorted(logs)


@pytest.mark.long
@pytest.mark.fault(
    55, "SIGKILL at a random moment of `up`, from its first second until it has forked all",
    "the database stands, each process once; after `down` none is left",
)  # fmt: skip
def test_a_database_stands_though_its_fork_server_is_killed(
    tmp_path: Path, injected: Callable[..., None]
) -> None:
    rng, stack = random.Random(55), Stack(tmp_path)
    for _ in range(3):
        begun = killed_half_way(stack, rng.uniform(0.0, 4.0))
        try:
            assert begun.returncode == 0, begun.stderr
            assert running(stack.home) == ["facade", "pipeline", "read-model"]
            assert stack.run("txn", "--add", "visits=1").returncode == 0
            assert stack.run("check").returncode == 0
        finally:
            assert stack.run("down").returncode == 0
        injected(1)
        assert running(stack.home) == []

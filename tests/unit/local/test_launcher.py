"""The launcher of local processes: their ends, groups and logs, and what they are known by."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from streamydb.local import processes
from streamydb.local.broker.embedded import find_broker
from streamydb.local.folder import DatabaseFolder, PipelineStatus
from streamydb.local.launcher import (
    Birth,
    LocalProcess,
    ProcessError,
    birth_of,
    end,
    end_of_log,
    process_of,
    wait_until,
)
from streamydb.pipeline.progress import StatusWriter

SLEEPS = "import time; print('ready', flush=True); time.sleep(600)"
DEAF = f"""\
import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where the tests run in the background
{SLEEPS}"""
PARENT = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1]]); "
    "print(child.pid, flush=True); child.wait()"
)
NEGLECTFUL = PARENT.replace("child.wait()", "import time; time.sleep(600)")
CONFIRMS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); " + SLEEPS

Launch = Callable[..., LocalProcess]
RECORD = "streamydb.local.processes._recorded"


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Run a program until it has written a line."""

    def run(program: str, *arguments: str) -> LocalProcess:
        command = [sys.executable, "-c", program, *arguments]
        process = LocalProcess("it", command, tmp_path / "logs" / "it.log")
        process.wait_until(lambda: b"\n" in process.log.read_bytes(), 20)
        return process

    return run


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def gone(pid: int) -> bool:
    return wait_until(lambda: not runs(pid), 10)


def test_who_is_asked_to_end_ends_as_it_likes(launch: Launch) -> None:
    with launch(CONFIRMS) as process:
        assert os.getpgid(process.pid) == process.pid
        assert process.alive
    assert (process.alive, process.exit_code) == (False, 7)
    assert process.stop() == 7


def test_who_does_not_is_killed_after_a_grace(launch: Launch) -> None:
    assert launch(DEAF).stop(grace_s=0.2) == -signal.SIGKILL


def test_another_signal_may_be_the_one_to_end_by(launch: Launch) -> None:
    assert launch(DEAF).stop(20, signal.SIGINT) == -signal.SIGINT


@pytest.mark.parametrize("way", ["stop", "kill", "family", "by id"])
def test_its_children_end_with_it(launch: Launch, way: str) -> None:
    process = launch(PARENT, DEAF)
    child = int(process.log.read_text().split()[0])
    wait_until(lambda: "ready" in process.log.read_text(), 20)
    if way == "stop":
        process.stop()
    elif way == "kill":
        process.kill()
    elif way == "family":
        assert process.kill_family() == 2
    else:
        assert end("it", process.pid, process.birth)
        process.release()
    assert gone(child)
    assert process.family() == []


def test_one_that_ends_while_it_is_waited_for_is_told_with_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no disk'); raise SystemExit(3)"]
    process = LocalProcess("the store", command, tmp_path / "log")
    with pytest.raises(ProcessError, match=r"(?s)the store ended \(3\)\..*\| no disk"):
        process.wait_until(lambda: False, 20)


def test_one_that_is_never_ready_is_told_with_its_log(launch: Launch) -> None:
    with launch(SLEEPS) as process, pytest.raises(ProcessError, match=r"(?s)after 0 s.*\| ready"):
        process.wait_until(lambda: False, 0.1)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="it could not be started: /none: No such file"):
        LocalProcess("it", ["/none"], tmp_path / "log")


def test_a_process_is_known_by_id_and_creation_time() -> None:
    birth = birth_of(os.getpid())
    assert process_of(os.getpid(), birth) is not None
    other = Birth(birth.created_s - 1, birth.since_boot and birth.since_boot + "1")
    assert process_of(os.getpid(), other) is None
    assert not end("it", os.getpid(), other, 0.1)


def test_one_that_an_earlier_release_recorded_is_known_by_the_clock() -> None:
    created_s = psutil.Process().create_time()
    assert process_of(os.getpid(), Birth(created_s)) is not None
    assert process_of(os.getpid(), Birth(created_s - 1)) is None


def test_records_of_an_earlier_release_are_understood(tmp_path: Path) -> None:
    created_s = psutil.Process().create_time()
    kept = {
        "name": "pipeline", "pid": os.getpid(), "created_s": created_s, "command": ["it"],
        "log": "log", "started_ms": 1,
    }  # fmt: skip
    path = processes.record_path(tmp_path, "pipeline")
    path.parent.mkdir()
    path.write_bytes(msgspec.json.encode(kept))
    found = processes.find(tmp_path, "pipeline")
    assert found is not None
    assert found.birth == Birth(created_s)
    broker = {"pid": os.getpid(), "created": created_s, "bootstrap": "127.0.0.1:1", "log": "log"}
    (tmp_path / "broker.json").write_bytes(msgspec.json.encode(broker))
    running = find_broker(tmp_path)
    assert running is not None
    assert running.birth == Birth(created_s)


def test_one_that_has_ended_was_never_born(launch: Launch) -> None:
    process = launch(SLEEPS)
    process.stop()
    assert birth_of(process.pid) == Birth(0.0)
    assert process_of(process.pid, process.birth) is None


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set the clock by some seconds: Linux tells another time of its boot then."""
    if not sys.platform.startswith("linux"):
        pytest.skip("elsewhere the system keeps the times at which processes began")
    linux = importlib.import_module("psutil._pslinux")
    boot_s: float = linux.boot_time()
    return lambda by_s: monkeypatch.setattr(linux, "boot_time", lambda: boot_s + by_s)


@pytest.mark.parametrize("by_s", [-3600.0, 1.0, 3600.0])
def test_a_process_is_known_after_the_clock_was_set(
    tmp_path: Path, set_clock: Callable[[float], None], by_s: float
) -> None:
    command = [sys.executable, "-c", DEAF]
    started = processes.start(tmp_path, "pipeline", command)
    log = processes.log_path(tmp_path, "pipeline")
    assert wait_until(lambda: "ready" in log.read_text(), 20)
    set_clock(by_s)
    assert processes.find(tmp_path, "pipeline") == started
    later = processes.stop(tmp_path, "pipeline", 0.2, lambda: set_clock(2 * by_s))
    assert (later, runs(started.pid)) == (True, False)


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_a_status_is_that_of_a_live_process_after_the_clock_was_set(
    tmp_path: Path, set_clock: Callable[[float], None], by_s: float
) -> None:
    folder = DatabaseFolder(tmp_path, "bank")
    StatusWriter(folder.status_file, "bank").update(state="running")
    set_clock(by_s)
    assert folder.status().state == "running"
    status = msgspec.json.decode(folder.status_file.read_bytes(), type=PipelineStatus)
    assert status.since_boot
    status.since_boot += "1"
    folder.status_file.write_bytes(msgspec.json.encode(status))
    assert folder.status().state == "failed", "another process has the id"


def test_a_status_of_an_earlier_release_is_judged_by_the_clock(tmp_path: Path) -> None:
    folder = DatabaseFolder(tmp_path, "bank")
    folder.folder.mkdir(parents=True)
    born_ms = int(1000 * psutil.Process().create_time())
    for started_ms, state in ((born_ms + 5, "running"), (born_ms - 5_000, "failed")):
        status = PipelineStatus(state="running", pid=os.getpid(), started_ms=started_ms)
        folder.status_file.write_bytes(msgspec.json.encode(status))
        assert folder.status().state == state


def test_one_of_another_user_is_told(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_ours(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    process = launch(SLEEPS)
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", not_ours)
        with pytest.raises(ProcessError, match=rf"it \(process {process.pid}\) is another user's"):
            end("it", process.pid, process.birth)
    assert process.alive
    process.kill()


def test_one_that_its_parent_does_not_reap_has_ended(launch: Launch) -> None:
    parent = launch(NEGLECTFUL, SLEEPS)
    child = int(parent.log.read_text().split()[0])
    assert end("it", child, birth_of(child), 5)
    assert psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    parent.kill()


def test_a_folder_knows_what_was_started_from_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.environ['ROLE'], flush=True);" + SLEEPS]
    started = processes.start(tmp_path, "pipeline", command, {"ROLE": "leader"})
    assert processes.find(tmp_path, "pipeline") == started
    with pytest.raises(ProcessError, match=f"runs already \\(process {started.pid}\\)"):
        processes.start(tmp_path, "pipeline", command)
    log = processes.log_path(tmp_path, "pipeline")
    assert wait_until(lambda: "ready" in log.read_text(), 20)
    assert end_of_log(log, 2) == f"The end of {log}:\n  | leader\n  | ready"
    assert processes.stop(tmp_path, "pipeline")
    assert not runs(started.pid)
    assert processes.find(tmp_path, "pipeline") is None
    assert not processes.stop(tmp_path, "pipeline")


def test_of_two_that_start_one_at_once_one_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise the record of the one would be replaced by the other's,
    and nobody would find it.
    """
    met = threading.Barrier(2)

    class Slow(LocalProcess):
        def __init__(self, *args: object, **named: object) -> None:
            with suppress(threading.BrokenBarrierError):
                met.wait(1)
            super().__init__(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(processes, "LocalProcess", Slow)
    command = [sys.executable, "-c", SLEEPS]
    with ThreadPoolExecutor(2) as pool:
        starts = [pool.submit(processes.start, tmp_path, "pipeline", command) for _ in range(2)]
    begun = [start.result().pid for start in starts if start.exception() is None]
    for pid in begun[1:]:
        os.kill(pid, signal.SIGKILL)
    assert processes.stop(tmp_path, "pipeline", 0)
    assert len(begun) == 1
    (refused,) = [start.exception() for start in starts if start.exception() is not None]
    assert f"pipeline runs already (process {begun[0]}), started by another command" in str(refused)


def test_one_that_was_started_while_another_ended_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SLEEPS]

    def start_meanwhile(*given: Any) -> bool:
        monkeypatch.undo()
        ended = end(*given)
        processes.start(tmp_path, "pipeline", command)
        return ended

    processes.start(tmp_path, "pipeline", command)
    monkeypatch.setattr(processes, "end", start_meanwhile)
    assert processes.stop(tmp_path, "pipeline", 0)
    assert processes.find(tmp_path, "pipeline") is not None
    assert processes.stop(tmp_path, "pipeline", 0)
    assert processes.find(tmp_path, "pipeline") is None


def test_what_outlives_its_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its children are not, nor what is recorded, nor what runs under other names or files."""
    monkeypatch.chdir(tmp_path)
    home = Path("home")  # as the user names it
    (bank, shop, other) = (home / name for name in ("bank", "shop", "bank-2"))
    command = [sys.executable, "-c", PARENT, SLEEPS]
    started = [processes.start(folder, "facade", command) for folder in (bank, shop, other)]
    try:
        assert processes.strays(home) == []
        for folder in (bank, other):
            shutil.rmtree(folder)
        (stray,) = processes.strays(tmp_path / bank)
        assert (stray.name, stray.pid) == ("facade", started[0].pid)
        assert process_of(stray.pid, stray.birth)
        assert {each.pid for each in processes.strays(home)} == {started[0].pid, started[2].pid}
        monkeypatch.setattr(processes, "_contained", lambda _: True)
        assert processes.strays(home) == []
    finally:
        for each in started:
            end(each.name, each.pid, each.birth, 0)
    assert processes.strays(home) == []


@pytest.mark.parametrize("interrupted", ["streamydb.local.launcher.birth_of", RECORD])
def test_a_start_that_is_interrupted_leaves_no_process_that_nobody_knows(
    interrupted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self.pid)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamydb.local.launcher.subprocess.Popen", Noted)
    monkeypatch.setattr(interrupted, interrupt)
    with pytest.raises(KeyboardInterrupt):
        processes.start(tmp_path, "it", [sys.executable, "-c", SLEEPS])
    [pid] = started
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("interrupted", ["streamydb.local.processes.birth_of", RECORD])
def test_a_fork_that_is_interrupted_leaves_no_process_that_nobody_knows(
    interrupted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with subprocess.Popen([sys.executable, "-c", SLEEPS]) as forked:
        forks: Any = SimpleNamespace(start=lambda *_: forked.pid)
        monkeypatch.setattr(interrupted, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                processes.start(tmp_path, "it", [], None, forks)
            assert forked.wait(20) == -signal.SIGKILL
        finally:
            forked.kill()

"""Programs that are forked from a server look and behave as if started by their commands."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from streamydb.local import processes
from streamydb.local.fork_server import ForkError, ForkServer
from streamydb.testing.database import wait_for
from tests.support.seeds import seeds

PROGRAM = """
import json, os, signal, sys, subprocess, time
if __name__ == "__main__":
    told = {
        "session": os.getsid(0) == os.getpid(), "folder": os.getcwd(), "arguments": sys.argv[1:],
        "module": os.path.basename(sys.argv[0]), "command": sys.orig_argv,
        "environment": dict(os.environ), "loaded": sys.modules.get("of_all") is not None,
        "child": subprocess.run([sys.executable, "-c", "raise SystemExit(7)"]).returncode,
        "input": sys.stdin.read(), "threads": len(os.listdir("/proc/self/task")),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }
    print(json.dumps(told), flush=True)
    time.sleep(600)
"""


class Told(msgspec.Struct):
    """What the program says of itself."""

    session: bool
    folder: str
    arguments: list[str]
    module: str
    command: list[str]
    environment: dict[str, str]
    loaded: bool
    child: int
    input: str
    threads: int
    nice: int


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a program, where modules are looked for; what runs there is ended."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "of_all.py").write_text("called = []\ndef prepare():\n    called.append(1)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    yield tmp_path
    for record in (tmp_path / "run").glob("*.json"):
        processes.stop(tmp_path, record.stem, 0)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "program", *arguments]


def told_by(log: Path) -> Told:
    """What the last program that has this log says."""
    wait_for(lambda: log.exists() and log.read_bytes().endswith(b"}\n"), "what it says", 60)
    return msgspec.json.decode(log.read_bytes().splitlines()[-1], type=Told)


def test_a_program_is_as_if_it_had_been_started_by_its_command(folder: Path) -> None:
    asked, variables = command("one", "two words", "é"), {"OF_THIS": "as \N{GREEK SMALL LETTER PI}"}
    by_command = processes.start(folder, "usual", asked, variables)
    usual = told_by(Path(by_command.log))
    with ForkServer(["of_all:prepare"]) as forks:
        record = processes.start(folder, "forked", asked, variables, forks)
        told = told_by(Path(record.log))
    assert told.loaded
    assert not usual.loaded
    seed = told.environment.pop("PYTHONHASHSEED")
    usual.environment.pop("PYTHONHASHSEED", None)
    assert told.environment.pop("STREAMYDB_OUTPUT") == record.log
    assert usual.environment.pop("STREAMYDB_OUTPUT") == by_command.log
    assert msgspec.structs.replace(told, loaded=False) == usual
    process = psutil.Process(record.pid)
    assert process.cmdline() == " ".join(asked).split(" ")
    shown = process.environ()
    assert shown == told.environment | {"PYTHONHASHSEED": seed, "STREAMYDB_OUTPUT": record.log}
    assert processes.find(folder, "forked") == record
    assert processes.stop(folder, "forked", 30)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_fork_is_found_again_when_its_folder_was_deleted(folder: Path) -> None:
    with ForkServer([]) as forks:
        record = processes.start(folder, "forked", command(), {}, forks)
    told_by(Path(record.log))
    processes.record_path(folder, "forked").unlink()
    (stray,) = processes.strays(folder)
    try:
        assert (stray.pid, stray.name, stray.birth) == (record.pid, "forked", record.birth)
    finally:
        os.kill(record.pid, signal.SIGKILL)


@pytest.mark.parametrize("prepare", [["nowhere"], ["of_all:nothing"], ["of_all", "nowhere:to"]])
def test_what_cannot_be_loaded_is_left_to_the_program(folder: Path, prepare: list[str]) -> None:
    with ForkServer(prepare) as forks:
        record = processes.start(folder, "forked", command(), {}, forks)
    assert told_by(Path(record.log)).session


@pytest.mark.parametrize("words", [["ls", "-m", "program"], [sys.executable, "program.py"]])
def test_only_modules_of_this_python_are_forked(folder: Path, words: list[str]) -> None:
    with ForkServer([]) as forks, pytest.raises(ForkError):
        forks.start(words, {}, folder / "log")


def test_a_program_whose_record_cannot_be_written_does_not_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(processes, "write_whole", full)
    before = {process.pid for process in psutil.process_iter()}
    with ForkServer([]) as forks, pytest.raises(OSError, match="no space"):
        processes.start(folder, "forked", command(), {}, forks)
    log = str(processes.log_path(folder, "forked"))
    new = [process for process in psutil.process_iter() if process.pid not in before]
    wait_for(lambda: not any(log in _output(process) for process in new), "its end", 30)


def _output(process: psutil.Process) -> str:
    try:
        return str(process.environ().get("STREAMYDB_OUTPUT", ""))
    except psutil.Error:
        return ""


PLACES = ("loading", "before", "after", "told", "ran")
OF_ALL_BUT_KILLED = """
import os, random, signal, sys, time

rng = random.Random(os.environ["SEED"])
dies_at, asked = os.environ["DIES"], rng.randint(1, 2)
if dies_at == "loading":
    os.kill(os.getpid(), signal.SIGKILL)
forks, fork, write = 0, os.fork, os.write

def dies(place):
    if (place, forks) == (dies_at, asked):
        os.kill(os.getpid(), signal.SIGKILL)

def forked():
    global forks
    forks += 1
    dies("before")
    pid = fork()
    if pid:
        dies("after")
    return pid

def written(file, data):  # it lets a fork run
    dies("told")
    done = write(file, data)
    dies("ran")
    return done

os.fork, os.write = forked, written
"""


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(60, 5)))
def test_a_program_runs_once_wherever_the_server_is_killed(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps of a fork, above all when nobody knows the fork yet."""
    (folder / "of_all.py").write_text(OF_ALL_BUT_KILLED)
    monkeypatch.setenv("SEED", str(seed))
    monkeypatch.setenv("DIES", PLACES[seed % len(PLACES)])
    names = ["one", "two"]
    with ForkServer(["of_all"]) as forks:
        records = [processes.start(folder, name, command(name), {}, forks) for name in names]
    assert {told_by(Path(record.log)).arguments[0] for record in records} == {*names}
    runs_once(folder, records)


def runs_once(folder: Path, records: list[processes.ProcessRecord]) -> None:
    """Each is found, and no process is there that nobody knows."""
    assert [processes.find(folder, record.name) for record in records] == records
    assert processes.strays(folder) == []
    by_output = [_output(process) for process in psutil.process_iter()]
    assert [by_output.count(record.log) for record in records] == [1] * len(records)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(8, 3)))
def test_a_program_runs_once_whenever_the_server_is_killed(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    forks = ForkServer(["of_all:prepare"])
    assert forks._process is not None
    killer = threading.Timer(rng.uniform(0, 1.0), forks._process.kill)
    killer.start()
    names = [f"program-{number}" for number in range(rng.randint(1, 4))]
    records = [processes.start(folder, name, command(name), {}, forks) for name in names]
    killer.join()
    forks.close()
    assert {told_by(Path(record.log)).arguments[0] for record in records} == {*names}
    runs_once(folder, records)

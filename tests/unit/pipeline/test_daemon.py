"""The daemon of Python workers: what it loads before it forks them, and whose place it takes."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from pyspark import daemon as spark

from streamydb.pipeline import daemon
from streamydb.pipeline.daemon import EarlyDaemon
from streamydb.testing.database import wait_for
from tests.support.daemons import asked, gone, leave, process_of

LOADED = """
import os, sys
usual = os.getpriority(os.PRIO_PROCESS, 0)
from pathlib import Path
from streamydb.pipeline.daemon import _loads_aside, _Loading
assert _loads_aside() is not _Loading.FAILED
assert os.getpriority(os.PRIO_PROCESS, 0) == usual  # of what is forked, too
threads = {path.parent.name: path.read_text() for path in Path("/proc/self/task").glob("*/comm")}
threads.pop(str(os.getpid()), None)
assert set(threads.values()) <= {"jemalloc_bg_thd\\n"}, threads  # jemalloc is prepared for a fork
assert {"pyspark.worker", "streamydb.pipeline.hosts"} <= sys.modules.keys()
if os.fork() == 0:  # a worker finds all kernels loaded, and they run
    from streamydb.pipeline.warmup import warm_up
    warm_up()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
"""

FAILS = "raise ImportError('no Arrow')"
"""Stands in for Arrow, so that a daemon cannot load."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give back what a daemon that is started early adds to the environment."""
    monkeypatch.delenv("STREAMYDB_DAEMON_SOCKET", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Spark has it


@pytest.fixture
def _light(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have daemons load nothing, for tests of whose fork a daemon is: an eighth of the time."""
    (tmp_path / "pyarrow.py").write_text(FAILS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_a_fork_has_what_was_loaded_and_lacks_no_thread() -> None:
    found = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=300, check=False
    )
    assert (found.returncode, found.stdout) == (0, ""), found.stderr


def test_the_early_daemon_takes_the_place_of_the_one_that_spark_starts() -> None:
    early = EarlyDaemon(sys.executable)
    folder = Path(os.environ["STREAMYDB_DAEMON_SOCKET"]).parent
    with asked() as sparks:
        worker = sparks.worker()
        assert early.loaded()
        loaded, daemon = process_of(early), psutil.Process(worker.ppid())
        assert daemon.ppid() == loaded.pid
        assert sparks.process.poll() is None  # Spark closes the pipes of a daemon that has ended
        assert sparks.end() == ""
        wait_for(lambda: gone(daemon) and gone(worker), "the end of both", 30)
        assert not gone(loaded)
    leave(early)
    wait_for(lambda: gone(loaded) and not folder.exists(), "its end", 30)


@pytest.mark.usefixtures("_light")
def test_each_daemon_of_spark_is_a_fork_of_the_early_one_with_an_environment_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark starts a daemon for each environment; what is loaded is in memory once."""
    early = EarlyDaemon(sys.executable)
    told = []
    with ExitStack() as daemons:
        for size in ("64", "65536", "128"):
            monkeypatch.setenv("SPARK_BUFFER_SIZE", size)
            sparks = daemons.enter_context(asked())
            worker = sparks.worker()
            assert sparks.origin(worker) == process_of(early).pid
            told.append((worker.ppid(), sparks.buffer_size))
        assert [size for _, size in told] == ["64", "65536", "128"]
        assert len({daemon for daemon, _ in told}) == len(told)


def test_spark_gets_a_daemon_though_the_early_one_is_killed_while_it_loads() -> None:
    early = EarlyDaemon(sys.executable)
    with asked() as sparks:
        process_of(early).kill()
        assert sparks.origin(sparks.worker()) == sparks.process.pid
        assert not early.loaded()
    with asked() as sparks:
        assert sparks.origin(sparks.worker()) == sparks.process.pid


@pytest.mark.usefixtures("_light")
def test_spark_gets_a_daemon_though_the_one_that_it_had_was_killed() -> None:
    early = EarlyDaemon(sys.executable)
    with asked() as sparks:
        worker = sparks.worker()
        daemon = psutil.Process(worker.ppid())
        worker.kill()
        daemon.kill()
        assert sparks.process.wait(60) == 0  # Spark starts another one then
    with asked() as sparks:
        assert sparks.origin(sparks.worker()) == process_of(early).pid


@pytest.mark.usefixtures("_light")
def test_the_command_of_spark_is_killed_while_it_hands_over(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The fork ends, as it has half of a place, and the next command gets another one."""
    early = EarlyDaemon(sys.executable)
    for sent in (None, b"", b'{"environ": {"A"'):
        with socket.socket(socket.AF_UNIX) as command:
            command.connect(os.environ["STREAMYDB_DAEMON_SOCKET"])
            if sent is not None:
                socket.send_fds(command, [b"1"], (0, 1, 2))
                command.sendall(sent)
        with asked() as sparks:
            assert sparks.origin(sparks.worker()) == process_of(early).pid, sent
        wait_for(lambda: not process_of(early).children(), "the end of the forks", 60)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.usefixtures("_light")
def test_many_open_files_of_who_starts_it_do_no_harm() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as open_files:
        open_files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        for _ in range(1_100):  # its socket then has a number that select() does not take
            open_files.enter_context(Path(os.devnull).open())
        early = EarlyDaemon(sys.executable)
    with asked() as sparks:
        assert sparks.origin(sparks.worker()) == process_of(early).pid


@pytest.mark.usefixtures("_light")
def test_workers_may_open_as_many_files_as_the_machine_lets_them() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as limited:
        limited.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        few = psutil.Process().num_fds() + 100
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        early = EarlyDaemon(sys.executable)
    with asked() as sparks:
        worker = sparks.worker()
        assert sparks.origin(worker) == process_of(early).pid
        assert worker.rlimit(resource.RLIMIT_NOFILE)[0] == min(hard, 65_536)


def test_it_ends_with_who_started_it() -> None:
    code = "from streamydb.pipeline.daemon import EarlyDaemon; import os, sys\n"
    code += "early = EarlyDaemon(sys.executable); print(early._process.pid, flush=True)\n"
    code += "print(os.environ['STREAMYDB_DAEMON_SOCKET'], flush=True); sys.stdin.read()"
    starter = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert starter.stdout is not None
    assert starter.stderr is not None
    early = psutil.Process(int(starter.stdout.readline()))
    address = Path(starter.stdout.readline().strip())
    assert address.is_socket()
    assert address.parent.stat().st_mode & 0o077 == 0
    starter.send_signal(signal.SIGKILL)
    starter.wait(30)
    wait_for(lambda: gone(early), "its end", 60)
    assert not address.parent.exists()
    assert starter.stderr.read() == "", "no traceback, though nobody hears that it has loaded"


@pytest.mark.usefixtures("_light")
def test_one_that_cannot_load_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    early = EarlyDaemon(sys.executable)
    assert not early.loaded()
    with asked() as sparks:
        assert sparks.origin(sparks.worker()) == process_of(early).pid
    assert "the Python workers load for themselves: no Arrow" in capfd.readouterr().err


@pytest.mark.parametrize("lacks", ["", "no Arrow"])
def test_it_forks_workers_even_if_it_could_not_load(
    lacks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def load() -> None:
        done.append("loaded")
        if lacks:
            raise ImportError(lacks)

    monkeypatch.setattr(daemon, "_load", load)
    monkeypatch.setattr(spark, "manager", lambda: done.append("managed"))
    daemon.main()
    assert done == ["loaded", "managed"]
    told = capsys.readouterr()
    assert told.out == ""  # it is Spark's
    assert told.err == (f"the Python workers load for themselves: {lacks}\n" if lacks else "")

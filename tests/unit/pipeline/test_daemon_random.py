"""Whatever is killed at whatever moment of a start, Spark gets workers from a daemon."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamydb.pipeline.daemon import EarlyDaemon
from streamydb.testing.database import wait_for
from tests.support.daemons import DaemonEndedError, asked, gone, leave, process_of
from tests.support.seeds import seeds

SPAN_S = 0.6
"""A start takes less, because the daemon of these tests can load nothing."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise ImportError('nothing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Spark has it
    monkeypatch.delenv("STREAMYDB_DAEMON_SOCKET", raising=False)


@pytest.mark.parametrize("seed", range(seeds(6, 1)))
def test_spark_gets_workers_whatever_is_killed(
    seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of the early daemon and the command that Spark starts; Spark then starts another one."""
    rng = random.Random(seed)
    early = EarlyDaemon(sys.executable)
    started_early, own = process_of(early), early._process
    assert isinstance(own, subprocess.Popen)  # this process has not loaded: it is no fork of it
    if rng.random() < 0.5:  # Spark asks when it has loaded, else while it loads
        early.loaded()
    with asked() as sparks:
        victim = rng.choice([own, sparks.process])
        killer = threading.Timer(rng.uniform(0, SPAN_S), victim.kill)
        killer.start()
        try:
            served = sparks.worker()
        except DaemonEndedError:
            killer.join()
            assert sparks.process.wait(60) in (0, -9)  # it never hangs: Spark sees it end
        else:
            loaded = sparks.origin(served)
            killer.join()
            # Its daemon has another parent if the early one was killed between these two lines.
            assert loaded in (started_early.pid, sparks.process.pid) or victim.wait(60) == -9
    with asked() as again:
        last = again.worker()
        loader = again.process if victim is own else started_early
        assert again.origin(last) == loader.pid
        assert "Traceback" not in again.end() + capfd.readouterr().err
    leave(early)
    wait_for(lambda: gone(last) and gone(started_early), "the end of all", 30)

"""The daemon of Python workers: what it loads before it forks, and what it does if it cannot."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pyspark import daemon as spark

from streamydb.pipeline import daemon

LOADED = """
import os, sys
from pathlib import Path
from streamydb.pipeline.daemon import load
load()
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


def test_a_fork_has_what_was_loaded_and_lacks_no_thread() -> None:
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Spark has it
    found = subprocess.run(
        [sys.executable, "-c", LOADED], env=alone, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (0, ""), found.stderr


@pytest.mark.parametrize("lacks", ["", "no numba"])
def test_it_forks_workers_even_if_it_could_not_load(
    lacks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    def load() -> None:
        done.append("loaded")
        if lacks:
            raise ImportError(lacks)

    monkeypatch.setattr(daemon, "load", load)
    monkeypatch.setattr(spark, "manager", lambda: done.append("managed"))
    daemon.main()
    assert done == ["loaded", "managed"]
    told = capsys.readouterr()
    assert told.out == ""  # it is Spark's
    assert told.err == (f"the Python workers load for themselves: {lacks}\n" if lacks else "")

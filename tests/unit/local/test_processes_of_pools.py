"""The processes of a pool end with the one that made it, however that ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

POOL = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from streamydb.local.processes import end_with_parent

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("spawn"), end_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


def test_a_pool_does_not_outlive_who_made_it(tmp_path: Path) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL, "utf-8")
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        worker = psutil.Process(int(maker.stdout.readline()))
        maker.kill()
    worker.wait(timeout=20)
    assert not worker.is_running()

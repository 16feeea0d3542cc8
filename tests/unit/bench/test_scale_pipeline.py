"""What counts as processor time of a transfer."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest

from bench.scale_pipeline import spent_s

BURNT_S = 0.2


def spent_while_burning(name: str) -> float:
    """What is said to be spent while a thread, which Linux knows by a name, takes its time."""
    burnt, done = threading.Event(), threading.Event()

    def burn() -> None:
        comm = Path(f"/proc/self/task/{threading.get_native_id()}/comm")
        comm.write_text(name, encoding="utf-8")
        until = time.thread_time() + BURNT_S
        while time.thread_time() < until:
            pass
        burnt.set()
        done.wait()

    before = spent_s(psutil.Process())
    thread = threading.Thread(target=burn)
    thread.start()
    burnt.wait()
    after = spent_s(psutil.Process())
    done.set()
    thread.join()
    return after - before


@pytest.mark.parametrize(
    ("name", "counts"), [("C2 CompilerThre", False), ("C1 CompilerThre", False), ("task", True)]
)
def test_the_compilers_of_java_do_not_count(name: str, *, counts: bool) -> None:
    spent = spent_while_burning(name)
    assert (spent >= BURNT_S * 0.9) == counts, spent

"""A process gives memory back when it is idle, and only if it has worked."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import pytest

from streamydb.local import own_process
from streamydb.local.own_process import Trimmer, Usage, few_arenas, give_back, trim_when_idle

FREED = """
import ctypes
from streamydb.local.own_process import give_back

def anonymous_kb():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty"))

if "{with_arrow}":
    import pyarrow
blocks = [bytearray(64_000) for _ in range(2_000)]
kept = blocks[::40]
blocks.clear()
before = anonymous_kb()
give_back()
assert len(kept) == 50
print(before - anonymous_kb())
"""
"""What is freed in the middle of a heap stays with glibc until it is asked for."""


FIXED = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000000"}
"""So that the blocks lie in one heap, and the system's own choice does not matter."""


@pytest.mark.parametrize("with_arrow", ["", "yes"])
def test_what_was_freed_is_given_back(with_arrow: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREED.replace("{with_arrow}", with_arrow)],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **FIXED},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50_000


@pytest.mark.parametrize(
    ("cpu_s", "given"),
    [
        ([0.0, 0.0], [1, 1]),  # the start was work
        ([5.0, 0.05, 0.05], [0, 1, 1]),
        ([5.0, 0.11, 0.09, 0.0], [0, 0, 1, 1]),  # a hundredth of a processor is work
        ([0.0, 0.9, 0.0, 0.09, 0.0, 0.02, 0.0], [1, 1, 1, 1, 1, 2, 2]),  # after a second of it
    ],
)
def test_it_is_given_when_work_has_ended(cpu_s: list[float], given: list[int]) -> None:
    times: list[int] = []
    elapsed = used = 0.0
    trimmer, found = Trimmer(lambda: times.append(1), Usage(elapsed, used)), []
    for each in cpu_s:
        elapsed, used = elapsed + 10.0, used + each
        trimmer.look(Usage(elapsed, used))
        found.append(len(times))
    assert found == given


def test_a_process_has_one_such_thread_and_its_fork_one_of_its_own() -> None:
    def threads() -> int:
        return sum(thread.name == "streamydb-trimmer" for thread in threading.enumerate())

    trim_when_idle()
    trim_when_idle()
    assert threads() == 1
    pid = os.fork()
    if pid == 0:
        trim_when_idle()
        os._exit(len(own_process._begun) + 10 * threads())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 12


def test_without_arrow_and_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyarrow", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    give_back()


def test_threads_share_arenas_unless_the_user_has_set_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert few_arenas() == {"MALLOC_ARENA_MAX": "2"}
    monkeypatch.setenv("MALLOC_ARENA_MAX", "5")
    assert few_arenas() == {"MALLOC_ARENA_MAX": "5"}

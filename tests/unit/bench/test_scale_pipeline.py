"""What counts as processor time of a transfer, and what pairs of rounds say."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from bench.pairs import by_turns, ratios_of, spread
from bench.scale_pipeline import AROUND, around_us, spent_s

BURNT_S = 0.2
BURNING = f"""
import sys, threading, time

def burn():
    with open(f"/proc/self/task/{{threading.get_native_id()}}/comm", "w") as comm:
        comm.write(sys.argv[1])
    until = time.thread_time() + {BURNT_S}
    while time.thread_time() < until:
        pass
    print("burnt", flush=True)
    sys.stdin.readline()

print("begun", flush=True)
sys.stdin.readline()
threading.Thread(target=burn).start()
"""


def spent_while_burning(name: str) -> float:
    """What is said to be spent while a thread, which Linux knows by a name, takes its time.

    It is the only one at work in its process: in a test's own, Python may just collect its garbage.
    """
    command = [sys.executable, "-S", "-c", BURNING, name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        before = spent_s(psutil.Process(process.pid))
        process.stdin.write("\n")
        assert process.stdout.readline() == "burnt\n"
        after = spent_s(psutil.Process(process.pid))
        process.stdin.write("\n")
    return after - before


@pytest.mark.parametrize(
    ("name", "counts"), [("C2 CompilerThre", False), ("C1 CompilerThre", False), ("task", True)]
)
def test_the_compilers_of_java_do_not_count(name: str, *, counts: bool) -> None:
    spent = spent_while_burning(name)
    assert (spent >= BURNT_S * 0.9) == counts, spent


def rounds(*totals: float) -> list[dict[str, float]]:
    """Rounds in which a transfer took so much, half of it in Python."""
    return [{"JVM": 0.3 * us, "Python around our stages": 0.5 * us, "broker": 0.2 * us}
            for us in totals]  # fmt: skip


def test_a_machine_that_gets_slower_meets_both_of_a_pair() -> None:
    """The medians of each would say 4 to 2; no pair does."""
    found = ratios_of([1.5, 4.0, 9.6], [1.0, 2.0, 8.0])
    assert found == {"ratio": 1.5, "ratios": pytest.approx([1.2, 1.5, 2.0])}


def test_each_side_has_a_turn_in_each_round_in_changing_order() -> None:
    assert [*by_turns("ab", 3)] == [(0, "b"), (0, "a"), (1, "a"), (1, "b"), (2, "b"), (2, "a")]


def test_our_stages_are_taken_off_the_median_of_python() -> None:
    usual = around_us(rounds(10.0, 30.0, 20.0), 4.0)
    assert usual == pytest.approx(dict(zip(AROUND, (6.0, 6.0, 4.0), strict=True)))
    assert around_us(rounds(1.0), 4.0)["Python around our stages"] == 0


def test_how_far_pairs_lie_apart_is_shown_if_there_are_some() -> None:
    assert spread({"ratios": [1.2, 1.5, 2.04]}) == " (median of 3 pairs, 1.20 to 2.04)"
    assert spread({"ratio": 1.7}) == ""

"""The time of a step of a stored procedure, at worst, for each entry of the language's tables.

    python -m bench.steps [PART OF A NAME] [--earlier]

A step has to do a bounded amount of work, whatever the operands are. `--earlier` measures the
charges of releases before `streamydb.records.begins.WORK_CHARGED`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from textwrap import indent
from typing import NamedTuple

from bench.step_cases import CASES, Case
from streamydb.limits import PROCEDURE_STEPS_MAX
from streamydb.procedures.core import Called, run
from streamydb.procedures.modules import Module, compile_module
from streamydb.procedures.view import Declared, Stamp
from streamydb.records import Update, canonical
from streamydb.records.ranges import Bounds, Range
from streamydb.records.updates import apply_update

__all__ = ["Measured", "called", "main", "measured", "module_of"]

_HEAD = """\
import math
from streamydb.procedures import Workflow, procedure

flow = Workflow(
    emits={"f": ["s"]},
    windows={"w": {"owner": "f", "size": 500, "slide": 100}},
    nested={"f": ["inner"]},
)

def inner(db, x):
    return None

def f(db, n):
"""
_STEPS = 60_000
_REPEATED_MAX = 400
_SECONDS = 0.5
_RUNS = 3


class _Host(Declared):
    """A state in memory, with 2,000 keys of one range."""

    def __init__(self) -> None:
        keys = ["a", "b", "$flows/m", "$windows/m.w"]
        super().__init__(keys, [], [Range(prefix="r/")])
        self._entries = [(f"r/{i:04}", b"1") for i in range(2_000)]

    def look(self, _key: str) -> tuple[bytes | None, int]:
        return None, 0

    def entries(self, _declared: Bounds) -> Sequence[tuple[str, bytes]]:
        return self._entries

    def apply(self, update: Update, before: bytes | None) -> bytes | None:
        return apply_update(update, before, 0)


class Measured(NamedTuple):
    """A row: its steps for one repetition, and nanoseconds of processor time of one step."""

    case: Case
    steps: float
    step_ns: float


def module_of(case: Case) -> Module:
    """A module whose procedure ``f`` repeats the operation of a row ``n`` times."""
    setup, operation = indent(case.setup.strip() or "pass", "    "), indent(case.operation, " " * 8)
    text = f"{_HEAD}{setup}\n    for _ in range(n):\n{operation}\n"
    return compile_module("m", text.encode())


def called(module: Module, times: int) -> Called:
    """Call it with so many repetitions."""
    return run(module, "f", canonical({"n": times}), _Host(), Stamp(1, 1, "t"))


def measured(case: Case) -> Measured:
    """Measure a row: the best of some runs, without what is prepared."""
    module = module_of(case)
    nothing, once = (called(module, times) for times in (0, 1))
    each = once.steps - nothing.steps
    left = min(_STEPS, PROCEDURE_STEPS_MAX - nothing.steps)
    times = min(left // max(each, 1), _REPEATED_MAX, int(_SECONDS / _seconds(module, 1)))
    times = max(times, 1)
    steps = called(module, times).steps - nothing.steps
    prepared, all_of_it = (
        min(_seconds(module, repeated) for _ in range(_RUNS)) for repeated in (0, times)
    )
    return Measured(case, steps / times, (all_of_it - prepared) * 1e9 / max(steps, 1))


def _seconds(module: Module, times: int) -> float:
    begin = time.process_time()
    called(module, times)
    return time.process_time() - begin


def main() -> None:
    """Print the rows, the worst first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", default="", help="a part of the names of entries")
    given = parser.parse_args()
    rows = [measured(case) for case in CASES if given.name in case.entry]
    print(f"{'ns a step':>9} {'steps':>9}  entry")
    for row in sorted(rows, key=lambda row: -row.step_ns):
        told = row.case.operation.replace("\n", " ; ")
        print(f"{row.step_ns:9.0f} {row.steps:9.0f}  {row.case.entry:<24} {told[:60]}")


if __name__ == "__main__":
    main()

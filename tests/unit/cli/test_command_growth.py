"""What a command costs grows as the log, the files and the lines that it is given: n, 2n and 4n.

Work is calls, executed lines, and the most bytes held at once. Every command is here, those of the
programs too: as a case of `tests.support.command_cases`, or with the reason why nothing of its
input grows. A new one fails the test until somebody says what is to be large.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import pytest

from streamydb.testing.in_process import scenario
from tests.support.command_cases import CASES, Task
from tests.support.commands import command_names
from tests.support.seeds import thinned
from tests.support.work import Counter, Work, grows_faster

SMALL: Final = 40
BYTES_FLOOR: Final = 12_000
"""Of each step: what buffers and tables of the interpreter may take, whatever n is."""

Kind: TypeAlias = Literal["constant", "service", "processes", "spark", "asked"]


class Reason(NamedTuple):
    """The kind of reason why nothing of a command's input grows, and the reason in a sentence."""

    kind: Kind
    why: str


KINDS: Final[dict[Kind, str]] = {
    "constant": "its output is of the installed program, or of one fixed list",
    "service": "it runs until it is stopped; what its work costs is tested for its parts",
    "processes": "it starts, stops or describes a fixed list of processes and topics",
    "spark": "Spark reads and sorts the data, on executors and disks",
    "asked": "an option says how much is done, and it measures that",
}
"""The kinds of reasons that are allowed."""

_BENCH: Final = "Its options say how many transactions or seconds are measured."

FIXED: Final[dict[str, Reason]] = {
    "limits": Reason("constant", "It prints the limits, which are a fixed list."),
    "version": Reason("constant", "It prints the versions of a fixed list of packages."),
    "acls": Reason("constant", "It prints the operations of one role, which are a fixed list."),
    "up": Reason("processes", "It starts broker, pipeline and facade, and runs one transaction."),
    "down": Reason("processes", "It stops the processes that this home has started."),
    "create": Reason("processes", "It makes the topics of one database, which are a fixed list."),
    "broker": Reason("processes", "It starts one broker and waits for it."),
    "doctor": Reason("processes", "It looks at the topics of one database and at this machine."),
    "pipeline": Reason("service", "A batch costs what is in it: tests/unit and bench/step_cases."),
    "sequencer": Reason("service", "A turn appends one marker to each partition."),
    "serve": Reason("service", "A request costs what it names: tests/unit/facade/test_growth.py."),
    "read-model": Reason("service", "A batch costs what is in it: tests/unit/read_model."),
    "connect": Reason("service", "A batch of changes is copied once: tests/unit/kafka."),
    "snapshot": Reason("spark", "Spark reads the changes, sorts them and writes the files."),
    "sim": Reason("asked", "It runs as many seeds as --seeds says."),
    "demo bank": Reason("asked", "It moves money as often as its options say."),
    "histories run": Reason("asked", "Clients run for as long as --seconds says."),
    **{
        f"bench {name}": Reason("asked", _BENCH)
        for name in (
            "tspoon", "voter", "ycsb", "sss", "tpcc", "literature", "bank", "latency", "floor",
            "recovery", "scale", "shifting", "sql", "soak", "serving", "rest", "memory",
        )
    },
}  # fmt: skip


def test_every_command_is_here_once_with_a_case_or_a_reason() -> None:
    assert not FIXED.keys() & CASES.keys()
    assert command_names() == FIXED.keys() | CASES.keys()
    for name, reason in FIXED.items():
        assert reason.kind in KINDS, name
        assert reason.why.endswith("."), name
        assert len(reason.why.split()) >= 5, name
    assert {reason.kind for reason in FIXED.values()} == KINDS.keys(), "no kind without a command"


async def _measured(tasks: list[Task]) -> tuple[list[int], list[Work]]:
    """What tasks have done, and what they cost."""
    done: list[int] = []
    costs: list[Work] = []
    counter = Counter(lines=True)
    try:
        for task in tasks:
            done.append(task())  # what is made once has been made

            async def again(task: Task = task) -> None:
                task()

            costs.append(await counter.worked(again))
    finally:
        counter.close()
    return done, costs


@pytest.mark.parametrize(
    ("command", "case"),
    thinned(((command, case) for command in CASES for case in CASES[command]), 4),
)
@scenario
async def test_costs_grow_as_the_input(
    command: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    costs: list[Work] = []
    sizes = (SMALL, 2 * SMALL, 4 * SMALL)
    for size in sizes:
        home = tmp_path / str(size)
        home.mkdir()
        with monkeypatch.context() as patch:
            [found], [cost] = await _measured([CASES[command][case](size, home, patch)])
        done.append(found)
        costs.append(cost)
    for size, found, cost in zip(sizes, done, costs, strict=True):
        assert found >= size, (done, "so many things were dealt with")
        assert cost.calls > size, costs
    assert not grows_faster(costs, bytes_floor=BYTES_FLOOR), costs


def _hold(size: int) -> Task:
    def task() -> int:
        return len([[None] * size for _ in range(size)])

    return task


def _compare(size: int) -> Task:
    def task() -> int:
        found = 0
        for number in range(size):
            for other in range(size):
                found += number == other
        return found

    return task


def _sort(size: int) -> Task:
    def task() -> int:
        rows = [(n * 7919 % size, bytes(400)) for n in range(size)]
        return len(sorted(rows, key=lambda row: row[0]))

    return task


@pytest.mark.parametrize(("made", "kind"), [(_hold, "bytes"), (_compare, "calls"), (_sort, "")])
@scenario
async def test_what_grows_as_a_square_is_noticed(made: Callable[[int], Task], kind: str) -> None:
    """Held bytes, and a loop that calls nothing; what is sorted passes."""
    _, costs = await _measured([made(size) for size in (SMALL, 2 * SMALL, 4 * SMALL)])
    told = grows_faster(costs, bytes_floor=BYTES_FLOOR)
    assert told.partition(":")[0] == kind, costs

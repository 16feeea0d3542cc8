"""What the invariants between the rooms cost: the time in checks beside that of a transfer.

    python -m bench.checks

The pure classes execute transfers over 100,000 accounts, without Kafka and Spark. First every check
is timed, in processor time, less what the clock itself takes. Then batches with and without checks
take turns. The share is of all of parsing, the shards' steps, execution and formatting; a pipeline
takes several times as long, so it is less there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import isfunction
from types import ModuleType
from typing import Any, Final
from unittest import mock

import numpy as np

from bench.in_memory import InMemory
from bench.workload import BALANCE, Bank, funding
from streamydb.key_processor import checks as key_checks
from streamydb.pipeline.warmup import warm_up
from streamydb.planner import checks as planner_checks
from streamydb.sorter import checks as sorter_checks
from streamydb.txn_processor import checks as txn_checks

ACCOUNTS: Final = 100_000
CASES: Final = ((1, 100_000, 12), (1, 75, 400), (2, 100_000, 12), (2, 75, 400))
"""Shards, transfers a batch, batches."""

_ROOMS: Final = (sorter_checks, planner_checks, key_checks, txn_checks)
_CALLED: Final = {(txn_checks, "fed"): "require_chunk"}


class Clock:
    """Adds up the time that is spent in checks."""

    def __init__(self) -> None:
        """Nothing was spent yet."""
        self.seconds: dict[str, float] = {}
        self._own = min(_empty() for _ in range(1000))

    def timed(self, name: str, check: Callable[..., Any]) -> Callable[..., Any]:
        """A check whose time is added up."""

        def run(*args: Any, **named: Any) -> Any:
            begun = time.thread_time()
            found = check(*args, **named)
            spent = time.thread_time() - begun - self._own
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            return found

        return run


def _empty() -> float:
    begun = time.thread_time()
    return time.thread_time() - begun


def _checks(room: ModuleType) -> list[str]:
    """Return the names of the checks of a room: its public functions."""
    return [
        name
        for name, each in vars(room).items()
        if isfunction(each) and each.__module__ == room.__name__ and not name.startswith("_")
    ]


@contextmanager
def _replaced(make: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Run the body with other checks, made of the name and the check."""
    with ExitStack() as stack:
        for room in _ROOMS:
            for name in _checks(room):
                # one is a generator: what it calls is replaced instead
                called = _CALLED.get((room, name), name)
                check, shown = getattr(room, called), f"{room.__name__.split('.')[1]}.{name}"
                if not name.startswith("require"):
                    stack.enter_context(mock.patch.object(room, called, make(shown, check)))
        yield


def _nothing(name: str, _: Callable[..., Any]) -> Callable[..., Any]:
    """A check that does not look, and hands on what there is."""
    return (lambda _, plan, *__: plan) if name == "sorter.planned" else lambda *_, **__: None


def _seconds(database: InMemory, count: int) -> float:
    """Execute a batch of transfers; its processor time."""
    payloads = Bank(ACCOUNTS, seed=database.offset).payloads(database.offset, count)
    return sum(map(sum, database.run(payloads).values()))


def _shares(bench: InMemory, count: int, batches: int) -> None:
    """Print what each check takes."""
    clock = Clock()
    with _replaced(clock.timed):
        seconds = sum(_seconds(bench, count) for _ in range(batches))
    total, own = batches * count, sum(clock.seconds.values())
    spent = sorted(clock.seconds.items(), key=lambda each: -each[1])
    print(f"  {'a transfer':<28} {seconds / total * 1e9:>9.0f} ns")
    for name, part in [("all checks", own), *spent]:
        print(f"  {name:<28} {part / total * 1e9:>9.1f} ns {part / seconds:>7.2%}")


def _pairs(bench: InMemory, count: int, batches: int) -> None:
    """Print what a batch takes with and without checks, in turns."""
    given, bare = [], []
    for _ in range(batches):
        given.append(_seconds(bench, count))
        with _replaced(_nothing):
            bare.append(_seconds(bench, count))
    more = np.median(np.array(given) - np.array(bare))
    one, other = np.median(given) / count * 1e9, np.median(bare) / count * 1e9
    print(f"  in turns: {one:.0f} ns with, {other:.0f} without, {more / np.median(bare):+.2%}")


def main() -> None:
    """Print the shares."""
    warm_up()
    for shards, count, batches in CASES:
        bench = InMemory(shards)
        bench.run(list(funding(0, ACCOUNTS, b"%d" % BALANCE)))
        for _ in range(3):
            _seconds(bench, count)
        print(f"{shards} shards, {count} transfers a batch")
        _shares(bench, count, batches)
        _pairs(bench, count, batches)


if __name__ == "__main__":
    main()

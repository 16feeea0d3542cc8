"""Bulk with two gears and with one, by turns: the shift before a turn is told apart."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from bench import gears as by_turns
from bench.bank import BankOptions
from bench.errors import BenchError
from bench.gears import beside_one_gear, show
from bench.sections import gears_lines
from bench.throughput import Rate
from streamydb.cli.phases import Phases

OPTIONS = BankOptions(gears=True, repetitions=3, distributions=("zipf", "uniform"))


class Machine:
    """Gets slower with each round of turns; both gears give nine tenths, and half after a shift."""

    def __init__(self) -> None:
        self.turns: list[bool] = []

    @contextmanager
    def running(self, options: BankOptions, _: Phases) -> Iterator[Run]:
        run = Run(self, options.gears)
        yield run
        assert run.done == ["loaded", "warm", "stopped", "answered", "added up"]


class Run:
    """A pipeline on it."""

    def __init__(self, machine: Machine, gears: bool) -> None:  # noqa: FBT001 - see BankOptions
        self.machine, self.gears, self.done = machine, gears, list[str]()

    def load_accounts(self, _: int) -> None:
        self.done.append("loaded")

    def warm_up(self, _: Any) -> None:
        self.done.append("warm")

    def throughput(self, workloads: Mapping[str, Any]) -> dict[str, list[Rate]]:
        (name,) = workloads
        assert name == f"zipf, {'both' if self.gears else 'micro-batch'}"
        usual = 100 / 2 ** (len(self.machine.turns) // 2)
        self.machine.turns.append(self.gears)
        shares = [0.5, 0.8, 1.0] if self.gears else [1.0, 1.0, 1.0]
        return {name: [Rate(1_000, 1_000 / (share * usual)) for share in shares]}

    def memory_mb(self) -> dict[str, float]:
        turn = len(self.machine.turns) // 2  # a turn of both has begun or ended
        return {"pipeline": (1300.4 if self.gears else 1000.4) + turn, "brokers": 9.0}

    def stop(self) -> None:
        self.done.append("stopped")

    def answered(self) -> dict[str, Any]:
        self.done.append("answered")
        return {"results": 1}

    def balances(self) -> dict[str, Any]:
        self.done.append("added up")
        return {"accounts": 1}


def test_both_take_turns_and_the_first_backlog_of_a_turn_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    monkeypatch.setattr(by_turns, "running", machine.running)
    answer = beside_one_gear(OPTIONS, 3, Phases())
    assert machine.turns == [False, True, True, False, False, True]
    assert answer["ratios"] == pytest.approx([0.9] * 3)
    assert (answer["ratio"], answer["first_ratio"]) == (0.9, 0.5)
    both, one = answer["rows"]
    assert both["turns_txn_per_s"] == [90, 45, 22]
    assert (both["txn_per_s"], both["first_txn_per_s"]) == (45.0, 25.0)
    assert (one["txn_per_s"], one["first_txn_per_s"]) == (50.0, 50.0)
    assert (both["turns_memory_mb"], both["memory_mb"]) == ([1301, 1301, 1303], 1301)
    assert one["memory_mb"] == 1002
    assert both["proof"] == one["proof"] == {"results": 1, "accounts": 1}
    out = io.StringIO()
    show(answer, Console(file=out, width=200))
    said = "Both gears give 0.90 of the bulk of one (median of 3 turns, 0.90 to 0.90); 0.50 in the"
    assert said in out.getvalue()
    told, _, *rows = gears_lines(answer)
    assert "0.90 of the bulk of one" in told
    assert rows[2:] == ["| both | 45 | 25 | 1,301 |", "| micro-batch | 50 | 50 | 1,002 |"]


@pytest.mark.parametrize(("gears", "repetitions"), [(False, 3), (True, 1)])
def test_what_cannot_be_compared_is_refused(*, gears: bool, repetitions: int) -> None:
    options = BankOptions(gears=gears, repetitions=repetitions)
    with pytest.raises(BenchError, match="needs --gear both, and two repetitions"):
        beside_one_gear(options, 2, Phases())

"""Latency of two pipelines by turns: only turns of one minute are compared."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bench import beside as by_turns
from bench.beside import BesideOptions, beside, show
from bench.errors import BenchError
from streamydb.cli.phases import Phases
from streamydb.limits import max_offsets

SLOWER = 1.5


class Machine:
    """Gets slower with each pair of turns; more shards take longer."""

    def __init__(self) -> None:
        self.turns: list[tuple[int, float]] = []

    @contextmanager
    def running(self, options: BesideOptions, _: Phases) -> Iterator[Run]:
        assert options.max_offsets == max_offsets(options.shards)
        yield Run(self, options.shards)


class Run:
    """A pipeline on it."""

    def __init__(self, machine: Machine, shards: int) -> None:
        self.machine, self.shards, self.loaded = machine, shards, 0

    def load_accounts(self, accounts: int) -> None:
        self.loaded = accounts

    def latencies(self, *asked: Any) -> Any:
        assert self.loaded
        machine, seconds = self.machine, asked[3]
        each = 100 * 2 ** (len(machine.turns) // 2) * (SLOWER if self.shards > 1 else 1)
        machine.turns.append((self.shards, seconds))
        return np.array([0.9, 1.0, 1.1]) * each / 1000


def test_both_take_turns_in_changing_order_and_pairs_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    monkeypatch.setattr(by_turns, "running", machine.running)
    options = BesideOptions(shards=2, beside=1, turns=4, latency_s=60.0, warm_up_s=30.0)
    answer = beside(options, Phases())
    assert machine.turns[:2] == [(2, 30.0), (1, 30.0)]
    assert [shards for shards, _ in machine.turns[2:]] == [1, 2, 2, 1, 1, 2, 2, 1]
    assert {seconds for _, seconds in machine.turns[2:]} == {15.0}
    assert answer["ratios"] == pytest.approx([SLOWER] * 4)
    assert answer["ratio"] == SLOWER
    first, second = answer["rows"]
    assert (first["shards"], second["shards"]) == (2, 1)
    assert second["turns_p50_ms"] == [200.0, 400.0, 800.0, 1600.0]
    assert first["latency_ms"]["count"] == 12
    out = io.StringIO()
    show(answer, Console(file=out, width=200))
    assert "p50 with 2 shards is 1.50 times that with 1 (median of 4 turns, 1.50" in out.getvalue()


def test_the_same_number_twice_is_refused() -> None:
    with pytest.raises(BenchError, match="another number of shards"):
        beside(BesideOptions(shards=1, beside=1), Phases())

"""TPC-C's terminals by a clock of their own: keying and think times, and what they measure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest

from bench.errors import BenchError
from bench.literature import tpcc
from bench.literature.terminals import KEYING_S, THINK_S, TPMC_MOST, Span, Terminals, Turn
from bench.literature.tpcc_inputs import FULL_MIX, Inputs
from tests.support.literature import Serial

SCALE = tpcc.TpccOptions(warehouses=3, items=100, customers=30, seed=3)


def played(warehouses: int, seconds: float, takes_s: float) -> tuple[Terminals, list[float]]:
    """Terminals of which each answer takes so long, by a clock that jumps to what is next."""
    terminals, times, number = Terminals(warehouses, 1, 0.0), [], 0
    answers: list[tuple[float, int]] = []
    while min(terminals.next_s, *(at for at, _ in answers[:1]), seconds) < seconds:
        if answers and answers[0][0] <= terminals.next_s:
            at, answered = answers.pop(0)
            terminals.answer(answered, at)
            continue
        for turn in terminals.due(terminals.next_s):
            terminals.waiting[number] = turn
            times.append(turn.due_s)
            answers.append((turn.due_s + takes_s, number))
            number += 1
    return terminals, times


def test_quick_answers_give_the_rate_that_the_specification_allows() -> None:
    terminals, _ = played(20, 3_600.0, 0.0)
    found = terminals.facts(Span(600.0, 3_600.0))
    assert 0.97 < found["efficiency"] < 1.03
    assert found["tpmC"] == pytest.approx(found["efficiency"] * 20 * TPMC_MOST, rel=0.001)
    slow, _ = played(20, 3_600.0, 21.0)
    assert 0.45 < slow.facts(Span(600.0, 3_600.0))["efficiency"] < 0.55


def test_a_terminal_keys_in_and_thinks_between_two_transactions() -> None:
    terminals, times = played(2, 4_000.0, 0.25)
    assert times == sorted(times)
    turns: dict[int, list[tuple[Turn, float]]] = defaultdict(list)
    for turn, answered_s in terminals.answered:
        turns[turn.terminal].append((turn, answered_s))
    thought: dict[str, list[float]] = {name: [] for name in FULL_MIX}
    for own in turns.values():
        for (before, answered_s), (after, _) in pairwise(own):
            pause = after.due_s - answered_s - KEYING_S[after.kind]
            assert 0 <= pause <= 10 * THINK_S[before.kind] + 1e-9
            thought[before.kind].append(pause)
    for name in ("new_order", "payment"):
        assert sum(thought[name]) / len(thought[name]) == pytest.approx(THINK_S[name], rel=0.15)
    kinds = Counter(turn.kind for turn, _ in terminals.answered)
    assert abs(kinds["new_order"] / kinds.total() - 0.45) < 0.04
    assert {turn.place for turn, _ in terminals.answered} == {
        (w, d) for w in (1, 2) for d in range(1, 11)
    }


def test_an_answer_is_measured_from_when_it_was_due_and_whole_in_the_span() -> None:
    terminals = Terminals(1, 1, 0.0)
    for kind in FULL_MIX:
        terminals.answered += [(Turn(due, 0, kind), due + 0.5) for due in (9.0, 10.0, 69.5, 69.6)]
    found = terminals.facts(Span(10.0, 70.0))
    assert found["latency_ms"]["new_order"] == {
        "count": 2, "p50": 500.0, "p90": 500.0, "p99": 500.0, "max": 500.0,
    }  # fmt: skip
    assert (found["tpmC"], found["terminals"]) == (2.0, 10)
    with pytest.raises(BenchError, match="longer"):
        terminals.facts(Span(100.0, 110.0))


def test_an_answer_to_nobody_is_left_out() -> None:
    terminals = Terminals(1, 1, 0.0)
    terminals.answer(5, 1.0)
    assert terminals.answered == []


def test_what_terminals_send_keeps_all_conditions() -> None:
    """Every transaction is of its terminal's warehouse, and knows its keys."""
    serial, population = Serial("tpcc"), SCALE.population()
    serial.run(population.transactions(serial.appended))
    inputs, (terminals, _) = Inputs(population, SCALE.seed), played(3, 300.0, 0.1)
    for turn, _ in sorted(terminals.answered):
        raw = inputs.of(turn.kind, serial.appended, turn.place)
        args = json.loads(raw)["call"]["args"]
        assert args["w"] == turn.place[0]
        assert turn.kind != "stock_level" or args["d"] == turn.place[1]
        serial.run([raw])
    judge = tpcc.TpccJudge(SCALE.scale())
    assert all(each.ok for each in serial.judged(judge))
    assert judge.stale == 0
    assert judge.committed.total() + judge.rolled_back == len(terminals.answered)


def test_the_table_has_a_row_of_the_terminals() -> None:
    late = {"p50": 100.4, "p90": 150.0, "p99": 1_250.0}
    answer: dict[str, Any] = {
        "benchmark": "tpcc", "invariants": [{}, {}], "invariants_ok": True, "cases": {},
        "abort_rate": 0.004, "latency_ms": None,
        "parameters": {"items": 1_000, "customers": 30, "scaled_down": True},
        "terminals": {
            "terminals": 4_000, "warehouses": 400, "tpmC": 5_100.2, "efficiency": 0.9915,
            "latency_ms": {"new_order": late},
        },
    }  # fmt: skip
    table = import_module("bench.table")
    case = "4,000 terminals, 400 warehouses of 1,000 items, 30 customers a district"
    times = "new-orders 100 / 150 / 1,250 ms (p50 / p90 / p99)"
    rate = "5,100 tpmC, efficiency 99.2%"
    found = table.literature_lines(answer)
    assert found == [f"| tpcc | {case} | {rate} | 0.4% | {times} | 2 hold |"]

"""The steps of procedures follow their work: for each entry of the language's tables.

The rows are those of `bench.steps`, which measures them; here their work is that of a model.
"""

from __future__ import annotations

import ast
from typing import Any

import pytest

from bench.step_cases import CASES, PLAIN, Case
from bench.steps import called, module_of
from streamydb.procedures.builtins import FUNCTIONS
from streamydb.procedures.checker import _ALLOWED, _REASONS
from streamydb.procedures.meter import steps_of_find, steps_of_search
from streamydb.procedures.methods import METHODS
from streamydb.procedures.namespaces import MATH
from tests.support.procedures import evaluate, returned

WORK_PER_STEP = 2_048
"""Nanoseconds of the model that one step may do, at most."""

_GROUPS = (ast.boolop, ast.operator, ast.unaryop, ast.cmpop)


def entries() -> set[str]:
    """Return the names of all methods, functions, operators, expressions and statements."""
    allowed = [kind for kind in _ALLOWED if kind not in _REASONS]
    operators = {each for kind in allowed if kind in _GROUPS for each in kind.__subclasses__()}
    nodes = {kind for kind in allowed if issubclass(kind, ast.expr | ast.stmt)}
    return {
        *(f"{kind.__name__}.{name}" for kind, table in METHODS.items() for name in table),
        *FUNCTIONS,
        *(f"math.{name}" for name in MATH.names() if callable(MATH.value(name))),
        *(kind.__name__ for kind in operators - set(_REASONS) | nodes),
    }


def steps_of(case: Case) -> int:
    """Return the steps of one repetition."""
    module = module_of(case)
    without, once = (called(module, times) for times in (0, 1))
    assert (without.code, once.code) == (None, None), (once.reason, case)
    return once.steps - without.steps


def test_each_entry_of_the_language_states_its_work() -> None:
    """A method, function or operator that is added has no row yet, and fails here."""
    told = {case.entry for case in CASES}
    assert entries() - told - PLAIN == set()
    assert told | PLAIN == entries()
    assert not told & PLAIN


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.entry}-{case.operation[:30]!r}")
def test_the_steps_follow_the_work(case: Case) -> None:
    assert steps_of(case) * WORK_PER_STEP >= case.work


@pytest.mark.fault(
    52, "steps of procedures whose work grows with what they are given",
    "the budget of steps is charged for it",
)  # fmt: skip
@pytest.mark.parametrize(
    ("body", "growth"),
    [
        ("return 'y'.startswith(('a' * 900,) * n)", 1),
        ("return isinstance(1, (int,) * n)", 1),
        ("d = {k * (2 ** 61 - 1): 0 for k in range(n)}\nreturn len(d)", 2),
        ("d = {(k * (2 ** 61 - 1), 0): 0 for k in range(n)}\nreturn len(d)", 2),
        ("s = set([k * (2 ** 61 - 1) for k in range(n)])\nreturn len(s)", 2),
    ],
)
def test_the_steps_grow_as_the_work_does(body: str, growth: int) -> None:
    few, many = (evaluate(body, n=n).steps for n in (400, 1_600))
    assert many >= few * 4**growth * 0.6


@pytest.mark.parametrize(
    ("size", "key", "steps"),
    [
        (10_000, "a", 0), (10_000, 7, 19), (10_000, 0.5, 19), (10_000, None, 19),
        (10_000, True, 19), (10_000, False, 19),
        (10_000, 2**64, 156), (10_000, -(2**64), 156), (10_000, 2**64 - 1, 19),
        (10_000, ("a", 1), 0), (10_000, (1, "a"), 0), (10_000, ("a", "b"), 0),
        (10_000, (1,), 390), (10_000, (1, 2), 468), (10_000, ("", 1), 468),
        (10_000, ("a", 1, 2), 546), (10_000, ("a", 2**64), 468), (10_000, ("a", (1,)), 781),
        (10_000, (), 312),
    ],
)  # fmt: skip
def test_a_key_costs_by_what_lies_beside_it_unless_its_hash_is_a_secret(
    size: int, key: Any, steps: int
) -> None:
    assert steps_of_search(size, key) == steps


@pytest.mark.parametrize(
    ("text", "part", "backwards", "steps"),
    [
        (2_499, 1_200, False, 761), (2_500, 1_200, False, 0), (29_999, 99, False, 1_445),
        (30_000, 99, False, 0), (200_000, 4, False, 0), (200_000, 5, False, 488),
        (200_000, 64, True, 6_248), (10, 11, True, 0),
    ],
)  # fmt: skip
def test_a_search_costs_by_both_lengths_where_each_place_is_compared(
    text: int, part: int, steps: int, *, backwards: bool
) -> None:
    assert steps_of_find(text, part, backwards=backwards) == steps


def test_targets_of_all_kinds_store_once() -> None:
    """The owner of an item is named while its key is looked at."""
    called = evaluate(
        """
        log = []

        def seen(value):
            log.append(str(value))
            return value

        d, x = {"e": {}}, [[0, 0], [0]]
        seen(d)["e"][seen(300)] = seen(7)
        seen(d)["e"][seen(300)] += seen(1)
        seen(x)[0][seen(1)] *= 5
        d["e"][seen(1)], x[seen(1)][0] = 2, 3
        for d["e"][seen(9)] in [4, 5]:
            pass
        del seen(d)["e"][seen(1)]
        y = [x[0][1] for x[0][1] in [6, 7]]
        return [log, [list(pair) for pair in d["e"].items()], x, y]
        """
    )
    log, items, x, y = returned(called)
    assert items == [[300, 8], [9, 5]]
    assert (x, y) == ([[0, 7], [3]], [6, 7])
    assert log[:3] == ["7", "{'e': {}}", "300"]
    assert log[-3:] == ["9", "{'e': {300: 8, 1: 2, 9: 5}}", "1"]

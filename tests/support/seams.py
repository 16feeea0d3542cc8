"""What passes the seams between rooms while the simulator runs: taken, damaged, checked again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from inspect import isfunction
from types import GeneratorType, ModuleType
from typing import Any
from unittest import mock

import pytest

from simulator import run_seed
from streamydb.errors import InvariantViolation
from streamydb.key_processor import checks as key_checks
from streamydb.key_processor.locking import checks as locking_checks
from streamydb.parser import checks as parser_checks
from streamydb.planner import checks as planner_checks
from streamydb.sorter import checks as sorter_checks
from streamydb.txn_processor import checks as txn_checks
from streamydb.txn_processor.gathering import checks as gathering_checks

__all__ = ["Damage", "must_fire"]

Damage = Callable[..., object]
Call = tuple[tuple[Any, ...], dict[str, Any]]

_ROOMS = (
    parser_checks,
    sorter_checks,
    planner_checks,
    key_checks,
    txn_checks,
    locking_checks,
    gathering_checks,
)
_SEEDS = {"planner": (2, 4, 6, 18), "single": (1, 3, 5, 7, 9)}
_KEPT = 200


def _checks(room: ModuleType) -> list[str]:
    """Return the names of the checks of a room: its public functions."""
    return [
        name
        for name, each in vars(room).items()
        if isfunction(each) and each.__module__ == room.__name__ and not name.startswith("_")
    ]


@contextmanager
def _watched(room: ModuleType, calls: dict[str, list[Call]]) -> Iterator[None]:
    """Run the body, and keep what every check of a room is given."""
    with ExitStack() as stack:
        for name in _checks(room):
            check = getattr(room, name)
            kept = calls.setdefault(f"{room.__name__}.{name}", [])

            def watch(*args: Any, check: Any = check, kept: list[Call] = kept, **named: Any) -> Any:
                given = tuple([*a] if isinstance(a, GeneratorType) else a for a in args)
                if len(kept) < _KEPT:
                    kept.append((copy.deepcopy(given), dict(named)))
                return check(*given, **named)

            stack.enter_context(mock.patch.object(room, name, watch))
        yield


@cache
def _calls_of(seed: int, grouping: str) -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    with ExitStack() as stack:
        for room in _ROOMS:
            stack.enter_context(_watched(room, calls))
        assert not run_seed(seed, 150, grouping=grouping).problems
    return calls


def _calls(check: str, grouping: str) -> Iterator[Call]:
    """Yield what a check was given; a seed runs when all calls of the seeds before are used up."""
    for seed in _SEEDS[grouping]:
        yield from _calls_of(seed, grouping)[check]


def must_fire(
    check: Callable[..., Any], damage: Damage, fact: str, grouping: str = "planner"
) -> None:
    """Require that a check passes what the simulator gave it, and stops when that is damaged.

    ``damage`` changes the arguments in place; an IndexError says that these do not suit it.
    """
    for args, named in _calls(f"{check.__module__}.{check.__name__}", grouping):
        _run(check, copy.deepcopy(args), named)
        given = copy.deepcopy(args)
        try:
            changed = damage(*given)
        except IndexError:
            continue
        given = changed if isinstance(changed, tuple) else given
        with pytest.raises(InvariantViolation, match=fact):
            _run(check, given, named)
        return
    pytest.fail("nothing that passed there suits this damage")


def _run(check: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> None:
    found = check(*args, **named)
    if isinstance(found, GeneratorType):
        list(found)

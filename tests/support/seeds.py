"""How many seeds or examples a test draws: a few in `make test`, more where more are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

__all__ = ["ASKED_FOR", "seeds", "thinned"]

_SHORT, _BASE = 12, 120
ASKED_FOR = int(os.environ.get("STREAMYDB_SIM_SEEDS", _SHORT))
"""Seeds of one pipeline. `make proof` and `make test-random` ask for 400.

`make sim-long` runs seeds of its own.
"""


def seeds(count: int, short: int | None = None) -> int:
    """``short``, or else ``count``, in `make test`; more if more are asked for, in proportion."""
    if ASKED_FOR <= _SHORT and short is not None:
        return short
    return max(count, count * ASKED_FOR // _BASE)


def thinned(cases: Iterable[Any], by: int) -> list[ParameterSet]:
    """Cases for `parametrize` of which one in ``by`` is part of `make test`; the others are long.

    For cases of which each is one more proof of the same: mutations that a test must catch, or
    clocks and shifts that one piece of code must not depend on.

    Args:
        cases: values of one parameter, or tuples of several.
        by: the first is kept, and each that is a multiple of so many after it.
    """
    return [
        pytest.param(
            *(case if type(case) is tuple else (case,)),  # not of a class of its own
            marks=[pytest.mark.long] if number % by else [],
        )
        for number, case in enumerate(cases)
    ]

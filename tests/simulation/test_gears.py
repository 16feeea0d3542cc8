"""Two gears over one log, over many seeds, and proof that a broken real-time gear is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from simulator import run_seed
from simulator.gear_mutations import GEAR_MUTATIONS
from simulator.gears import EVENTS
from tests.support.seeds import seeds, thinned

_SEEDS_MAX, _RECORDS = 80, 100
_FAULTS = 0.03


@pytest.mark.fault(
    47, "simulator: the real-time gear is lost between any two outputs, with its base deleted, "
    "behind, or of an earlier time", "equal to the oracle",
)  # fmt: skip
@pytest.mark.fault(
    48, "simulator: hand-overs that are lost, late or doubled; both gears lead, or none",
    "equal to the oracle",
)  # fmt: skip
@pytest.mark.parametrize("chunk", range(4))
def test_two_gears_write_what_one_pipeline_writes(
    chunk: int, injected: Callable[..., None]
) -> None:
    size = seeds(4, 1)
    first = 1 + chunk * size
    injected(size)
    outcomes = [
        run_seed(seed, gears=True, faults=_FAULTS if seed % 3 == 0 else 0.0)
        for seed in range(first, first + size)
    ]
    failed = [(o.seed, o.config, o.problems[0]) for o in outcomes if o.problems]
    assert not failed, f"streamydb sim --gears --seeds 1 --first {failed[0][0]}: {failed}"


def test_everything_that_can_happen_to_two_gears_happens() -> None:
    seen: Counter[str] = Counter()
    for seed in _HAPPENS:
        outcome = run_seed(seed, gears=True, faults=_FAULTS if seed % 3 == 0 else 0.0)
        assert outcome.problems == []
        seen += outcome.events
    assert set(seen) == set(EVENTS)


def test_a_seed_with_two_gears_always_does_the_same() -> None:
    assert run_seed(7, 100, gears=True) == run_seed(7, 100, gears=True)


@pytest.mark.no_proof
@pytest.mark.parametrize("name", thinned(GEAR_MUTATIONS, 8))
def test_a_broken_gear_is_noticed(name: str) -> None:
    for seed in (*_TRIED_FIRST.get(name, ()), *range(1, _SEEDS_MAX)):
        with GEAR_MUTATIONS[name]():
            if run_seed(seed, **{"records": _RECORDS, **_KINDS.get(name, {})}, gears=True).problems:
                return
    raise AssertionError(f"no seed has noticed the mutation {name}")


_KINDS: dict[str, dict[str, Any]] = {
    "constraints": {"constraints": 1.0},
    "ends": {"expiry": 0.5},
    "range": {"ranges": 0.5},
    "follow-ups": {"workflows": 0.2},
    "rulings": {"faults": 0.1},
    "partitions": {"records": 300},
}
_TRIED_FIRST = {
    "constraints": (9,),
    "ends": (18,),
    "ids": (8,),
    "order": (5,),
    "partitions": (235, 105),
    "tail": (52,),
}
_HAPPENS = (6, 9, 10, 32, 40, 68)
"""Seeds that caught a mutation, and in which everything happened, when this was written."""

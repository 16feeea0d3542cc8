"""Two gears over one log, over many seeds, and proof that a broken real-time gear is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator import run_seed
from simulator.gear_mutations import GEAR_MUTATIONS
from tests.support.seeds import seeds

_SEEDS_MAX = 60


@pytest.mark.fault(
    48, "simulator: a real-time gear that begins, leads, is lost between two outputs and shifts",
    "equal to the oracle",
)  # fmt: skip
@pytest.mark.parametrize("chunk", range(4))
def test_two_gears_write_what_one_pipeline_writes(
    chunk: int, injected: Callable[..., None]
) -> None:
    size = seeds(4)
    first = 1 + chunk * size
    injected(size)
    outcomes = [run_seed(seed, gears=True) for seed in range(first, first + size)]
    failed = [(o.seed, o.config, o.problems[0]) for o in outcomes if o.problems]
    assert not failed, failed[0]


@pytest.mark.no_proof
@pytest.mark.parametrize("name", GEAR_MUTATIONS)
def test_a_broken_gear_is_noticed(name: str) -> None:
    for seed in _TRIED_FIRST.get(name, ()):
        with GEAR_MUTATIONS[name]():
            if run_seed(seed, **_KINDS.get(name, {}), gears=True).problems:
                return
    for seed in range(1, _SEEDS_MAX):
        with GEAR_MUTATIONS[name]():
            if run_seed(seed, **_KINDS.get(name, {}), gears=True).problems:
                return
    raise AssertionError(f"no seed has noticed the mutation {name}")


_KINDS: dict[str, dict[str, Any]] = {
    "constraints": {"constraints": 1.0}, "ends": {"expiry": 0.5}, "range": {"ranges": 0.5},
}
_TRIED_FIRST: dict[str, tuple[int, ...]] = {"partitions": (83,)}

"""The simulator over many seeds, and proof that it would notice if the engine were broken."""

from __future__ import annotations

import os

import pytest

from streamydb.sim import run_seed
from streamydb.sim.mutations import MUTATIONS, mutated

SEEDS = int(os.environ.get("STREAMYDB_SIM_SEEDS", "2000"))
CHUNKS = 20
CAUGHT_WITHIN = 40


@pytest.mark.timeout(900)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds_agree_with_the_oracle(chunk: int) -> None:
    size = SEEDS // CHUNKS
    first = 1 + chunk * size
    failed = []
    for seed in range(first, first + size):
        outcome = run_seed(seed)
        if outcome.problems:
            failed.append((seed, outcome.config, outcome.problems[0]))
    assert not failed, f"streamydb sim --seeds 1 --first {failed[0][0]}: {failed}"


@pytest.mark.parametrize("grouping", ["planner", "single"])
def test_a_seed_repeats_exactly(grouping: str) -> None:
    outcome = run_seed(7, grouping=grouping)
    assert outcome.transactions > 100
    assert outcome == run_seed(7, grouping=grouping)


@pytest.mark.parametrize(
    ("name", "grouping"),
    [(name, grouping) for name in sorted(MUTATIONS) for grouping in MUTATIONS[name].groupings],
)
def test_mutations_are_caught(name: str, grouping: str) -> None:
    with mutated(name):
        seeds = range(1, 1 + CAUGHT_WITHIN)
        caught = any(run_seed(seed, grouping=grouping).problems for seed in seeds)
    assert caught, f"{MUTATIONS[name].patch.__doc__} went unnoticed for {CAUGHT_WITHIN} seeds"

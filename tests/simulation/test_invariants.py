"""Damage between the rooms is stopped by an invariant, in the batch in which it happens."""

from __future__ import annotations

import re

import pytest

from simulator import run_seed
from simulator.seam_mutations import SEAM_MUTATIONS

CAUGHT_WITHIN = 20


@pytest.mark.no_proof
@pytest.mark.parametrize("name", sorted(SEAM_MUTATIONS))
def test_damage_between_the_rooms_is_stopped_by_an_invariant(name: str) -> None:
    found = SEAM_MUTATIONS[name]
    problems = []
    with found.patch():
        for seed in range(1, 1 + CAUGHT_WITHIN):
            problems = run_seed(seed, grouping=found.grouping).problems
            if problems:
                break
    assert problems, f"{found.patch.__doc__} went unnoticed for {CAUGHT_WITHIN} seeds"
    assert re.search(f"^InvariantViolation: {found.noticed}", problems[0]), problems[0]

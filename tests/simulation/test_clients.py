"""The client library under faults, in virtual time; and proof that it would be noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from simulator.client_mutations import CLIENT_MUTATIONS
from simulator.clients import run_clients
from tests.support.seeds import seeds, thinned

SEEDS = seeds(20)
CHUNKS = 5
CAUGHT_WITHIN = 60


@pytest.mark.fault(
    46, "simulator: facades killed, away for up to 25 s; requests refused, lost, doubled, late",
    "every call has its one effect, or none, as it says; nobody gives up early",
)  # fmt: skip
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_call_has_the_effect_that_it_says(chunk: int, injected: Callable[..., None]) -> None:
    ended: Counter[str] = Counter()
    killed = 0
    for seed in range(1 + chunk, SEEDS + 1, CHUNKS):
        outcome = run_clients(seed)
        assert not outcome.problems, f"run_clients({seed}): {outcome.problems}"
        ended += outcome.calls
        killed += outcome.killed
    injected(killed)
    assert ended["returned"] > 5 * (ended.total() - ended["returned"])
    assert killed


@pytest.mark.parametrize("seed", [10419, 12533, 100448, 300009])
def test_what_failed_once_holds(seed: int) -> None:
    assert run_clients(seed).problems == []


def test_a_seed_repeats_exactly() -> None:
    outcome = run_clients(4)
    assert outcome == run_clients(4)
    assert outcome.seconds > 5


@pytest.mark.no_proof
@pytest.mark.parametrize("name", thinned(CLIENT_MUTATIONS, 3))
def test_mutations_are_caught(name: str) -> None:
    with CLIENT_MUTATIONS[name]():
        caught = any(run_clients(seed).problems for seed in range(1, 1 + CAUGHT_WITHIN))
    assert caught, f"{CLIENT_MUTATIONS[name].__doc__} went unnoticed for {CAUGHT_WITHIN} seeds"

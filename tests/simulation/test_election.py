"""Who leads: the election protocol by itself over many seeds, and proof that faults of it show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from simulator.election import run_election
from simulator.election_mutations import ELECTION_MUTATIONS, mutated_election
from simulator.main import app
from tests.support.seeds import seeds

SEEDS = seeds(800, 200)
CHUNKS = 20
CAUGHT_WITHIN = 400


@pytest.mark.fault(
    42, "simulator: cold, lagging and level members of two releases; kills, pauses, cut links",
    "never two in one epoch, the furthest that is ready leads, within a bounded time",
)  # fmt: skip
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_elections_hold(chunk: int, injected: Callable[..., None]) -> None:
    chosen = range(1 + chunk, SEEDS + 1, CHUNKS)
    injected(len(chosen))
    outcomes = [run_election(seed) for seed in chosen]
    failed = [(o.seed, o.config, o.problems[0]) for o in outcomes if o.problems]
    assert not failed, f"streamydb sim --election --seeds 1 --first {failed[0][0]}: {failed}"
    assert sum(outcome.batches for outcome in outcomes) > 1.5 * len(chosen), "hardly any election"


@pytest.mark.parametrize(
    "seed", [60, 477, 976, 1165, 10006, 14829, 15110, 18582, 25284, 25915, 27080, 206062, 226213]
)
def test_what_failed_once_holds(seed: int) -> None:
    assert run_election(seed).problems == []


def test_an_election_repeats_exactly() -> None:
    assert run_election(11) == run_election(11)
    assert run_election(11).transactions > 50


@pytest.mark.no_proof
@pytest.mark.parametrize("name", sorted(ELECTION_MUTATIONS))
def test_faults_of_the_election_are_caught(name: str) -> None:
    with mutated_election(name):
        caught = any(run_election(seed).problems for seed in range(1, 1 + CAUGHT_WITHIN))
    what = ELECTION_MUTATIONS[name].__doc__
    assert caught, f"{what} went unnoticed for {CAUGHT_WITHIN} seeds"


@pytest.mark.no_proof
def test_the_command_names_the_seed_that_failed() -> None:
    said = CliRunner().invoke(app, ["--election", "--seeds", "20", "--jobs", "1"])
    assert (said.exit_code, "20 seeds" in said.output) == (0, True), said.output
    broken = ["--election", "--mutation", "election-ready", "--seeds", "20", "--jobs", "1"]
    said = CliRunner().invoke(app, broken)
    assert said.exit_code == 3
    assert "--election" in said.output.split("alone: ")[1].splitlines()[0]

"""Who asks for the lead, and who has it, where pipelines have two gears: promises over many seeds.

At any interleaving at most one leads in an epoch. In calm somebody leads before long, and it is a
real-time gear; under load it is the micro-batch gear. Of two pipelines the one that leads goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from simulator.election_mutations import ELECTION_MUTATIONS
from simulator.gear_election import run_gear_election
from streamydb.pipeline.realtime import lead
from streamydb.pipeline.realtime.lead import GearLead, GearRoles
from streamydb.pipeline.realtime.shifting import Shifting
from tests.support.seeds import seeds, thinned

CHUNKS = 4
SEEDS = {1: seeds(320, 32), 2: seeds(200, 20)}
CAUGHT_WITHIN = 150


@pytest.mark.fault(
    48, "simulator: drivers and gears killed, links cut, requests lost or doubled, shifts",
    "one leads, in calm the real-time gear, under load the other; of two pipelines the same one",
)  # fmt: skip
@pytest.mark.parametrize("pipelines", [1, 2])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_one_gear_leads_and_it_is_the_right_one(
    pipelines: int, chunk: int, injected: Callable[..., None]
) -> None:
    chosen = range(1 + chunk, SEEDS[pipelines] + 1, CHUNKS)
    injected(len(chosen))
    outcomes = [run_gear_election(seed, pipelines) for seed in chosen]
    assert [(o.seed, o.problems[0]) for o in outcomes if o.problems] == []
    assert sum(outcome.batches for outcome in outcomes) > 1.5 * len(chosen), "hardly any shift"


def _ask_whoever_leads() -> Any:
    """The gears of a pipeline ask though another pipeline leads."""
    original = GearLead._ask

    def ask(self: Any, gear: str, roles: GearRoles) -> str | None:
        return original(self, gear, GearRoles(roles.now_ms, micro_batch=True))

    return mock.patch.object(GearLead, "_ask", ask)


def _ask_once() -> Any:
    """A gear that was asked for and did not take the lead is not asked again."""
    return mock.patch.object(lead, "_ASK_MS", 1 << 40)


def _stay_where_the_log_is_fast() -> Any:
    """The real-time gear keeps the lead, however many records wait."""
    return mock.patch.object(Shifting, "wants_down", return_value=None)


def _end_while_it_reads_up() -> Any:
    """A gear ends for the records that came while it was started, and so does the next one."""
    return mock.patch.object(lead, "_READS_UP_MS", 0)


MUTATIONS: dict[str, tuple[int, int, Callable[[], AbstractContextManager[Any]]]] = {
    "asks whoever leads": (2, 7, _ask_whoever_leads),
    "asks once": (1, 1, _ask_once),
    "stays": (1, 1, _stay_where_the_log_is_fast),
    "ends while it reads up": (1, 19, _end_while_it_reads_up),
    "the last claim holds": (2, 95, ELECTION_MUTATIONS["election-epochs"]),
    "claims beside a leader": (1, 1, ELECTION_MUTATIONS["election-beats"]),
}
"""How many pipelines it takes, a seed that caught it when this was written, and the change."""


@pytest.mark.no_proof
@pytest.mark.parametrize("name", thinned(sorted(MUTATIONS), 3))
def test_a_gear_that_asks_otherwise_is_noticed(name: str) -> None:
    pipelines, first, mutation = MUTATIONS[name]
    with mutation():
        tried = (first, *range(1, CAUGHT_WITHIN))
        caught = any(run_gear_election(seed, pipelines).problems for seed in tried)
    assert caught, f"{mutation.__doc__} went unnoticed for {CAUGHT_WITHIN} seeds"

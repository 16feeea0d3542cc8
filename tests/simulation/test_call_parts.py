"""Outputs that Kafka has while later calls of their plan are executed: kills, faults, two gears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from simulator import run, run_seed
from streamydb.txn_processor import core
from streamydb.txn_processor.outcome import ExecutionOutcome
from streamydb.txn_processor.outputs import OutputProgress, OutputRows
from tests.support.seeds import seeds

FORMS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "one pipeline": ({}, (38, 44)),
    "two pipelines": ({"pair": True}, (1034, 1046)),
    "faults of ours": ({"faults": 0.03}, (2002, 2054)),
    "two gears": ({"gears": True}, (3002, 3001, 3003)),
}
"""How each is simulated, and seeds in which some plan has more calls than one part."""


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_two_calls_are_as_good_as_plans_at_once(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of the simulator has fewer calls than a part, so parts are small here; and only one
    shard has them.
    """
    given, part = 0, OutputProgress.part

    def counted(progress: OutputProgress, outcome: ExecutionOutcome) -> Iterator[OutputRows]:
        nonlocal given
        given += 1
        return part(progress, outcome)

    monkeypatch.setattr(run, "_SHARDS", (1,))
    monkeypatch.setattr(core, "_PART_CALLS", 2)
    monkeypatch.setattr(OutputProgress, "part", counted)
    how, known = FORMS[form]
    known = known[: seeds(3, 1)]
    for seed in (*known, *range(5_000, 5_000 + seeds(40, 0))):
        outcome = run_seed(seed, **how)
        assert outcome.problems == [], f"seed {seed}: {outcome.config}"
    assert given >= len(known)

"""The micro-batch gear reads few records at once exactly while the real-time gear leads."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.pipeline.reads import FEW_RECORDS, Reads
from streamydb.pipeline.realtime import gear as gears
from streamydb.pipeline.realtime.gear import RealTimeGear
from streamydb.pipeline.realtime.lead import Decision, GearLead
from streamydb.pipeline.realtime.life import GearEnded
from tests.support.micro_batches import CONFIG
from tests.support.seeds import seeds

MANY = 4 * FEW_RECORDS


def nothing(*_: object, **__: object) -> None:
    """Stands in for what this test does not look at."""


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 15)))
def test_few_records_are_read_exactly_while_the_other_gear_leads(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dice, read = random.Random(seed), [0]
    query: Any = SimpleNamespace(
        look_every=nothing, read_at_most=lambda records: read.__setitem__(0, records)
    )
    reads = Reads(MANY)
    reads.follow(query)
    start: Any = SimpleNamespace(
        client={"bootstrap.servers": "x"}, shard=CONFIG, config=SimpleNamespace(local=tmp_path)
    )
    reports: Any = SimpleNamespace(show=nothing, note=nothing, count=nothing)
    ending: Any = SimpleNamespace(is_set=lambda: False)
    unused: Any = None
    gear = RealTimeGear(start, unused, unused, reports, ending, reads)
    for name in ("_await_turn", "_look", "_roles", "_ask"):
        monkeypatch.setattr(gear, name, nothing)
    base = SimpleNamespace(position=0)
    monkeypatch.setattr(gear, "_base", lambda: base)
    monkeypatch.setattr(gear, "_is_of_this_log", lambda _: True)
    life = SimpleNamespace(require=nothing, note=nothing, worker=1, leads=False, close=nothing)
    monkeypatch.setattr(gears, "GearLife", lambda *_: life)
    monkeypatch.setattr(GearLead, "give_back", lambda *_: None)
    leads = [False]

    def decide(*_: object) -> Decision:
        """Draw what comes next, after a look at what the last decision has led to."""
        assert read[0] == (FEW_RECORDS if leads[0] else MANY)
        if dice.random() < 0.1:
            raise GearEnded("fault", "its worker was killed")
        if not leads[0]:
            leads[0] = dice.random() < 0.4
            return Decision(led=leads[0])
        if dice.random() < 0.3:
            return Decision(leave=True)
        leads[0] = dice.random() < 0.5
        counts = None if leads[0] else "load"
        return Decision(counts=counts, ends=counts is not None and dice.random() < 0.3)

    monkeypatch.setattr(gear._lead, "decide", decide)
    for _ in range(10):
        gear._one_life()
        leads[0] = False
        assert read[0] == MANY

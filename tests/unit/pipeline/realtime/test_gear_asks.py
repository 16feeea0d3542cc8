"""The real-time gear asks for the lead only while its own pipeline has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamydb.pipeline.realtime.gear import RealTimeGear
from streamydb.records.control import Handover


def gear_of_a_pipeline(*, other_leads: bool, leads: bool) -> tuple[RealTimeGear, list[Handover]]:
    said: list[Handover] = []
    gear: Any = RealTimeGear.__new__(RealTimeGear)
    gear._start = SimpleNamespace(log_id="log", shard=SimpleNamespace(incarnation="own"))
    gear._asked_s = -1e9
    gear._topics = SimpleNamespace(say=said.append)
    gear._other_leads = lambda: other_leads
    gear._life = SimpleNamespace(leads=leads, incarnation="own+1")
    return cast("RealTimeGear", gear), said


@pytest.mark.parametrize(
    ("other_leads", "leads", "asks"), [(True, False, 1), (False, True, 1), (False, False, 0)]
)
def test_nobody_asks_while_another_pipeline_leads(
    *, other_leads: bool, leads: bool, asks: int
) -> None:
    """Else the gears of a leader and of its standby would take the lead from each other."""
    gear, said = gear_of_a_pipeline(other_leads=other_leads, leads=leads)
    gear._ask("own+1")
    assert len(said) == asks


def test_a_gear_that_another_pipeline_has_replaced_gives_nothing_back() -> None:
    gear, said = gear_of_a_pipeline(other_leads=False, leads=False)
    gear._give_back()
    assert said == []
    gear, said = gear_of_a_pipeline(other_leads=False, leads=True)
    gear._give_back()
    assert [message.target for message in said] == ["own"]

"""The turns of the thread that keeps the real-time gear: seldom while nothing happens."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from streamydb.pipeline.realtime.gear import RealTimeGear
from streamydb.pipeline.realtime.shifting import LogSample, Shifting


@pytest.mark.parametrize(
    ("quiet", "stage", "waiting", "waits_s"),
    [
        (False, "leading", 0, [0.05]),
        (True, "following", 0, [0.25]),
        (True, "leading", 1, [0.25]),
        (True, "leading", 0, [0.25] * 4),
    ],
)
def test_a_gear_that_leads_and_has_nothing_to_do_takes_a_turn_a_second(
    waits_s: list[float], stage: str, waiting: int, *, quiet: bool
) -> None:
    gear: Any = RealTimeGear.__new__(RealTimeGear)
    gear.shifting, gear._lead = Shifting(), SimpleNamespace(stage=stage)
    gear._stop, gear._ending = threading.Event(), threading.Event()
    gear.shifting.note(LogSample(0, 10, 10 - waiting))
    waited: list[float] = []

    def wait(timeout_s: float) -> bool:
        waited.append(timeout_s)
        return False

    gear._await_turn(SimpleNamespace(is_quiet=lambda: quiet, wait=wait))
    assert waited == waits_s
    gear._ending.set()
    gear._await_turn(SimpleNamespace(is_quiet=lambda: quiet, wait=wait))
    assert waited == [*waits_s, waits_s[0]], "the end of the pipeline is not waited for"

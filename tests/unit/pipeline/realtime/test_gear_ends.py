"""The wait before another real-time gear begins: after failures, not after decisions or kills."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from streamydb.pipeline.realtime.gear import RealTimeGear
from streamydb.pipeline.realtime.shifting import Shifting


def gear_that_led(led_s: float | None) -> tuple[RealTimeGear, list[str]]:
    counted: list[str] = []
    gear: Any = RealTimeGear.__new__(RealTimeGear)
    gear._count = counted.append
    gear._tell = lambda *_: None
    gear._led_s = None if led_s is None else time.monotonic() - led_s
    gear.shifting = Shifting()
    return cast("RealTimeGear", gear), counted


@pytest.mark.parametrize(
    ("reason", "led_s", "failed", "shifts"),
    [
        ("fault", None, True, 0), ("fault", 1.0, True, 1), ("fault", 60.0, False, 1),
        ("repeated-id", None, False, 1), ("repeated-id", 1.0, False, 1),
        ("rulings", 60.0, False, 1),
    ],
)  # fmt: skip
def test_only_a_fault_of_a_gear_that_has_not_led_for_long_is_a_failure(
    reason: str,
    led_s: float | None,
    failed: bool,  # noqa: FBT001 - a parameter
    shifts: int,
) -> None:
    """What is no failure waits for the ten seconds between two shifts alone."""
    gear, counted = gear_that_led(led_s)
    assert gear._end(reason, "why") is failed
    assert counted == [reason]
    assert gear.shifting.shifts == shifts

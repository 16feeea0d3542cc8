"""Shifts over drawn loads: never two upwards within ten seconds, and none while much waits."""

from __future__ import annotations

import random

import pytest

from streamydb.pipeline.realtime.shifting import (
    CALM_RATE_MAX,
    WAITING_MAX,
    LogSample,
    Shifting,
)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(40))
def test_gears_do_not_flap_and_follow_the_load(seed: int) -> None:
    dice = random.Random(seed)
    shifting, leads = Shifting(), False
    end = position = 0
    rate, ups, waited_ms = 0.0, list[int](), 0
    history: list[tuple[int, int]] = []
    for now_ms in range(0, 120_000, 100):
        if dice.random() < 0.02:
            rate = dice.choice([0, 50, CALM_RATE_MAX / 2, 3 * CALM_RATE_MAX, 50_000])
        end += int(rate / 10)
        position = end if not leads else min(end, position + 300)
        shifting.note(LogSample(now_ms, end, position))
        history.append((now_ms, end))
        waited_ms = waited_ms + 100 if end - position > WAITING_MAX else 0
        if leads:
            assert shifting.wants_down(now_ms) is (waited_ms > 1_000)
        lately = [each for at_ms, each in history if now_ms - at_ms <= 3_000]
        if not leads and shifting.wants_up(now_ms):
            assert lately[-1] - lately[0] <= 3.5 * CALM_RATE_MAX
            assert not ups or now_ms - ups[-1] >= 10_000
            ups.append(now_ms)
            leads = True
            shifting.shifted(now_ms)
        elif leads and shifting.wants_down(now_ms):
            leads = False
            shifting.shifted(now_ms)
    assert shifting.shifts == 2 * len(ups) - leads

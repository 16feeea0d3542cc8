"""Shifts over drawn loads: never two upwards within ten seconds, and no record waits for long."""

from __future__ import annotations

import random

import pytest

from streamydb.pipeline.realtime.shifting import CALM_RATE_MAX, LogSample, Shifting
from tests.support.seeds import seeds

_CAPACITY = 800
"""Records that the gear of this test executes in a tenth of a second."""

_FAST_CAPACITY = 3_000
"""The same on a machine on which it can prove itself: there a load lasts for longer."""

_WORKS_OFF_MS = 1_000
"""So much longer records may wait when it comes back to a fast log."""

_WAIT_MS_MAX = 1_000
_HALTED_MS_MAX = 3_000
_CALM_SAMPLES = 31
"""Those of three seconds."""

_WITH_LOG = 3_000
_PROOF_MS = 60_000
_HURRY_MS = 600
"""The micro-batch gear is ahead of a gear that is halted, so long after it shall hurry."""


@pytest.mark.randomized
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("seed", range(seeds(40, 16)))
def test_gears_do_not_flap_and_follow_the_load(seed: int, *, fast: bool) -> None:
    dice = random.Random(seed)
    capacity, changes = (_FAST_CAPACITY, 0.001) if fast else (_CAPACITY, 0.02)
    rates = [0, 10, 20, CALM_RATE_MAX / 2, 3 * CALM_RATE_MAX, 20_000 if fast else 50_000]
    shifting, leads, halted = Shifting(), False, False
    end = position = 0
    rate, ups, doubtful_ms, batch_ms = 0.0, list[int](), 0, 100
    history: list[tuple[int, int]] = []
    waited: list[int] = []
    proven = 0.0
    for now_ms in range(0, 240_000, 100):
        if dice.random() < changes:
            rate = dice.choice(rates)
        if leads and dice.random() < changes / 2:
            halted = True
        if dice.random() < 0.01:
            batch_ms = dice.choice([100, 100, 500, 4_000])
        end += int(rate / 10)
        if not leads:
            position = position if now_ms % batch_ms else end
        elif not halted:
            position = min(end, position + capacity)
        history.append((now_ms, end))
        doubtful_ms = doubtful_ms + 100 if leads and shifting.is_doubtful(now_ms) else 0
        shifting.note(LogSample(now_ms, end, position, doubtful_ms > _HURRY_MS))
        waited.append(end - position)
        assert shifting.is_done() is (waited[-1] == 0)
        if leads:
            proven = max(proven, _kept_up(history, ups[-1]))
            waits_ms = now_ms - max(ups[-1], _oldest_ms(history, position, now_ms))
            bound_ms = _HALTED_MS_MAX if halted else _WAIT_MS_MAX
            bound_ms += _WORKS_OFF_MS if fast and proven else 0
            assert waits_ms <= bound_ms, "the micro-batch gear would have answered"
        lately = [each for at_ms, each in history if now_ms - at_ms <= 3_000]
        if not leads and shifting.wants_up(now_ms):
            times = max(1.0, 1.1 * proven / CALM_RATE_MAX)
            assert lately[-1] - lately[0] <= 3.5 * times * CALM_RATE_MAX
            assert max(waited[-_CALM_SAMPLES:]) <= times * _WITH_LOG, "a backlog may come again"
            assert not ups or now_ms - ups[-1] >= 10_000
            ups.append(now_ms)
            leads, halted = True, False
            shifting.shifted(now_ms, up=True)
        elif leads and shifting.wants_down(now_ms):
            leads = False
            shifting.shifted(now_ms, up=False)
    assert shifting.shifts == 2 * len(ups) - leads


def _kept_up(history: list[tuple[int, int]], since_ms: int) -> float:
    """Return the most records a second that came in a minute, or little more, since a lead began
    until now.
    """
    now_ms, last = history[-1]
    begun = [(ms, end) for ms, end in history[-700:] if since_ms <= ms <= now_ms - _PROOF_MS]
    near = [(ms, end) for ms, end in begun if ms >= now_ms - _PROOF_MS - 2_000]
    return max((1_000 * (last - end) / (now_ms - ms) for ms, end in near), default=0.0)


def _oldest_ms(history: list[tuple[int, int]], position: int, now_ms: int) -> int:
    """Return when the oldest record that waits had come; now, if none waits."""
    return next((at_ms for at_ms, end in history if end > position), now_ms)

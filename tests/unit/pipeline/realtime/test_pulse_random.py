"""A worker that answers is never taken for lost, one that does not is, whatever the driver does."""

from __future__ import annotations

import random

import pytest

from streamydb.pipeline.realtime.pulse import SILENT_S_MAX, Pulse

LOOK_S, ASK_S = 0.05, 1.0


def steps(dice: random.Random) -> list[float]:
    """Times between two looks of the driver; now and then it is away: its machine was halted."""
    return [
        dice.uniform(2.0, 30.0) if dice.random() < 0.003 else dice.uniform(0.01, LOOK_S)
        for _ in range(3_000)
    ]


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(30))
def test_a_worker_that_answers_in_time_is_never_lost(seed: int) -> None:
    """The driver reads an answer after its first look, the worst case after it was away."""
    dice, now_s = random.Random(seed), 0.0
    pulse, answers = Pulse(now_s), list[tuple[float, int]]()
    asked = 0
    for step in steps(dice):
        now_s += step
        assert not pulse.is_lost(now_s)
        for due_s, answer in answers:
            if due_s <= now_s:
                pulse.heard(answer)
        answers = [each for each in answers if each[0] > now_s]
        number = pulse.due(now_s)
        if number is not None:
            assert answers == [], "one question is open at most"
            asked += 1
            slow = dice.random() < 0.2
            delay_s = dice.uniform(0.0, SILENT_S_MAX - 1.0) if slow else dice.uniform(0.0, 0.1)
            answers.append((now_s + delay_s, number))
    assert asked > 10


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(30))
def test_a_worker_that_answers_no_more_is_lost_in_time(seed: int) -> None:
    """The time counts in which the driver was there."""
    dice, now_s = random.Random(seed), 0.0
    pulse, halted_at = Pulse(now_s), dice.randrange(500)
    silent_s, lost = 0.0, False
    for at, step in enumerate(steps(dice)):
        now_s += step
        number = pulse.due(now_s)
        if number is not None and at < halted_at:
            pulse.heard(number)
        silent_s = 0.0 if at < halted_at or step > LOOK_S else silent_s + step
        lost = pulse.is_lost(now_s)
        if lost:
            assert at >= halted_at
            assert silent_s > SILENT_S_MAX - 2 * LOOK_S
            break
        assert silent_s < SILENT_S_MAX + ASK_S + 2 * LOOK_S
    assert lost

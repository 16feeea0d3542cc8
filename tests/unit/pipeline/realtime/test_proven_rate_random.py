"""What a gear has proven, over drawn leads: no more than it did, and not while it waits."""

from __future__ import annotations

import random

import pytest

from streamydb.pipeline.realtime.proven_rate import PROOF_MS, RESTS_MAX, ProvenRate
from tests.support.seeds import seeds

_WINDOW_MS = 1_500
"""A minute is measured by samples that are up to this much longer apart."""


class World:
    """A log whose rate is constant in each lead, and what may be proven of it."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.rate = ProvenRate()
        self.now_ms = 0
        self.end = 0
        self.best = 0.0
        self.lost = 0
        self.again_ms = 0

    def passes(self, milliseconds: int, per_s: float, *, leads: bool) -> None:
        """Let time pass; look at the log some times in a second."""
        until_ms, begun_ms = self.now_ms + milliseconds, self.now_ms
        while self.now_ms < until_ms:
            self.now_ms += self.dice.choice([50, 100, 250])
            self.end = int(per_s * self.now_ms / 1_000)
            self.rate.note(self.now_ms, self.end)
            if leads and self.now_ms - begun_ms >= PROOF_MS + _WINDOW_MS:
                self.best, self.lost = max(self.best, per_s), 0
            self.agrees(leads=leads, per_s=per_s)

    def agrees(self, *, leads: bool, per_s: float) -> None:
        found = self.rate.at(self.now_ms)
        if self.now_ms < self.again_ms:
            assert found == 0.0, "it waits before it tries again"
        elif leads:
            assert self.best <= found * 1.001
            assert found <= 1.001 * max(self.best, per_s)
        else:
            assert found == pytest.approx(self.best, rel=0.001)

    def lead(self, milliseconds: int, per_s: float) -> None:
        begun_ms = self.now_ms
        self.rate.lead(self.now_ms)
        self.passes(milliseconds, per_s, leads=True)
        self.rate.lose(self.now_ms)
        if self.now_ms - begun_ms < PROOF_MS:
            self.again_ms = self.now_ms + PROOF_MS * 2**self.lost
            self.lost += 1
            if self.lost > RESTS_MAX:
                self.best, self.lost = 0.0, 0


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 12)))
def test_a_rate_is_proven_by_a_minute_and_doubted_after_each_shorter_lead(seed: int) -> None:
    dice = random.Random(f"proven {seed}")
    world = World(dice)
    for _ in range(14):
        short = dice.random() < 0.6
        lasts_ms = dice.randrange(100, 59_000) if short else dice.randrange(62_000, 90_000)
        world.lead(lasts_ms, dice.choice([10.0, 3_000.0, 20_000.0]))
        world.passes(dice.choice([1_000, 30_000, 200_000]), 50_000.0, leads=False)
        world.rate.lose(world.now_ms)  # a gear that could not begin proves and doubts nothing

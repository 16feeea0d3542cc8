"""The lead of a pipeline's gears over random histories: when a gear leaves, writes on, and ends."""

from __future__ import annotations

import random

import pytest

from streamydb.pipeline.realtime.lead import ENDED, LOAD, Decision, GearLead, GearRoles
from streamydb.pipeline.realtime.shifting import LogSample, Shifting
from streamydb.records.gears import MICRO_BATCH, REAL_TIME
from tests.support.seeds import seeds

_CALM_MS = 3_600


class Life:
    """A gear from its begin to its end, and what must be true of each decision about it."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.shifting = Shifting()
        self.lead = GearLead(self.shifting)
        self.now_ms = 1_000
        self.end = 0
        self.asked_ms = -1_000
        self.reason: str | None = None

    def passes(self, records: int) -> None:
        """Let a moment pass in which so many records come, and none is executed."""
        self.now_ms += self.dice.choice([10, 50, 250])
        self.end += records
        self.shifting.note(LogSample(self.now_ms, self.end, self.end - records))

    def decide(self, *, led: bool, writes_on: bool = False, expires: bool = False) -> Decision:
        """Decide while the real-time gear leads, or the micro-batch gear does."""
        roles = GearRoles(
            self.now_ms, not led, led, ready=True, writes_on=writes_on, expires=expires
        )
        decision = self.lead.decide(roles)
        if decision.ask is not None:
            assert self.now_ms - self.asked_ms >= 200, "it is asked again after a while only"
            self.asked_ms = self.now_ms
        return decision

    def leads(self) -> None:
        """The gear begins after some seconds of calm, and takes the lead."""
        calm_ms = self.now_ms + _CALM_MS
        while self.now_ms < calm_ms:
            self.passes(1)
        self.lead.begin(self.now_ms)
        shifts = self.shifting.shifts
        assert self.decide(led=True).led
        assert self.shifting.shifts == shifts + 1

    def leaves(self) -> None:
        """The gear leads until there is a reason to leave, and then asks the other one to lead."""
        while self.reason is None:
            surge, expires = (self.dice.random() < 0.1 for _ in range(2))
            self.passes(6_000 if surge else 1)
            decision = self.decide(led=True, expires=expires)
            assert decision.counts is None
            assert not decision.ends
            assert decision.ask in (None, MICRO_BATCH)
            assert decision.leave is (surge or expires)
            if decision.leave:
                self.reason = LOAD if surge else ENDED
            else:
                assert decision.ask is None
        for _ in range(self.dice.randrange(9)):
            self.passes(self.dice.choice([1, 6_000]))
            decision = self.decide(led=True, expires=self.dice.random() < 0.5)
            assert (decision.leave, decision.counts, decision.ends) == (False, None, False)
            assert (decision.ask == MICRO_BATCH) is (self.asked_ms == self.now_ms)

    def is_replaced(self) -> None:
        """Somebody else takes the lead, though nobody was asked."""
        self.reason = "replaced"

    def loses(self) -> None:
        """The gear has lost the lead, and writes on until the other one writes, or ends at once."""
        shifts, at_once = self.shifting.shifts, self.reason == LOAD
        writes_on = self.dice.random() < 0.8
        self.passes(1)
        decision = self.decide(led=False, writes_on=writes_on, expires=self.dice.random() < 0.5)
        assert decision.counts == self.reason
        assert decision.ends is (at_once or not writes_on)
        assert self.shifting.shifts == shifts + 1
        while not decision.ends:
            writes_on = self.dice.random() < 0.8
            self.passes(self.dice.choice([1, 6_000]))
            late = self.dice.random() < 0.1  # a request that comes late gives it the lead again
            decision = self.decide(led=late, writes_on=writes_on, expires=True)
            assert decision == Decision(ends=not writes_on)
        assert self.shifting.shifts == shifts + 1
        assert not self.shifting.wants_up(self.now_ms)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(60, 20)))
def test_a_gear_leaves_for_a_reason_and_writes_on_until_the_other_one_does(seed: int) -> None:
    dice = random.Random(f"lead {seed}")
    life = Life(dice)
    for _ in range(5):
        life.reason = None
        life.leads()
        dice.choice([life.leaves, life.leaves, life.is_replaced])()
        life.loses()
        life.passes(0)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 10)))
def test_a_gear_that_follows_is_asked_for_in_calm_and_ends_before_its_batch(seed: int) -> None:
    dice = random.Random(f"follows {seed}")
    life = Life(dice)
    for _ in range(400):
        life.passes(1)
    life.lead.begin(life.now_ms)
    for _ in range(dice.randrange(1, 60)):
        life.passes(1)
        decision = life.decide(led=False)
        assert decision.ask in (None, REAL_TIME)
        assert (decision.ask is None) is (life.asked_ms != life.now_ms)
        assert not decision.ends
    assert life.asked_ms > 0, "in calm it is asked for"
    assert life.decide(led=False, expires=True) == Decision(ends=True)
    assert life.shifting.shifts == 0

"""A log loses its end and grows again: what was told of the lost history is no difference."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec
import pytest

from streamydb.frames.digest import StateDigest, Teller
from streamydb.pipeline.standby.agreement import Agreement, Disagreement
from tests.support.seeds import seeds

INTERVAL = 10


class Told(NamedTuple):
    """A record of `<db>.digests`; ``history``: that of its transactions; ``lives``: the one there
    was when it was told.
    """

    key: bytes
    digest: StateDigest
    told_ms: int
    history: int
    lives: int


class World:
    """A log, by the commit timestamp of each seq, and what pipelines have told of it.

    Attributes:
        log: (history, ts) of each seq.
        told: all digests, in order.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"histories {seed}")
        self.now_ms = 1_000
        self.history = 0
        self.log: list[tuple[int, int]] = []
        self.told: list[Told] = []
        self.ends_at: dict[str, int] = {}

    def step(self) -> None:
        """The log grows, or loses its end, and then every pipeline is rebuilt; or one tells."""
        dice = self.dice
        self.now_ms += dice.randint(1, 50)
        chance = dice.random()
        if chance < 0.4:
            self.log += [(self.history, self.now_ms)] * dice.randint(1, 25)
        elif chance < 0.5:
            del self.log[dice.randint(0, len(self.log)) :]
            self.history += 1
            self.ends_at = {}
        else:
            self.tell(f"{dice.choice('ab')}-{self.history}")

    def tell(self, pipeline: str) -> None:
        """A pipeline goes on with its digests; one is damaged now and then."""
        self.now_ms += 1
        at = self.ends_at.get(pipeline, 0) + INTERVAL
        if at > len(self.log):
            return
        self.ends_at[pipeline] = at
        history, ts_ms = self.log[at - 1]
        state = "damaged" if self.dice.random() < 0.1 else f"of {history}"
        digest = StateDigest(at, 0, INTERVAL, state, "o", 1)
        key = Teller(pipeline, ts_ms).key(digest)
        self.told.append(Told(key, digest, self.now_ms, history, self.history))

    def expected(self, live: int) -> list[StateDigest]:
        """The digests that differ from all that were told before of their seq and history."""
        found = []
        for number, told in enumerate(self.told):
            others = [
                other.digest
                for other in self.told[:number]
                if (other.history, other.digest.seq) == (told.history, told.digest.seq)
            ]
            if number >= live and others and told.digest not in others:
                found.append(told.digest)
        return found


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(60)))
def test_only_what_was_told_of_the_same_history_is_compared(seed: int) -> None:
    world = World(seed)
    for _ in range(world.dice.randint(20, 120)):
        world.step()
    # A pipeline that runs does not go on with a log that has lost its end: it starts anew.
    lives = world.dice.randint(0, world.history)
    live = sum(told.lives < lives for told in world.told)
    world.told = [told for told in world.told if told.lives <= lives]
    agreement = Agreement(INTERVAL, 1)
    found: list[Disagreement] = []
    for number, (key, digest, told_ms, *_) in enumerate(world.told):
        value = msgspec.json.encode(digest)
        difference = agreement.take(key, value, live=number >= live, told_ms=told_ms)
        found += [] if difference is None else [difference]
    assert [each.second for each in found] == world.expected(live)

"""A gear that is drained: the worker executes no more, and all its outputs are resolved."""

from __future__ import annotations

import random
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from streamydb.frames.messages import Audit, Role
from streamydb.kafka.shared_topics import SharedTopicsError
from streamydb.pipeline.realtime import life as life_module
from streamydb.pipeline.realtime.confirmations import Announcements, ResolvedGroups
from streamydb.pipeline.realtime.life import GearLife
from streamydb.pipeline.realtime.messages import Executed, Play
from tests.support.seeds import seeds

NEVER_S = 60.0


class World:
    """A worker that has groups on their way, and a Kafka in which their outputs appear."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.announced: list[bytes] = []
        self.flushed: list[bytes] = []
        life: Any = GearLife.__new__(GearLife)
        life._ended, life._coordinator = None, None
        life._noted_s = life._executed_s = 0.0
        life._changed, life._lock, life._groups = (
            threading.Event(), threading.Lock(), ResolvedGroups()
        )  # fmt: skip
        life._announcements = Announcements()
        life._announcer = SimpleNamespace(
            announce=self.announce, flush=lambda: self.flushed.extend(self.announced)
        )
        topics: Any = life_module._GearTopics.__new__(life_module._GearTopics)
        topics._channel, topics._plays, topics._written = SimpleNamespace(send=self.send), 0, 0
        life._topics = topics
        self.life = life
        self.groups = [
            ([dice.getrandbits(60) for _ in range(dice.randint(0, 3))], number)
            for number in range(1, dice.randint(2, 12))
        ]
        self.thread = threading.Thread(target=self.go_on, daemon=True)

    def announce(self, text: str) -> None:
        """Take a moment, in which whoever drains could believe that all is announced."""
        threading.Event().wait(0.002)
        self.announced.append(text.encode())

    def send(self, message: Play) -> None:
        assert not message.leads
        self.thread.start()

    def go_on(self) -> None:
        """The rest of the groups, then the answer to the role; outputs come in drawn order."""
        said = [
            Executed(seq, seq, 0, _packed(outputs), b"%d" % seq) for outputs, seq in self.groups
        ]
        last = said[-1].seq
        events: list[Executed | int] = [*said, Executed(last, last, 0, b"", None, roles=1)]
        for outputs, _ in self.groups:
            for output in outputs:
                events.insert(self.dice.randint(0, len(events)), output)
        for event in events:
            if isinstance(event, Executed):
                self.life._add(event)
            else:
                self.life._see(np.array([event], np.uint64))


def _packed(outputs: list[int]) -> bytes:
    return np.array(outputs, np.uint64).tobytes()


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(40, 13)))
def test_when_it_is_drained_all_is_written_and_announced(seed: int) -> None:
    world = World(random.Random(seed))
    world.life.drain(NEVER_S)
    last = world.groups[-1][1]
    assert world.life._groups.last.roles == 1
    assert world.flushed[-1:] == [b"%d" % last]


def test_a_worker_that_is_gone_or_silent_is_not_waited_for_long() -> None:
    world = World(random.Random(1))

    def gone(_: Play) -> None:
        raise OSError("broken pipe")

    world.life._topics._channel = SimpleNamespace(send=gone)
    world.life.drain(NEVER_S)
    world.life._topics._channel = SimpleNamespace(send=lambda _: None)
    began_s = time.monotonic()
    world.life.drain(0.02)
    assert time.monotonic() - began_s < NEVER_S
    assert world.flushed == []


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(20, 8)))
def test_what_earlier_runs_have_written_is_covered_whatever_a_role_says(seed: int) -> None:
    dice, sent = random.Random(seed), list[Play]()
    topics: Any = life_module._GearTopics.__new__(life_module._GearTopics)
    topics._channel, topics._plays = SimpleNamespace(send=sent.append), 0
    topics._written = dice.choice([0, 50, 100])
    for number in range(1, 8):
        role = Role("me", dice.random() < 0.5, dice.randint(-1, 120))
        assert topics.tell("nowhere", role.block()) == number
        assert sent[-1] == Play(role.leads, max(role.covered, topics._written))


def test_an_audit_has_nobody_to_hear_it() -> None:
    topics: Any = life_module._GearTopics.__new__(life_module._GearTopics)
    with pytest.raises(SharedTopicsError, match="no state to audit"):
        topics.tell("nowhere", Audit("me", "differs").block())

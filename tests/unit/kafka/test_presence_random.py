"""Who runs elsewhere, whatever pipelines do and clocks say: held against a naive model."""

from __future__ import annotations

import random

import pytest

from streamydb.kafka import presence
from streamydb.kafka.presence import PRESENT_S
from streamydb.records.control import (
    Beat,
    Following,
    LeaderClaim,
    Message,
    decode_message,
    encode_message,
)
from tests.support.control_topic import ControlTopic
from tests.support.memory_kafka import Record
from tests.support.seeds import seeds

SEEDS = seeds(100)
START_S = 1_700_000_000
_DOUBT_S, _LISTEN_S = 3_600, 12


class Pipeline:
    """One checkpoint: it runs or not, leads in an epoch or follows."""

    def __init__(self, incarnation: str) -> None:
        self.incarnation, self.runs, self.epoch, self.leads = incarnation, False, 0, False
        self.due_s = 0.0

    def says(self, claims: bool = False) -> Message:  # noqa: FBT001, FBT002 - a test's own
        who, epoch = self.incarnation, self.epoch
        if claims:
            return LeaderClaim(log="log", pipeline=who, epoch=epoch)
        if self.leads:
            return Beat(log="log", pipeline=who, epoch=epoch, resolved=1, read=1)
        return Following(log="log", pipeline=who, epoch=epoch, resolved=1, lag_ms=0, ready=True)


class World(ControlTopic):
    """Pipelines, a broker and this machine; each of the two has a clock that is wrong and jumps."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"presence {seed}")
        self.now_s = 0.0
        self.broker_s, self.here_s = self.dice.choice([0, 0, -300, 4000]), self._wrong()
        self.pipelines = [Pipeline(name) for name in "abc"[: self.dice.randint(1, 3)]]
        self.epochs: dict[int, str] = {}
        self.topic: list[Record] = []
        self.listens = False

    def _wrong(self) -> float:
        return self.dice.choice([0, 0, 5, -25, 25, -300, 300, -86_400, 3_000])

    def live(self) -> None:
        for _ in range(self.dice.randint(1, 12)):
            one = self.dice.choice(self.pipelines)
            one.runs = self.dice.random() < 0.7
            if one.runs and self.dice.random() < 0.5:
                one.epoch = max(1, max(self.epochs, default=0) + self.dice.randint(0, 1))
                self._claim(one)
            elif one.runs and self.epochs.get(one.epoch) != one.incarnation:
                one.leads, one.epoch = False, max(self.epochs, default=0)
            elif one.runs and one.epoch < max(self.epochs):
                one.leads, one.epoch = False, max(self.epochs)
            if self.dice.random() < 0.15:
                self.broker_s += self.dice.choice([-3_600, -40, 40, 3_600])
            self.pass_until(self.now_s + self.dice.choice([0.2, 3, 15, 45, 400, 4_000]))

    def _claim(self, one: Pipeline) -> None:
        self._append(one.says(claims=True))
        one.leads = self.epochs.setdefault(one.epoch, one.incarnation) == one.incarnation
        newest = max(self.epochs)
        for other in self.pipelines:
            if other.runs and other.epoch < newest:
                other.leads, other.epoch = False, newest
        if self.dice.random() < 0.3:
            one.runs = False  # it dies right after it has claimed

    def pass_until(self, until_s: float) -> None:
        """All that run speak: every second who follows, every ten seconds who leads."""
        self.now_s = max(self.now_s, until_s - 60)
        while self.now_s < until_s:
            self.now_s = min(self.now_s + 0.1, until_s)
            for one in self.pipelines:
                if one.runs and self.now_s >= one.due_s:
                    one.due_s = self.now_s + (10 if one.leads else 1)
                    self._append(one.says())

    def _append(self, message: Message) -> None:
        stamp = int(1000 * (START_S + self.now_s + self.broker_s))
        self.topic.append(Record(0, len(self.topic), stamp, None, encode_message(message)))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the control topic and the clocks of `presence`."""
        self.stand_in(
            monkeypatch, lambda: int(1e9 * (START_S + self.now_s + self.here_s)), lambda: self.now_s
        )

    def last(self, count: int) -> list[Record]:
        return self.topic[-count:]

    def batch(self) -> list[Record]:
        self.listens = True
        known = len(self.topic)
        if self.dice.random() < 0.02:
            self.here_s += self.dice.choice([-7_200, -40, 40, 7_200])
        self.pass_until(self.now_s + 0.1)
        return self.topic[known:]


def expected(world: World) -> tuple[set[str], set[str]]:
    """The pipelines whose last word is lately by the clocks, and those that leave a doubt."""
    ages = {}
    held: dict[int, str] = {}
    words: dict[str, Message] = {}
    for record in world.topic:
        message = decode_message(record.value())
        if isinstance(message, LeaderClaim):
            held.setdefault(message.epoch, message.pipeline)
            if held[message.epoch] != message.pipeline:
                continue
        words[message.pipeline] = message
        ages[message.pipeline] = START_S + world.now_s + world.here_s - record.append_ms / 1000
    leader = held.get(max(held, default=0))
    deposed = {
        name for name, word in words.items()
        if not isinstance(word, Following) and name != leader
    }  # fmt: skip
    lately = {name for name, age in ages.items() if abs(age) <= PRESENT_S}
    doubt = {name for name, age in ages.items() if age <= _DOUBT_S} - lately
    return lately - deposed, doubt - deposed


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_runs_is_what_was_heard_whatever_the_clocks_say(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(seed)
    world.live()
    world.install(monkeypatch)
    lately, doubt = expected(world)
    begun_s, begun = world.now_s, len(world.topic)
    found = presence.seen({}, "bank")
    later = [decode_message(each.value()) for each in world.topic[begun:]]
    spoken = {message.pipeline for message in later}
    told = {one.pipeline for one in found}
    assert world.listens == bool(doubt)
    assert spoken <= told, "what it has just heard runs"
    assert told <= lately | spoken
    # Who was heard lately when it began may be so no more after it has listened.
    assert doubt & spoken <= told
    if not doubt:
        assert told == lately
    running = {one.incarnation for one in world.pipelines if one.runs}
    assert doubt & running <= told, "who speaks within ten seconds is heard"
    assert world.now_s - begun_s <= _LISTEN_S + 1
    leaders = [one for one in found if one.role == "leading"]
    assert len(leaders) <= 1

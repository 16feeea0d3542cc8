"""Streams of changes over drawn checkpoints, and topics that are made anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pandas as pd
import pytest

from streamydb.errors import ConfigurationError
from streamydb.spark import readers
from streamydb.spark.rows import SeenRecords
from tests.support.seeds import seeds

Name = tuple[int, int, str]


class Event(NamedTuple):
    """A record of the changes, as `rows.EVENTS` has it."""

    seq: int
    number: int
    key: str | None
    resolved: bool


@dataclass
class Known:
    """The definition: every name that was seen in the topic, and up to where it is resolved.

    ``topic``: None until somebody tells it.
    """

    topic: str | None = None
    resolved: int = 0
    names: set[Name] = field(default_factory=set)

    def copy(self) -> Known:
        return replace(self, names=set(self.names))

    def take(self, topic: str, events: list[Event]) -> list[Event] | None:
        """Return the events that come for the first time; None: the topic is another one."""
        if topic and self.topic and topic != self.topic:
            return None
        self.topic = topic or self.topic
        fresh = []
        for event in events:
            if event.resolved:
                self.resolved = max(self.resolved, event.seq)
                continue
            name = (event.seq, event.number, event.key or "")
            if name not in self.names and event.seq > self.resolved:
                fresh.append(event)
                self.names.add(name)
        return fresh


class State:
    """The state of a partition, as Spark hands it over."""

    def __init__(self, kept: tuple[int, bytes] | None = None) -> None:
        self.kept = kept

    @property
    def exists(self) -> bool:
        return self.kept is not None

    @property
    def get(self) -> tuple[int, bytes]:
        assert self.kept is not None
        return self.kept

    def update(self, value: tuple[int, bytes]) -> None:
        self.kept = value


def drawn_topic(dice: random.Random) -> list[Event]:
    """Draw a topic: plans in any order, repeated in part by others, with resolved records."""
    found: list[Event] = []
    seq = 0
    for _ in range(dice.randint(1, 8)):
        seqs = range(seq + 1, seq + 1 + dice.randint(1, 4))
        seq = seqs[-1]
        plan = [Event(n, i, key, False) for n in seqs for i in (1, 2) for key in "ab"]
        dice.shuffle(plan)
        found += dice.choice([[], plan[: dice.randint(0, len(plan))]]) + plan
        if dice.random() < 0.7:
            found.append(Event(seq, 0, None, True))
        if dice.random() < 0.3:
            found += found[dice.randrange(len(found)) :]
    return found


def taken(topic: str, state: State, events: list[Event], at: int) -> list[Event]:
    """Give the events to the function of the stream; return those that it yields."""
    rows = [(0, at + n, e.key, e.seq, e.number, e.resolved, None) for n, e in enumerate(events)]
    columns = ["partition", "offset", "key", "seq", "index", "resolved", "offsets"]
    frame = pd.DataFrame(rows, columns=columns)
    cut = len(frame) // 2
    parts = iter([frame[cut:], frame[:cut]])  # Spark gives them in any order
    [shown] = readers._fresh(topic, parts, state)  # type: ignore[arg-type]
    names = (shown[column].tolist() for column in ("seq", "index", "key"))
    return [Event(seq, number, key, False) for seq, number, key in zip(*names, strict=True)]


def batches(dice: random.Random, events: list[Event]) -> Iterator[tuple[int, list[Event]]]:
    """Cut a topic into micro-batches; yield each with its first offset."""
    at = 0
    while at < len(events):
        size = dice.randint(1, 9)
        yield at, events[at : at + size]
        at += size


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(60, 10)))
def test_a_stream_gives_each_change_once_and_never_goes_on_with_another_topic(seed: int) -> None:
    """It begins with a checkpoint of any time, which may be of another topic."""
    dice = random.Random(seed)
    topics = [f"topic-{number}" for number in range(3)]
    logs = {name: drawn_topic(dice) for name in topics}
    state, known = State(), Known()
    kept = [(State(), Known())]
    for name in (dice.choice(topics) for _ in range(6)):
        for at, events in batches(dice, logs[name]):
            told = name if dice.random() < 0.8 else ""
            expected = known.take(told, events)
            if expected is None:
                before = state.kept
                with pytest.raises(ConfigurationError, match=f"made anew.* {name} now"):
                    taken(told, state, events, at)
                assert state.kept == before
                break
            assert taken(told, state, events, at) == expected
            assert state.get[0] == known.resolved
            remembered = SeenRecords(*state.get).above
            assert all(seq > known.resolved for seq, *_ in remembered), "the rest is forgotten"
            draw = dice.random()
            if draw < 0.1:
                kept.append((State(state.kept), known.copy()))
            elif draw < 0.2:  # a query begins again with a checkpoint of that time
                put_back, knew = dice.choice(kept)
                state, known = State(put_back.kept), knew.copy()

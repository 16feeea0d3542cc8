"""Queries that fail, lack rulings, or cannot be started: there is one at a time, and never none
that could go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streamydb.errors import StreamyError
from streamydb.pipeline import restarts
from streamydb.pipeline.restarts import RestartedQuery
from tests.support.seeds import seeds


class Query:
    """One start of the query."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.active, self.given_up = True, False
        self.query = self

    def beats(self) -> bool:
        return self.active

    def give_up(self) -> None:
        self.active, self.given_up = False, True


class World:
    """The pipeline around it: Kafka, the others, and the desk."""

    stale = False
    epoch = 3
    leads = True
    settled = True

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"restarts {seed}")
        self.started: list[Query] = []
        self.repeats = True

    def start(self, number: int) -> Query:
        assert not any(query.active for query in self.started), "two at once"
        if self.started and self.dice.random() < 0.3:
            raise StreamyError("Kafka does not answer")
        self.started.append(Query(number))
        self.stale = False
        return self.started[-1]

    def may_repeat(self, failure: Any, epoch: int, *, leads: bool, settled: bool) -> bool:
        told = failure, epoch, leads, settled
        assert told == (self.started[-1], 3, True, True), "the failure of the last"
        return self.repeats


@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_a_query_is_started_again_exactly_when_that_helps(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(seed)
    failure_of: Callable[[Any], Any] = lambda query: query  # noqa: E731 - it is its own failure
    monkeypatch.setattr(restarts, "failure_of", failure_of)
    member: Any = world
    query = RestartedQuery(member.start, member, member)
    query.begin()
    ended = False
    for _ in range(40):
        what = world.dice.choice(["", "", "fails", "stale", "fails for good"])
        last = world.started[-1]
        world.repeats = what != "fails for good"
        if what.startswith("fails"):
            last.active = False
        world.stale = world.stale or what == "stale"
        needed = not last.active or world.stale
        count, starting = len(world.started), query._starting
        try:
            goes_on = query.keep_up()
        except StreamyError:
            assert needed
            assert query.beats(), "a start that failed is tried again"
            continue
        if not goes_on:
            ended = what == "fails for good" and not starting
            assert ended
            break
        assert len(world.started) == count + needed
        running: Any = query.running
        assert running is world.started[-1]
        assert query.beats()
    numbers = [each.number for each in world.started]
    assert numbers[0] == 0
    assert numbers == sorted(set(numbers)), "each start has a number of its own"
    assert ended or world.started[-1].active or query._starting

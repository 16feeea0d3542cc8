"""Appends wait for each other, for a bounded time, and each goes once."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from streamydb.facade.append_groups import (
    EACH_S,
    GATHER_S,
    GROUP_MAX,
    HOLD_S,
    RETURN_S,
    AppendGroups,
)  # fmt: skip
from streamydb.facade.ports import LogPosition
from tests.support.seeds import seeds


class Timer:
    def __init__(self, at_s: float, function: Callable[[], None]) -> None:
        self.at_s, self.function, self.cancelled = at_s, function, False

    def cancel(self) -> None:
        self.cancelled = True


class World:
    """A clock with timers, and a log that takes appends and decides them when it is told to.

    ``sent``: the appends that went, by group, in their order.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []
        later: Any = self._later
        self.groups = AppendGroups(later, lambda: self.now_s)
        self.sent: list[list[int]] = []
        self.begun = 0
        self.end = 0
        self.waited_s: dict[int, float] = {}

    def _later(self, seconds: float, function: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_s + seconds, function))
        return self.timers[-1]

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            self.waited_s[self.begun] = self.now_s
            before = len(self.sent)
            self.sent.append([])
            self.groups.add(partial(self._send, self.begun))
            if not self.sent[before]:
                del self.sent[before]
            self.begun += 1

    def _send(self, number: int) -> None:
        self.waited_s[number] = self.now_s - self.waited_s[number]
        self.sent[-1].append(number)

    def pass_time(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while True:
            due = [t for t in self.timers if not t.cancelled and t.at_s <= until_s]
            if not due:
                break
            timer = min(due, key=lambda each: each.at_s)
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer.at_s)
            self.sent.append([])
            timer.function()
            if not self.sent[-1]:
                self.sent.pop()
        self.now_s = until_s

    def take_in(self, group: list[int]) -> None:
        """Have the log take a group in."""
        for _ in group:
            self.groups.appended(LogPosition(0, self.end))
            self.end += 1

    def decide(self) -> None:
        self.groups.decided({0: self.end})


@pytest.fixture
def world() -> World:
    return World()


def test_who_is_alone_waits_for_nothing(world: World) -> None:
    for number in range(5):
        world.add()
        assert world.sent[-1] == [number]
        world.take_in([number])
        world.pass_time(0.008)
        world.decide()
        world.pass_time(0.001)
    assert set(world.waited_s.values()) == {0.0}


def test_what_comes_while_a_group_is_undecided_goes_together_with_those_who_heard(
    world: World,
) -> None:
    world.add()
    world.take_in([0])
    world.add(2)
    world.pass_time(0.008)
    assert world.sent == [[0]]
    world.decide()
    assert world.sent == [[0]], "the client of the first one may append again"
    world.pass_time(GATHER_S / 2)
    world.add()
    assert world.sent == [[0], [1, 2, 3]]
    assert max(world.waited_s.values()) < HOLD_S


def test_a_group_does_not_wait_for_who_has_gone(world: World) -> None:
    world.add(1)
    world.take_in([0])
    world.add(3)
    world.decide()
    world.pass_time(RETURN_S)
    assert world.sent == [[0], [1, 2, 3]]


def test_who_waits_alone_goes_with_those_who_take_a_while_to_return(world: World) -> None:
    world.add()
    world.take_in([0])
    world.add()
    world.decide()
    world.take_in(world.sent[-1])
    world.pass_time(GATHER_S * 1.5)
    world.add()
    assert world.sent == [[0], [1, 2]]


def test_who_has_heard_earlier_is_not_expected_twice(world: World) -> None:
    world.add()
    world.take_in([0])
    world.add(3)
    world.decide()
    world.pass_time(RETURN_S)
    assert world.sent[-1] == [1, 2, 3]
    world.take_in(world.sent[-1])
    world.groups.decided({0: world.end - 1})
    world.add(2)
    world.decide()
    world.add()
    assert world.sent[-1] == [4, 5, 6], "all three are here"


def test_nobody_waits_long_for_verdicts_that_do_not_come(world: World) -> None:
    world.add()
    world.take_in([0])
    world.add(2)
    world.pass_time(HOLD_S * 0.9)
    assert world.sent == [[0]]
    world.pass_time(HOLD_S * 0.2)
    assert world.sent == [[0], [1, 2]]


def test_many_who_come_back_one_after_the_other_go_together(world: World) -> None:
    count = 200
    world.add()
    world.take_in([0])
    world.add(count)
    world.decide()
    world.pass_time(RETURN_S)
    world.take_in(world.sent[-1])
    world.decide()
    for _ in range(count):  # longer than an append waits for verdicts
        world.add()
        world.pass_time(0.00025)
    assert count * 0.00025 > HOLD_S
    assert len(world.sent) == 3
    assert world.sent[-1] == [*range(count + 1, 2 * count + 1)]


def test_who_waits_with_few_does_not_wait_for_many(world: World) -> None:
    world.add()
    world.take_in([0])
    for _ in range(40):  # they do not end, and nothing is decided
        world.add()
        world.pass_time(0.001)
    assert world.waited_s[1] <= HOLD_S + EACH_S + GATHER_S


def test_many_do_not_wait(world: World) -> None:
    world.add()
    world.add(GROUP_MAX)
    assert world.sent == [[0], [*range(1, GROUP_MAX + 1)]]


@pytest.mark.parametrize("verdict_first", [False, True])
def test_a_group_ends_when_all_are_answered_and_decided(
    world: World, *, verdict_first: bool
) -> None:
    world.add()
    if verdict_first:
        world.groups.decided({0: 1})
        world.take_in([0])
    else:
        world.take_in([0])
        world.groups.decided({0: 1})
    world.add()
    assert world.sent == [[0], [1]]
    world.groups.decided({0: 1})  # of the first one, again
    world.take_in([1])
    world.add()
    assert world.sent == [[0], [1]]


def test_an_append_that_fails_holds_nobody_up(world: World) -> None:
    world.add()
    world.groups.failed()
    world.add()
    assert world.sent == [[0], [1]]


def test_a_flush_sends_what_waits(world: World) -> None:
    world.add()
    world.add(2)
    world.sent.append([])
    world.groups.flush()
    assert world.sent == [[0], [1, 2]]
    world.pass_time(1)
    assert world.sent == [[0], [1, 2]]


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(200, 50)))
def test_each_goes_once_in_order_and_in_time_whatever_happens(seed: int) -> None:
    dice, world = random.Random(seed), World()
    taken = 0
    for _ in range(300):
        act = dice.randrange(6)
        if act < 2:
            world.add(dice.choice([1, 1, 2, 20]))
        elif act == 2:
            world.pass_time(dice.choice([0.0005, 0.002, 0.01, 0.05]))
        elif act == 3 and taken < len(world.sent):
            for _ in world.sent[taken]:
                if dice.random() < 0.1:
                    world.groups.failed()
                else:
                    world.take_in([0])
            taken += 1
        elif act == 4:
            world.decide()
        elif dice.random() < 0.1:
            world.sent.append([])
            world.groups.flush()
            if not world.sent[-1]:
                world.sent.pop()
                taken = min(taken, len(world.sent))
    world.pass_time(1)
    went = [number for group in world.sent for number in group]
    assert went == list(range(world.begun))
    assert max(world.waited_s.values()) <= HOLD_S + EACH_S * GROUP_MAX + GATHER_S + 1e-9
    assert max(map(len, world.sent)) <= GROUP_MAX

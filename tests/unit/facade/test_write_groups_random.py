"""Writes of connections go out in groups: all of them, in order, soon, and before the end."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from streamydb.facade import write_groups
from streamydb.facade.write_groups import GroupedTransport, WriteGroup
from tests.support.seeds import seeds

TOGETHER_S, HELD_MAX = write_groups._TOGETHER_S, write_groups._HELD_BYTES_MAX


class Loop:
    """An event loop without sockets, whose turns take a while."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ready: deque[Callable[[], None]] = deque()

    def call_soon(self, function: Callable[[], None]) -> None:
        self.ready.append(function)

    def turn(self, takes_s: float, functions: list[Callable[[], None]]) -> None:
        """Do what was ready, and then what a turn brings."""
        ready, self.ready = self.ready, deque()
        for function in [*ready, *functions]:
            function()
        self.now_s += takes_s


class Wire:
    """A transport that notes what it is told to do.

    ``called``: the calls and what was written, in order.
    """

    def __init__(self) -> None:
        self.called: list[bytes | str] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        assert not self.closing, "a closed connection may raise"
        assert "write_eof" not in self.called
        self.called.append(data)

    def write_eof(self) -> None:
        self.called.append("write_eof")

    def close(self) -> None:
        self.called.append("close")
        self.closing = True

    def abort(self) -> None:
        self.called.append("abort")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, name: str) -> str:
        return f"the wire's {name}"


class Client:
    """One connection, and what was meant for it."""

    def __init__(self, loop: Loop, group: WriteGroup) -> None:
        self.loop, self.wire, self.written = loop, Wire(), b""
        wire: Any = self.wire
        self.transport = GroupedTransport(wire, group)
        self.oldest_s: float | None = None
        self.lost = False

    def write(self, data: bytes) -> None:
        if not self.wire.closing and "write_eof" not in self.wire.called:
            self.note()
            self.transport.write(data)
            self.written += data
            self.note()

    def note(self) -> None:
        """Note since when something is held back."""
        if self.held() == 0:
            self.oldest_s = None
        elif self.oldest_s is None:
            self.oldest_s = self.loop.now_s

    def out(self) -> bytes:
        return b"".join(part for part in self.wire.called if isinstance(part, bytes))

    def held(self) -> int:
        return 0 if self.wire.closing else len(self.written) - len(self.out())

    def end(self, how: str) -> None:
        if how == "lost":
            self.wire.closing = self.lost = True
        elif not self.wire.closing:
            getattr(self.transport, how)()
            self.lost = how == "abort"


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(seeds(400, 100)))
def test_all_writes_go_out_in_order_soon_and_before_the_end(seed: int) -> None:
    dice = random.Random(f"write groups {seed}")
    loop = Loop()
    group = WriteGroup(loop.call_soon, lambda: loop.now_s)
    clients = [Client(loop, group) for _ in range(dice.randrange(1, 8))]
    busy = dice.random()
    turn_s = dice.choice([0.0001, 0.0005, 0.003])

    def act() -> None:
        client = dice.choice(clients)
        if dice.random() < 0.05:
            client.end(dice.choice(["close", "abort", "lost", "write_eof"]))
            client.note()
        else:
            size = dice.choice([0, 1, 300, 300, 5_000, HELD_MAX])
            client.write(dice.randbytes(size))
            assert client.held() <= HELD_MAX

    for _ in range(dice.randrange(60)):
        acts = [act] * dice.randrange(1, 5) if dice.random() < busy else []
        loop.turn(turn_s, list(acts))
        for client in clients:
            client.note()
            if client.oldest_s is not None:
                assert loop.now_s - client.oldest_s <= TOGETHER_S + 2 * turn_s
    for _ in range(2):
        loop.turn(turn_s, [])
    assert not loop.ready, "nothing is left to do"
    for client in clients:
        if client.lost:
            assert client.written.startswith(client.out())
        else:
            assert client.out() == client.written
        if "close" in client.wire.called:
            assert client.wire.called[-1] == "close"


def test_what_is_written_alone_waits_for_one_turn() -> None:
    loop = Loop()
    client = Client(loop, WriteGroup(loop.call_soon, lambda: loop.now_s))
    loop.turn(0.0001, [lambda: client.write(b"answer")])
    assert client.wire.called == []
    loop.turn(0.0001, [])
    assert client.wire.called == [b"answer"]


def test_answers_of_turns_that_follow_each_other_go_out_together() -> None:
    loop = Loop()
    group = WriteGroup(loop.call_soon, lambda: loop.now_s)
    clients = [Client(loop, group) for _ in range(12)]
    sizes = []
    for first in range(0, 12, 4):
        loop.turn(0.0002, [partial(each.write, b"x") for each in clients[first : first + 4]])
        sizes.append(sum(len(client.wire.called) for client in clients))
    for _ in range(2):
        loop.turn(0.0002, [])
        sizes.append(sum(len(client.wire.called) for client in clients))
    assert sizes == [0, 0, 0, 0, 12]


def test_what_is_much_goes_out_at_once_and_what_follows_in_a_group_again() -> None:
    loop = Loop()
    client = Client(loop, WriteGroup(loop.call_soon, lambda: loop.now_s))
    much = bytes(HELD_MAX + 1)
    loop.turn(0.0001, [lambda: client.write(much), lambda: client.write(b"little")])
    assert client.wire.called == [much]
    for _ in range(2):
        loop.turn(0.0001, [])
    assert client.wire.called == [much, b"little"]


def test_a_connection_that_cannot_be_written_to_costs_the_others_nothing() -> None:
    loop = Loop()
    group = WriteGroup(loop.call_soon, lambda: loop.now_s)
    clients = [Client(loop, group) for _ in range(5)]
    clients[1].wire.called.append("write_eof")  # so that it raises
    loop.turn(0.0001, [partial(each.transport.write, b"answer") for each in clients])
    loop.turn(0.0001, [])
    with pytest.raises(AssertionError):
        loop.turn(0.0001, [])
    loop.turn(0.0001, [])
    assert [each.out() for each in clients] == [b"answer", b"", b"answer", b"answer", b"answer"]
    clients[0].write(b" again")
    for _ in range(2):
        loop.turn(0.0001, [])
    assert clients[0].out() == b"answer again"


def test_everything_else_is_the_transports_own() -> None:
    loop = Loop()
    client = Client(loop, WriteGroup(loop.call_soon, lambda: loop.now_s))
    assert client.transport.get_extra_info("peername") == "the wire's peername"
    assert not client.transport.is_closing()

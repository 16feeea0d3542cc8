"""What belongs to one process, under any sequence of uses and forks, against a simple model."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.client import ConnectionLostError
from streamydb.client.awaiting.transports import AsyncOwnedTransport
from streamydb.client.blocking.transports import OwnedTransport, complete
from streamydb.client.forks import AsyncOwned, Kept, Owned
from streamydb.client.requests import Open, Selection

STEPS = st.lists(st.sampled_from(["send", "open", "receive", "fork", "close", "end"]), max_size=12)
OPEN = Open(0, Selection())


class Parts:
    """A transport, and the stream that it opens; notes who was used and ended."""

    def __init__(self, number: int, ended: list[str]) -> None:
        self.number, self.ended = number, ended

    async def send(self, _: Any) -> int:
        return self.number

    async def open(self, _: Any) -> Parts:
        return self

    async def receive(self) -> list[Any]:
        return [self.number]

    async def close(self) -> None:
        self.ended.append(f"{self.number}")


def fork(*owners: Any) -> None:
    """Be another process, as these see it."""
    for each in owners:
        each._owned._process -= 1


def check(steps: list[str], transport: Any, do: Any, ended: list[str], left: list[int]) -> None:
    """Each process uses its own transport, made once; a stream is of the process that opened it."""
    made, forks, process, stream = 1, 0, 0, None
    here: int | None = 0
    opened_in = -1
    wanted: list[str] = []
    for step in steps:
        if step == "fork":
            fork(transport, *([] if stream is None else [stream]))
            forks, process, here = forks + 1, process + 1, None
        elif step in {"send", "open"}:
            if here is None:
                here, made = made, made + 1
            if step == "send":
                assert do(transport.send(None)) == here
            else:
                stream, opened_in = do(transport.open(OPEN)), process
        elif step == "receive" and stream is not None:
            if opened_in == process:
                assert do(stream.receive()) == [here]
            else:
                with pytest.raises(ConnectionLostError, match="another process"):
                    do(stream.receive())
        elif step == "end" and stream is not None:
            do(stream.close())
            wanted += [f"{here}"] if opened_in == process else []
        elif step == "close":
            do(transport.close())
            wanted += [] if here is None else [f"{here}"]
        assert ended == wanted
    do(transport.close())
    assert left == sorted(set(left))
    assert len(left) <= forks


@given(STEPS)
def test_each_process_has_its_own_transport(steps: list[str]) -> None:
    ended: list[str] = []
    left: list[int] = []
    numbers = iter(range(99))
    transport = OwnedTransport(
        lambda: Parts(next(numbers), ended), lambda parts: left.append(parts.number)
    )
    check(steps, transport, complete, ended, left)


@given(STEPS)
def test_the_same_for_coroutines_each_in_a_loop_of_its_own(steps: list[str]) -> None:
    ended: list[str] = []
    left: list[int] = []
    numbers = iter(range(99))
    transport = AsyncOwnedTransport(
        lambda: Parts(next(numbers), ended), lambda parts: left.append(parts.number)
    )

    def do(coroutine: Any) -> Any:
        async def done() -> Any:
            return await coroutine

        return asyncio.run(done())

    check(steps, transport, do, ended, left)


@given(st.lists(st.sampled_from(["take", "give", "close"]), max_size=20))
def test_what_is_kept_is_lent_once_and_closed_once(steps: list[str]) -> None:
    closed: list[int] = []
    numbers = iter(range(99))
    kept = Kept(lambda: next(numbers), closed.append)
    lent: list[int] = []
    free: list[int] = []
    for step in steps:
        if step == "take":
            taken = kept.take()
            assert taken not in lent + closed
            assert not free or taken == free.pop()
            lent.append(taken)
        elif step == "give" and lent:
            free.append(lent.pop())
            kept.give(free[-1])
        elif step == "close":
            kept.close()
            assert set(free) <= set(closed)
            free.clear()
    assert len(closed) == len(set(closed))


@given(st.lists(st.sampled_from(["get", "made", "fork", "put"]), max_size=20))
def test_a_thing_is_made_once_in_each_process(steps: list[str]) -> None:
    for kind in (Owned, AsyncOwned):
        owned: Owned[int] = kind(partial(next, iter(range(99))))
        expected: int | None = None
        count = 0
        for step in steps:
            if step == "fork":
                owned._process -= 1
                expected = None
            elif step == "put":
                owned.made()
                owned.put(-1)
                expected = -1
            elif step == "made":
                assert owned.made() == expected
            elif kind is Owned and step == "get":
                expected, count = (count, count + 1) if expected is None else (expected, count)
                assert owned.get() == expected

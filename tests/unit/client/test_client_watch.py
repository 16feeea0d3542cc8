"""Watching changes: in order, filtered, and without gap or repetition over any cuts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamydb.client import Change, NotConnectedError, Options
from streamydb.client.errors import ClientError, ConnectionLostError
from streamydb.client.problems import ForbiddenError, InvalidParameterError, SlowReaderError
from streamydb.client.requests import Event, Open, Pause, Progress, Receive, Request, Selection
from streamydb.client.session import Session
from streamydb.client.watch_core import Watching
from streamydb.facade import FacadeSettings
from streamydb.records import canonical
from streamydb.testing.clients import Kind, MemoryHost

Connect = Callable[..., Any]
QUICK = Options(backoff_s=0.001, backoff_max_s=0.002)


@pytest.fixture
def limits() -> FacadeSettings:
    return FacadeSettings(heartbeat_s=0.02)


def take(watch: Any, count: int) -> list[Change]:
    return [next(watch) for _ in range(count)]


def test_changes_come_in_order_with_all_that_is_known(connect: Connect) -> None:
    client = connect()
    with client.watch() as watch:
        made = client.atomic().put("a", [1]).put("é/\n", 2).commit()
        client.put("a", 3)
        client.delete("a")
        first, second, third, fourth = take(watch, 4)
        ending = client.put("b", 5, ttl_ms=60_000)
        assert take(watch, 1)[0].expires_ms == ending.ts_ms + 60_000
        assert {each.expires_ms for each in (first, second, third, fourth)} == {None}
        assert first == Change("a", "c", None, [1], 1, 1, made.ts_ms, made.id)
        assert (second.key, second.number) == ("é/\n", 2)
        assert (third.op, third.before, third.value) == ("u", [1], 3)
        assert (fourth.op, fourth.before, fourth.value, fourth.seq) == ("d", 3, None, 3)
        assert watch.seq == 4


def test_one_host_serves_watches_of_both_kinds(host: MemoryHost) -> None:
    kinds: tuple[Kind, ...] = ("http", "direct")
    with host.connect(kinds[0]).watch() as one, host.connect(kinds[1]).watch() as other:
        for number in range(3):
            host.connect(kinds[number % 2]).put("a", number)
            assert [next(one).value, next(other).value] == [number, number]


def test_all_keys_that_end_at_one_time_are_told(connect: Connect, host: MemoryHost) -> None:
    client, keys = connect(), {f"k{number}" for number in range(20)}
    client.transaction(updates=[{"op": "put", "key": key, "value": 1, "ttl_ms": 1} for key in keys])
    with client.watch() as watch:
        host.database.now_ms += 2
        client.put("first", 1)
        client.put("last", 1)
        told: list[str] = []
        while "last" not in told:
            told.append(next(watch).key)
    assert (told[0], len(told)) == ("first", 22)
    assert {*told[1:-1]} == keys


def test_a_watch_begins_when_it_is_entered_or_after_a_seq(connect: Connect) -> None:
    client = connect()
    client.put("old", 1)
    client.put("older", 1)
    with client.watch() as watch, client.watch(since=0) as everything:
        client.put("new", 1)
        assert next(watch).key == "new"
        assert [change.key for change in take(everything, 3)] == ["old", "older", "new"]
    with client.watch(since=1) as later:
        assert next(later).key == "older"


def test_a_prefix_filters(connect: Connect) -> None:
    client = connect()
    with client.watch("a/") as watch:
        client.atomic().put("a/1", 1).put("b", 1).commit()
        client.put("b", 2)
        client.put("a/2", 1)
        assert [change.key for change in take(watch, 2)] == ["a/1", "a/2"]


def test_ranges_and_checks_of_values_filter(connect: Connect) -> None:
    client = connect()

    def found(count: int, **wanted: Any) -> list[tuple[str, Any, Any]]:
        with client.watch(since=0, **wanted) as watch:
            return [(change.key, change.before, change.value) for change in take(watch, count)]

    for key, value in (("a", 1), ("é", 7), ("b", 7), ("b", 2)):
        client.put(key, value)
    client.delete("b")
    assert found(3, start="b", end="c") == [("b", None, 7), ("b", 7, 2), ("b", 2, None)]
    assert found(1, start="c") == [("é", None, 7)]
    assert found(2, where={"ge": 7}) == [("é", None, 7), ("b", None, 7)]
    assert found(1, where={"exists": False}) == [("b", 2, None)]
    assert found(1, where={"version": 4}) == [("b", 7, 2)]
    assert found(1, where_before={"gt": 2}, where={"lt": 5}, prefix="b") == [("b", 7, 2)]
    assert found(2, where_before={"eq": None}, end="c") == [("a", None, 1), ("b", None, 7)]


@pytest.mark.parametrize(
    "wanted",
    [{"where": {}}, {"where": {"near": 1}}, {"where": {"key": "a", "ge": 1}}, {"where": "ge"},
     {"where": {"ge": float("nan")}}, {"where": {"exists": 1}}, {"where_before": {"version": 1}},
     {"where": {"range": {"prefix": "a"}, "count": 1}}, {"start": "a" * 9_999}, {"end": 1}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anything_is_sent(
    connect: Connect, host: MemoryHost, wanted: dict[str, Any]
) -> None:
    with pytest.raises(InvalidParameterError, match=r"where|prefix, start and end"):
        connect().watch(**wanted)
    assert not host.faults.sent


@pytest.mark.parametrize("cuts", [[0, 0], [1], [2, 0, 1], [3], [4, 1], [5]])
def test_a_cut_leaves_no_gap_and_repeats_nothing(
    connect: Connect, host: MemoryHost, cuts: list[int]
) -> None:
    client = connect(options=QUICK)
    with client.watch() as watch:
        for number in range(3):
            client.atomic().put("a", number).put("b", number).put("c", number).commit()
        host.faults.cut = list(cuts)
        changes = take(watch, 9)
        assert [(c.seq, c.number) for c in changes] == [
            (seq, number) for seq in (1, 2, 3) for number in (1, 2, 3)
        ]
        assert watch.seq == 3
        assert host.faults.sent["Open"] >= 2


def test_a_watch_survives_refused_connections(connect: Connect, host: MemoryHost) -> None:
    client = connect(options=QUICK)
    with client.watch() as watch:
        client.put("a", 1)
        host.faults.refused = 20
        assert next(watch).key == "a"
        assert host.faults.refused == 0


def test_a_watch_gives_up_in_the_end_and_can_be_taken_up(
    connect: Connect, host: MemoryHost
) -> None:
    client = connect(options=Options(reconnect_s=0))
    with client.watch() as watch:
        client.put("a", 1)
        host.faults.refused = 1
        with pytest.raises(NotConnectedError):
            next(watch)
        assert watch.seq == 0
        assert next(watch).key == "a"


def test_a_session_read_sees_what_a_watch_has_shown(connect: Connect) -> None:
    other, client = connect(), connect()
    with client.watch(since=0) as watch:
        other.put("a", 1)
        next(watch)
        assert client.session.seq == 1


@pytest.mark.parametrize("kind", ["http", "direct"])
def test_a_wait_that_was_cancelled_loses_nothing(host: MemoryHost, kind: Kind) -> None:
    async def scenario() -> list[int]:
        async with host.connect_async(kind) as client, client.watch() as watch:
            await client.put("a", 1)
            found = [(await anext(watch)).seq]
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.wait([waiting], timeout=0.05)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            await client.put("a", 2)
            return [*found, (await anext(watch)).seq]

    assert host.portal.call(scenario()) == [1, 2]


@pytest.mark.parametrize("kind", ["http", "direct"])
@pytest.mark.parametrize("turns", range(6))
def test_what_comes_while_a_wait_is_cancelled_is_not_lost(
    host: MemoryHost, kind: Kind, turns: int
) -> None:
    """It is cancelled so many turns of the event loop after the change was published."""

    async def scenario() -> list[Any]:
        log = host.database.log
        async with host.connect_async(kind) as client, client.watch() as watch:
            await client.put("a", 1)
            found = [(await anext(watch)).value]
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.wait([waiting], timeout=0.05)
            for number in (2, 3):
                update = {"op": "put", "key": "a", "value": number}
                await log.append(f"t{number}", canonical({"id": f"t{number}", "updates": [update]}))
                for _ in range(turns):
                    await asyncio.sleep(0)
                waiting.cancel()
            await asyncio.wait([waiting])
            found += [] if waiting.cancelled() else [waiting.result().value]
            await client.put("a", "end")
            while found[-1] != "end":
                found.append((await anext(watch)).value)
            return found

    assert host.portal.call(scenario()) == [1, 2, 3, "end"]


LOG = [
    Change(f"{key}{number}", "u", 0, seq, seq, number, 1000, f"t{seq}")
    for seq in range(1, 7)
    for number in range(1, seq % 3 + 2)
    for key in ("z", "a")[: seq % 2 + 1]  # as keys that end together
]


class Server:
    """Streams of a log, cut and torn at will, as a facade may send them."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self._draw = draw
        self._left: list[Event] = []
        self.opened: list[int] = []
        self.told = 0

    def perform(self, request: Request[Any]) -> Any:
        if isinstance(request, Pause):
            return None
        if isinstance(request, Open):
            assert request.since == self.told
            self.opened.append(request.since)
            self._left = self._stream(request.since)
            if self._draw(4) == 0:
                raise NotConnectedError("down")
            return None
        assert isinstance(request, Receive)
        if not self._left or (self._draw(3) == 0 and len(self.opened) < 50):
            self._left = []
            raise ConnectionLostError("cut") if self._draw(2) else SlowReaderError("slow")
        count = 1 + self._draw(4)
        given, self._left = self._left[:count], self._left[count:]
        self.told = max([self.told, *(e.seq for e in given if isinstance(e, Progress))])
        return given

    def _stream(self, since: int) -> list[Event]:
        events: list[Event] = []
        for change, following in zip(LOG, [*LOG[1:], None], strict=True):
            if change.seq > since:
                events.append(change)
                if following is None or following.seq != change.seq:
                    events.append(Progress(change.seq))
        return events


def drive(flow: Generator[Any, Any, Any], perform: Callable[[Request[Any]], Any]) -> Any:
    try:
        request = next(flow)
        while True:
            try:
                answer = perform(request)
            except ClientError as error:
                request = flow.throw(error)
            else:
                request = flow.send(answer)
    except StopIteration as end:
        return end.value


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_whatever_is_cut_the_sequence_is_whole(seed: int) -> None:
    server = Server(random.Random(seed).randrange)
    watching = Watching(Session(Options(reconnect_s=1e9)), Selection(), 0)
    received: list[Change] = []
    for number in range(1, len(LOG) + 1):
        received.append(drive(watching.next(), server.perform))
        under_way = min((change.seq for change in LOG[number:]), default=len(LOG))
        assert (watching.seq or 0) <= under_way
    assert received == LOG
    assert server.opened == sorted(server.opened)


def test_a_watch_of_what_must_not_be_read_ends() -> None:
    def perform(_: Request[Any]) -> Any:
        raise ForbiddenError("no scope")

    watching = Watching(Session(), Selection(), 0)
    with pytest.raises(ForbiddenError):
        drive(watching.next(), perform)

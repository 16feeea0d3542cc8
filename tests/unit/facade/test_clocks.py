"""Clocks that are hours apart: the broker's, the facade's, the client's, still or jumping.

Writes succeed, or their error names the clocks; keys end at commit times; time that stands still
costs no ticks. All of it in virtual time: a clock is a number, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import json
import re
from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest

from streamydb.client import Options
from streamydb.client.errors import ClientError
from streamydb.client.session import Correction, Session
from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.clocks import LogClock
from streamydb.facade.ticks import Ticker
from streamydb.records.times import clocks_told, duration, moment
from streamydb.testing import MemoryHost
from streamydb.testing.memory import MemoryDatabase

START: Final = 1_700_000_000_000
HOURS: Final = 2 * 3_600_000
SKEWS: Final = (-HOURS, 0, HOURS)
PARTS: Final = ("broker", "facade", "client")
TTL_MS: Final = 60_000


class Clocks:
    """True time, and how far each part's clock is from it."""

    def __init__(self, **skew_ms: int) -> None:
        self.true_ms = START
        self.skew_ms = dict.fromkeys(PARTS, 0) | skew_ms

    def of(self, part: str) -> Callable[[], int]:
        return lambda: self.true_ms + self.skew_ms[part]

    def database(self) -> MemoryDatabase:
        database = MemoryDatabase()
        database.clock = self.of("broker")
        database.log.clock = LogClock(self.of("facade"))
        return database

    def session(self) -> Session:
        return Session(Options(timeout_s=5), wall_ms=self.of("client"))


CONSTELLATIONS: Final = [
    dict(zip(PARTS, skews, strict=True)) for skews in itertools.product(SKEWS, repeat=len(PARTS))
]


WRITES: Final[dict[str, Callable[[Any, int], Any]]] = {
    "put": lambda client, n: client.put("k", n),
    "transaction": lambda client, n: client.transaction(
        updates=iter([{"op": "put", "key": "k", "value": n}])
    ),
    "run": lambda client, n: client.run(lambda view: view.put("k", n)),
}


@pytest.mark.fault(
    50, "clocks of broker, facade and client: each two hours ahead, right or behind",
    "every write succeeds at once; a key ends at its commit time",
)  # fmt: skip
@pytest.mark.parametrize("kind", ["http", "direct"])
@pytest.mark.parametrize("skews", CONSTELLATIONS, ids=lambda skews: str([*skews.values()]))
def test_every_write_succeeds_whatever_the_clocks_say(skews: dict[str, int], kind: Any) -> None:
    clocks = Clocks(**skews)
    with MemoryHost(database=clocks.database()) as host:
        for n, write in enumerate(WRITES.values()):
            client = host.connect(kind, session=clocks.session())
            write(client, n)
            before = len(host.database.log.records)
            write(client, n)
            assert len(host.database.log.records) == before + 1, "the clock was not learned"
            assert client.get("k") == n
        made = client.put("ending", 1, ttl_ms=TTL_MS)
        assert made.ts_ms == START + skews["broker"]
        clocks.true_ms += TTL_MS - 1
        client.put("k", 8)
        assert client.get("ending") == 1
        clocks.true_ms += 1
        client.put("k", 9)
        assert client.get("ending") is None


@pytest.mark.fault(
    50, "clocks of broker, facade and client jump two hours ahead or back between writes",
    "every write succeeds, with one more record for each jump at the most",
)  # fmt: skip
@pytest.mark.parametrize("kind", ["http", "direct"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("by_ms", [-HOURS, HOURS])
def test_a_clock_that_jumps_costs_one_record(part: str, by_ms: int, kind: Any) -> None:
    clocks = Clocks()
    with MemoryHost(database=clocks.database()) as host:
        client = host.connect(kind, session=clocks.session())
        client.put("k", 0)
        for n in range(1, 7):
            clocks.skew_ms[part] += by_ms if n % 2 else -by_ms
            clocks.true_ms += 10_000
            before = len(host.database.log.records)
            client.put("k", n)
            assert len(host.database.log.records) - before <= 2
        assert client.get("k") == 6


@pytest.mark.fault(
    50, "the facade's clock is two hours wrong, or jumps, or the broker's does; plain HTTP",
    "PUT and POST succeed; a deadline of the sender's is refused with the clocks in the error",
)  # fmt: skip
@pytest.mark.parametrize("skew_ms", [-HOURS, 0, HOURS])
@pytest.mark.parametrize("jump", [("facade", HOURS), ("facade", -HOURS), ("broker", HOURS),
                                  ("broker", -HOURS)])  # fmt: skip
def test_deadlines_of_a_facade_follow_commit_times(skew_ms: int, jump: tuple[str, int]) -> None:
    async def run() -> None:
        clocks = Clocks(facade=skew_ms)
        database = clocks.database()
        async with served(database) as client:
            for by_ms in (0, jump[1]):
                clocks.skew_ms[jump[0]] += by_ms
                clocks.true_ms += 5_000
                assert (await client.put("/v1/kv/k", content=b"1")).status_code == 200
                body = {"updates": [{"op": "put", "key": "k", "value": 2}]}
                assert (await client.post("/v1/transactions", json=body)).status_code == 200
            for ahead_ms, code in ((-1, "deadline-passed"), (HOURS, "deadline-too-far")):
                named = {"Deadline-Ms": str(database.now_ms + ahead_ms)}
                refused = await client.post("/v1/transactions", json=body, headers=named)
                problem = refused.json()
                assert (refused.status_code >= 400, problem["code"]) == (True, code)
                assert problem["ts_ms"] == database.now_ms
                assert problem["facade_clock_ms"] == clocks.of("facade")()
                assert moment(database.now_ms) in problem["detail"]

    asyncio.run(run())


def served(database: MemoryDatabase) -> httpx.AsyncClient:
    """A facade without a server around it."""
    app = create_app(database.model, database.log, database.changes, FacadeSettings(tick_s=0))
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


def test_the_error_of_the_last_attempt_names_the_clocks() -> None:
    """A broker whose clock runs ahead with each record; and a deadline of the caller's."""
    clocks = Clocks()
    database = clocks.database()
    stamp_ms = clocks.of("broker")

    def running() -> int:
        clocks.skew_ms["broker"] += HOURS
        return stamp_ms()

    with MemoryHost(database=database) as host:
        client = host.connect("direct", session=clocks.session())
        client.put("k", 1)
        database.clock = running
        with pytest.raises(ClientError, match=r"commit time was 20.* this machine's clock said 20"):
            client.put("k", 2)
        assert len(database.log.records) == 4
        database.clock = stamp_ms
        with pytest.raises(ClientError, match="this machine's clock"):
            client.transaction(updates=[], deadline_ms=START - HOURS)
        assert client.put("k", 3).seq == 6


class Ticking:
    """A database whose clocks are turned by hand, and a ticker that looks when it is told."""

    def __init__(self) -> None:
        self.clocks = Clocks()
        self.database = self.clocks.database()
        log, model = self.database.log, self.database.model
        self.ticker = Ticker(model, log, FacadeSettings(tick_s=1))

    async def put(self, ttl_ms: int) -> None:
        name = f"t{len(self.database.log.records)}"
        put = {"op": "put", "key": name, "value": 1, "ttl_ms": ttl_ms}
        record = json.dumps({"id": name, "updates": [put]})
        await self.database.log.append(name, record.encode())

    async def looks(self, seconds: int) -> int:
        """Look once a second; return how many ticks that were."""
        before = self.ticker.appended
        for _ in range(seconds):
            self.clocks.true_ms += 1_000
            if await self.ticker._is_due():
                self.ticker.vain = 0 if await self.ticker._tick() else self.ticker.vain + 1
        return self.ticker.appended - before


@pytest.mark.fault(
    50, "the broker's clock jumps two hours ahead and back while keys have ends",
    "two ticks at most while commit times stand still; ends come when the clock is there again",
)  # fmt: skip
def test_ticks_rest_while_time_stands_still() -> None:
    async def run() -> None:
        ticking = Ticking()
        await ticking.put(TTL_MS)
        ticking.clocks.skew_ms["broker"] = HOURS
        await ticking.put(TTL_MS)
        assert await ticking.looks(2) == 0
        ticking.clocks.skew_ms["broker"] = 0
        assert await ticking.looks(3_600) <= 2
        clocks = ticking.database.log.clocks()
        assert clocks.still_ms == HOURS - 3_602_000
        assert clocks.ahead_ms == clocks.still_ms
        assert ticking.database.model.latest().ts_ms == START + HOURS
        with ticking.database.model.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan()] == ["t1"]
        assert 1 <= await ticking.looks(3_700) <= 2
        assert ticking.database.log.clocks().still_ms == 0
        with ticking.database.model.snapshot() as snapshot:
            assert not list(snapshot.scan())

    asyncio.run(run())


def test_ticks_in_vain_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clocks told: a tick that moved nothing is followed by a longer pause."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 60:
            raise asyncio.CancelledError

    async def run() -> None:
        ticking = Ticking()
        await ticking.put(TTL_MS)
        ticking.database.clock = lambda: START
        monkeypatch.setattr(ticking.database.log, "time_ms", lambda: START + HOURS)
        monkeypatch.setattr("streamydb.facade.ticks.asyncio.sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await ticking.ticker.run()
        assert ticking.ticker.vain == ticking.ticker.appended
        assert sum(pauses) / ticking.ticker.appended > 20
        assert max(pauses) <= 60 * 1.2

    asyncio.run(run())


def test_a_clock_that_is_far_behind_commit_times_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = LogClock(lambda: START)
    for commit_ms in (START, START + HOURS, START + HOURS + 1):
        clock.decided(commit_ms)
    assert [record.message[:26] for record in caplog.records] == ["commit times are 2 h 0 min"]
    assert re.search(r"stand still until then.*ClockSkew", caplog.text, re.DOTALL)


@pytest.mark.parametrize("difference", [-HOURS, -1, 0, 1, HOURS])
def test_a_correction_stays_within_what_was_told(difference: int) -> None:
    now = [START]
    known = Correction(lambda: now[0])
    now[0] += 300
    known.learn(START + difference + 100, START)
    assert -200 <= known.behind_ms - difference <= 100
    known.learn(START - HOURS, None)
    assert -200 <= known.behind_ms - difference <= 100, "an old stamp says nothing"
    now[0] = START - HOURS  # this clock goes back between sending and the answer
    known.learn(START + difference, START + 300)
    assert known.now_ms() == START + difference


def test_times_for_people() -> None:
    assert [duration(ms) for ms in (0, 1_500, 61_000, -HOURS)] == [
        "0 s", "1.5 s", "1 min 1 s", "2 h 0 min 0 s",
    ]  # fmt: skip
    assert moment(START) == "2023-11-14T22:13:20.000Z"
    day = dt.timedelta(days=1)
    for n in range(0, 2_932_896, 97):
        at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + n * day
        assert moment(86_400_000 * n + 7) == f"{at:%Y-%m-%d}T00:00:00.007Z"
    assert moment(1 << 62) == f"{1 << 62} ms after 1970"
    assert clocks_told("my", START + 1_000, START).endswith("1 s ahead of it.")
    assert clocks_told("my", START, START + 1_000).endswith("1 s behind it.")

"""Time goes on without writers: a facade appends a transaction when a key has ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable

import httpx
import pytest

from streamydb.facade import FacadeSettings
from streamydb.facade.ticks import Ticker
from streamydb.records import Transaction, decode
from streamydb.testing.database import wait_for
from streamydb.testing.memory import MemoryDatabase
from tests.support.served import serving

pytestmark = pytest.mark.timeout(60)

SETTINGS = FacadeSettings(tick_s=0.01, append_timeout_s=0.2, verdict_timeout_s=0.2)
PUT = {"op": "put", "key": "k", "value": 1}


class World:
    """A database whose clock is turned by hand, and a ticker over it."""

    def __init__(self) -> None:
        """Begin empty."""
        self.database = MemoryDatabase()
        self.now_ms = 1_000
        self.database.clock = lambda: self.now_ms
        self.ticker = Ticker(self.database.model, self.database.log, SETTINGS)

    async def put(self, ttl_ms: int | None, key: str = "k") -> None:
        """Write a key."""
        number = len(self.database.log.records)
        ends = {} if ttl_ms is None else {"ttl_ms": ttl_ms}
        record = {"id": f"t{number}", "updates": [{**PUT, "key": key, **ends}]}
        await self.database.log.append(f"t{number}", json.dumps(record).encode())

    def over(self) -> bool:
        """True while readers see a key that has ended."""
        with self.database.model.snapshot() as snapshot:
            ends = (entry.expires_ms for entry in snapshot.scan())
            return any(end is not None and end <= self.now_ms for end in ends)

    @property
    def there(self) -> bool:
        """True while readers see the key."""
        with self.database.model.snapshot() as snapshot:
            return snapshot.get("k") is not None

    async def until(self, condition: Callable[[], bool], *, during_s: float = 5) -> bool:
        """Run the ticker until a condition holds, or for a time; whether it does."""
        task = asyncio.create_task(self.ticker.run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(during_s):
                while not (condition() or task.done()):  # noqa: ASYNC110 - nothing tells it
                    await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()
        return condition()


def test_a_key_ends_for_readers_while_nobody_writes() -> None:
    async def run() -> None:
        world = World()
        await world.put(500)
        assert not await world.until(lambda: not world.there, during_s=0.2)
        assert world.ticker.appended == 0
        world.now_ms = 1_500
        assert await world.until(lambda: not world.there)
        assert world.ticker.appended == 1
        tick = decode(world.database.log.records[-1])
        assert isinstance(tick, Transaction)
        assert tick.id.startswith("tick-")
        assert tick.deadline == 1_500 + 60_000
        world.now_ms = 10_000
        assert not await world.until(lambda: world.ticker.appended > 1, during_s=0.2)

    asyncio.run(run())


def test_nothing_is_appended_for_what_is_there_for_good() -> None:
    async def run() -> None:
        world = World()
        for ttl_ms in (50, None):
            await world.put(ttl_ms)
        world.now_ms = 100_000
        assert not await world.until(lambda: world.ticker.appended > 0, during_s=0.2)

    asyncio.run(run())


def test_one_tick_is_waited_for_while_nothing_is_executed() -> None:
    async def run() -> None:
        world = World()
        await world.put(10)
        world.database.executing = False
        world.now_ms = 2_000
        assert not await world.until(lambda: world.ticker.appended > 6, during_s=1.2)
        assert world.ticker.appended > 1, "it is tried again, at growing intervals"
        world.database.executing = True
        world.database.run()
        assert not world.there

    asyncio.run(run())


@pytest.mark.parametrize("fault", ["refusing", "unknowing"])
def test_a_tick_that_fails_is_tried_again(fault: str) -> None:
    async def run() -> None:
        world = World()
        await world.put(10)
        world.now_ms = 2_000
        world.database.model.broken = True
        assert not await world.until(lambda: world.ticker.appended > 0, during_s=0.1)
        world.database.model.broken = False
        setattr(world.database.log, fault, True)
        assert await world.until(lambda: not world.there, during_s=0.3) == (fault == "unknowing")
        setattr(world.database.log, fault, False)
        assert await world.until(lambda: not world.there)

    asyncio.run(run())


def test_a_fault_that_nobody_foresaw_does_not_end_ticks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        world = World()
        await world.put(10)
        world.now_ms = 2_000
        with monkeypatch.context() as broken:
            broken.setattr(world.ticker, "_tick", lambda: 1 / 0)
            assert not await world.until(lambda: not world.there, during_s=0.2)
        assert await world.until(lambda: not world.there)

    asyncio.run(run())
    assert "a tick failed with ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("seed", range(6))
def test_nobody_reads_what_has_ended(seed: int) -> None:
    """Whatever is written and however time passes, and nothing is appended without need."""
    dice = random.Random(seed)

    async def run() -> None:
        world = World()
        for _ in range(15):
            for _ in range(dice.choice([0, 0, 1, 3])):
                await world.put(dice.choice([None, 1, 5, 20, 1_000]), dice.choice("abc"))
            world.now_ms += dice.choice([0, 1, 4, 30, 2_000])
            over = world.over()
            before = world.ticker.appended
            assert await world.until(lambda: not world.over(), during_s=5)
            assert world.ticker.appended - before == bool(over)
            settled = world.ticker.appended
            await asyncio.sleep(0.05)
            assert world.ticker.appended == settled

    asyncio.run(run())


def test_a_facade_ticks() -> None:
    database = MemoryDatabase()
    with serving(database=database) as served, httpx.Client(base_url=served.url) as client:
        assert client.put("/v1/kv/k?ttl_ms=200", json=1).status_code == 200
        assert client.get("/v1/kv/k").json() == 1
        wait_for(lambda: client.get("/v1/kv/k").status_code == 404, "the end of a key", 10)
        assert "streamydb_facade_ticks 1.0" in client.get("/metrics").text
    with serving(FacadeSettings(port=0, tick_s=0), database) as served:
        seen = len(database.log.records)
        httpx.put(f"{served.url}/v1/kv/k?ttl_ms=1", json=1)
        assert httpx.get(f"{served.url}/v1/kv/k").json() == 1
        assert len(database.log.records) == seen + 1

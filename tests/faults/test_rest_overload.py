"""Ten times more than the facade can do, slow clients and many watchers (FAULTS 24).

What is accepted is answered in bounded time, the rest is told to come back, memory is bounded, and
every accepted write is in the log once. The figures are printed; what is asserted are bounds of the
settings, not speeds.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from streamydb.kafka import TopicNames
from streamydb.kafka.connection import watermarks
from streamydb.testing.database import wait_for
from tests.support.overload import Tally, run_load
from tests.support.serving import Served

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

VERDICT_S, APPEND_S, HEAD_S = 10, 5, 3
WAIT_S_MAX = 2 * (APPEND_S + VERDICT_S)
"""What the facade's queues may take, and as much for its event loop on a machine full of tests."""
PROCESSES = 2
WARM_S = 2.0
"""The median of a database whose code is compiled and loaded, on a busy machine."""
SETTINGS = {
    "STREAMYDB_SERVE_VERDICT_TIMEOUT_S": str(VERDICT_S),
    "STREAMYDB_SERVE_APPEND_TIMEOUT_S": str(APPEND_S),
    "STREAMYDB_SERVE_HEAD_TIMEOUT_S": str(HEAD_S),
    "STREAMYDB_SERVE_SEND_TIMEOUT_S": "3",
    "STREAMYDB_SERVE_CONNECTIONS_MAX": "6000",
    "STREAMYDB_SERVE_REQUESTS_MAX": "6000",
    "STREAMYDB_SERVE_STREAMS_MAX": "3000",
    "STREAMYDB_SERVE_CLIENT_STREAMS_MAX": "3000",
}
GROWTH_BYTES_MAX = 600 << 20
"""What the facade may take in addition: the sum of its budgets, and room for connections."""


def offer(pool: ProcessPoolExecutor, db: Served, rate: float, seconds: float, **more: Any) -> Tally:
    """Load the facade from several processes and addresses."""
    options = {"rate": rate / PROCESSES, "seconds": seconds, "connections": 1000, **more}
    whole = Tally()
    futures = []
    for number in range(PROCESSES):
        addresses = [f"127.0.{number + 1}.{n}" for n in range(1, 5)]
        futures.append(pool.submit(run_load, db.urls[0], addresses, 100 * number, options))
    for future in futures:
        whole.add(future.result())
    return whole


class Crowd:
    """Watchers that read, watchers that do not, and clients that never finish a request."""

    def __init__(self, url: str, watchers: int, deaf: int, mute: int) -> None:
        place = urlsplit(url)
        self._place = (str(place.hostname), int(place.port or 80))
        self._counts = (watchers, deaf, mute)
        self.connected = 0
        self.cut_off = 0
        self.hot_events = 0

    async def run(self, stop: threading.Event) -> None:
        watchers, deaf, mute = self._counts
        tasks = [asyncio.create_task(self._watch(n)) for n in range(watchers)]
        tasks += [asyncio.create_task(self._hold(True)) for _ in range(deaf)]
        tasks += [asyncio.create_task(self._hold(False)) for _ in range(mute)]
        await asyncio.to_thread(stop.wait)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            with suppress(asyncio.CancelledError):
                task.result()

    async def _watch(self, number: int) -> None:
        """A watcher that reads all it gets: of five, much. Many share an address."""
        prefix = "o/" if number < 5 else "quiet/"
        address = f"127.0.8.{1 + number % 20}"
        reader, writer = await asyncio.open_connection(*self._place, local_addr=(address, 0))
        writer.write(_get(f"/v1/changes?prefix={prefix}"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.partition(b"\r\n")[0], head
        self.connected += 1
        try:
            while chunk := await reader.read(65_536):
                self.hot_events += chunk.count(b"event: change")
        finally:
            writer.close()

    async def _hold(self, deaf: bool) -> None:  # noqa: FBT001 - one of two kinds
        """A client that asks and does not read, or one that never gets to the end of asking."""
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    *self._place, local_addr=("127.0.9.2", 0), limit=1
                )
                try:
                    writer.write(_get("/v1/changes?since=0") if deaf else b"GET /v1/kv/")
                    if deaf:
                        writer.transport.pause_reading()  # type: ignore[attr-defined]
                        await asyncio.sleep(60)
                    await reader.read()
                    self.cut_off += 1
                finally:
                    writer.transport.abort()


@contextmanager
def crowd(url: str, watchers: int) -> Iterator[Crowd]:
    """A crowd on a facade while the body runs."""
    made = Crowd(url, watchers, deaf=20, mute=200)
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(made.run(stop))
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def _get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


class Memory:
    """The largest resident size of a process, looked at in a thread."""

    def __init__(self, db: Served) -> None:
        self._facade = db.facades[0]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.begin = self.most = self._facade.rss_bytes

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self.most = max(self.most, self._facade.rss_bytes)


def times_in_the_log(db: Served) -> Counter[str]:
    """How many records of the log have each id."""
    topic = TopicNames(db.name).transactions
    consumer = Consumer({"bootstrap.servers": db.broker.bootstrap, "group.id": "overload"})
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    _, end = watermarks(consumer, topic, 0, 30)
    found: Counter[str] = Counter()
    last = -1
    while last < end - 1:
        for message in consumer.consume(5000, timeout=1):
            assert message.error() is None, message.error()
            found[json.loads(message.value() or b"{}")["id"]] += 1
            last = message.offset() or 0
    consumer.close()
    return found


def overload(folder: Path, seconds: float, watchers: int) -> None:
    with (
        Served(folder, facades=1, environment=SETTINGS) as db,
        ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool,
    ):
        warm = offer(pool, db, 100, 3)
        while not warm.accepted or warm.quantile(0.5) > WARM_S:
            warm.seconds.clear()
            warm.add(offer(pool, db, 100, 3))
        full = offer(pool, db, 2000, 4)
        capacity = len(full.accepted) / 4
        normal = offer(pool, db, 0.8 * capacity, 5)
        print(f"\ncapacity {capacity:.0f} writes/s; at 80 %: {normal.text()}")  # noqa: T201
        with crowd(db.urls[0], watchers) as people, Memory(db) as memory:
            wait_for(lambda: people.connected >= watchers, "the coming of all watchers")
            tally = offer(pool, db, 10 * capacity, seconds, leave=0.02)
            metrics = httpx.get(f"{db.urls[0]}/metrics", timeout=30).text
        rate = len(tally.accepted) / seconds
        print(f"at 10 x: {rate:.0f} writes/s; {tally.text()}")  # noqa: T201
        print(  # noqa: T201
            f"resident {memory.begin >> 20} MiB before, {memory.most >> 20} MiB at most; "
            f"{people.connected} watchers, {people.hot_events} events, {people.cut_off} cut off"
        )
        judge(db, [warm, full, normal, tally], people, memory, watchers)
        assert "streamydb_facade_connections " in metrics


def judge(db: Served, tallies: list[Tally], people: Crowd, memory: Memory, watchers: int) -> None:
    last = tallies[-1]
    assert [fault for tally in tallies for fault in tally.faults] == []
    assert last.statuses["503"] + last.statuses["429"] > 0, "that was no overload"
    assert last.accepted, "nothing was accepted"
    assert last.quantile(0.99) < WAIT_S_MAX
    assert memory.most - memory.begin < GROWTH_BYTES_MAX
    assert people.connected >= watchers
    assert people.hot_events > 0
    assert people.cut_off > 0
    times = times_in_the_log(db)
    assert {times[one] for tally in tallies for one in tally.accepted} == {1}
    assert {times[one] for tally in tallies for one in tally.refused} <= {0}
    assert db.assert_serial().ok
    assert httpx.get(f"{db.urls[0]}/v1/kv/o/0001", timeout=30).status_code == 200


@pytest.mark.fault(
    24,
    "ten times the capacity for 10 s, with deaf and mute clients",
    "429 and 503, bounded memory; equal to the serial replay",
)
@pytest.mark.long
def test_overload_for_seconds(tmp_path: Path) -> None:
    overload(tmp_path, seconds=10, watchers=300)


@pytest.mark.fault(
    24,
    "the same for a minute with 2,000 watchers",
    "429 and 503, bounded memory; equal to the serial replay",
)
@pytest.mark.long
def test_overload_for_a_minute_with_thousands_of_watchers(tmp_path: Path) -> None:
    overload(tmp_path, seconds=60, watchers=2000)

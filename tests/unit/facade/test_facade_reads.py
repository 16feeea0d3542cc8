"""How the facade's reads wait: strong, session, snapshot, at; shared looks at the log's end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from streamydb.client.problems import ReadModelBehindError
from streamydb.client.requests import MARGIN_S, Emissions, Freshness, Read, Scan
from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.cursors import encode_cursor
from streamydb.facade.direct import DirectTransport
from streamydb.facade.ports import PageBounds, StreamRow, StreamSpan
from streamydb.facade.reads import ReadWaiter, in_thread
from streamydb.facade.stream_pages import StreamPosition
from streamydb.facade.waiting import SingleFlight
from streamydb.read_model.ports import JsonPage
from streamydb.records.ranges import ALL_KEYS, ScanRange
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryChanges, MemoryStreams
from streamydb.testing.memory_model import MemoryEntry, MemorySnapshot


def connect(database: MemoryDatabase, **limits: Any) -> InProcess:
    settings = FacadeSettings(**limits)
    return InProcess(create_app(database.model, database.log, database.changes, settings))


async def settle(turns: int = 50) -> None:
    """Let everything that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.mark.parametrize("query", ["", "?consistency=strong"])
@scenario
async def test_a_strong_read_waits_for_what_was_answered(query: str) -> None:
    database = MemoryDatabase()
    database.resolving = False
    async with connect(database, poll_s=0.001) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        stale = await client.request("GET", "/v1/kv/a?consistency=snapshot")
        assert stale.status == 404
        reading = asyncio.create_task(client.request("GET", f"/v1/kv/a{query}"))
        await settle()
        assert not reading.done()
        database.resolve()
        answer = await reading
        assert (answer.status, answer.body) == (200, b"1")


@scenario
async def test_a_strong_read_waits_for_no_more_than_that() -> None:
    database = MemoryDatabase()
    async with connect(database, poll_s=0.001) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        database.resolving = False
        reading = asyncio.create_task(client.request("GET", "/v1/kv/a"))
        await until(lambda: database.log.asks == 1)
        await client.request("PUT", "/v1/kv/a", b"2")
        answer = await reading
        assert answer.body == b"1"


@scenario
async def test_strong_lists_and_reads_of_many_keys_wait_too() -> None:
    database = MemoryDatabase()
    database.resolving = False
    async with connect(database, poll_s=0.001) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        listing = asyncio.create_task(client.request("GET", "/v1/kv"))
        reading = asyncio.create_task(client.request("POST", "/v1/read", b'{"keys": ["a"]}'))
        at_once = await client.request(
            "POST", "/v1/read", b'{"keys": ["a"], "consistency": "snapshot"}'
        )
        assert at_once.json() == {"seq": 0, "entries": {"a": None}}
        assert not listing.done()
        assert not reading.done()
        database.resolve()
        assert (await listing).json()["entries"][0]["value"] == 1
        assert (await reading).json()["entries"]["a"]["value"] == 1


@pytest.mark.parametrize("query", ["min_version=1", "consistency=session&min_version=1", "at=1"])
@scenario
async def test_a_session_reads_its_own_writes(query: str) -> None:
    database = MemoryDatabase()
    database.resolving = False
    async with connect(database, poll_s=0.001) as client:
        assert (await client.request("PUT", "/v1/kv/a", b"1")).json()["seq"] == 1
        reading = asyncio.create_task(client.request("GET", f"/v1/kv/a?{query}"))
        await settle()
        assert not reading.done()
        database.resolve()
        assert (await reading).body == b"1"
        assert database.log.asks == 0


@scenario
async def test_a_read_that_waited_too_long_says_so() -> None:
    database = MemoryDatabase()
    database.resolving = False
    async with connect(database, poll_s=0.001, read_timeout_s=0.03) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        for query in ("consistency=strong", "min_version=1", "at=1", "at=99"):
            answer = await client.request("GET", f"/v1/kv/a?{query}")
            assert (answer.status, answer.problem) == (503, "read-model-behind")
            assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("query", ["at=4", "min_version=4", "consistency=strong&min_version=4"])
@scenario
async def test_a_seq_that_cannot_come_is_told_at_once(query: str) -> None:
    """Two more records are in the log than are shown: seq 3 may come, 4 may not."""
    database = MemoryDatabase()
    async with connect(database, poll_s=0.001, read_timeout_s=60, verdict_timeout_s=0.01) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        database.executing = False
        for key in "bc":
            await client.request("PUT", f"/v1/kv/{key}", b"1")
        answer = await client.request("GET", f"/v1/kv/a?{query}")
        assert (answer.status, answer.problem) == (400, "invalid-parameter")
        shown = answer.json()
        assert shown["detail"] == (
            "No transaction has seq 4 yet: reads show seq 1, and the log has 2 records after it."
        )
        assert (shown["latest"], shown["parameters"]) == (
            1,
            ["at" if query.startswith("at") else "min_version"],
        )
        waiting = asyncio.create_task(client.request("GET", "/v1/kv/c?at=3"))
        await settle()
        assert not waiting.done()
        database.executing = True
        database.run()
        assert (await waiting).body == b"1"


@scenario
async def test_without_kafka_a_seq_to_come_is_waited_for() -> None:
    database = MemoryDatabase()
    async with connect(database, poll_s=0.001, read_timeout_s=0.01) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        database.log.refusing = True
        assert (await client.request("GET", "/v1/kv/a?at=9")).problem == "read-model-behind"


@scenario
async def test_a_look_that_hangs_ends_in_time() -> None:
    database = MemoryDatabase()
    database.log.stalled = asyncio.Event()
    async with connect(database, read_timeout_s=0.03) as client:
        answer = await client.request("GET", "/v1/kv/a")
        assert (answer.status, answer.problem) == (503, "read-model-behind")
        database.log.stalled.set()
        assert (await client.request("GET", "/v1/kv/a")).status == 404


@pytest.mark.parametrize(
    "query",
    ["consistency=session", "consistency=weak", "at=1&consistency=strong", "at=1&min_version=2",
     "at=1&consistency=session&min_version=1", "min_version=0"],
)  # fmt: skip
@scenario
async def test_reads_that_contradict_themselves(query: str) -> None:
    async with connect(MemoryDatabase()) as client:
        answer = await client.request("GET", f"/v1/kv/a?{query}")
        assert (answer.status, answer.problem) == (400, "invalid-parameter")


@scenario
async def test_no_read_shares_a_look_that_began_before_it() -> None:
    database = MemoryDatabase()
    log = database.log
    ends = SingleFlight(log.published)
    log.stalled = asyncio.Event()
    first = asyncio.create_task(ends.look())
    await settle()
    assert log.asks == 1
    second = asyncio.create_task(ends.look())
    third = asyncio.create_task(ends.look())
    await settle()
    assert log.asks == 1  # the next look waits for this one
    log.stalled.set()
    await first
    assert await second == await third
    assert log.asks == 2


@scenario
async def test_a_look_outlives_the_read_that_asked_for_it() -> None:
    log = MemoryDatabase().log
    ends = SingleFlight(log.published)
    log.stalled = asyncio.Event()
    first, second = (asyncio.create_task(ends.look()) for _ in range(2))
    await settle()
    first.cancel()
    log.stalled.set()
    assert await second == 0
    log.refusing = True
    failing = asyncio.create_task(ends.look())
    await asyncio.wait([failing])
    assert failing.exception() is not None
    log.refusing = False
    assert await ends.look() == 0


@scenario
async def test_all_who_wait_share_one_poller() -> None:
    database = MemoryDatabase()
    progress = ReadWaiter(database.model, 0.001)
    waits = [asyncio.create_task(progress.until(lambda now: now.seq >= 1)) for _ in range(100)]
    await until(lambda: database.model.looks > 200)  # all have looked; the first poll wakes all
    seen = database.model.looks
    await until(lambda: database.model.looks >= seen + 5)
    assert database.model.looks < seen + 50
    database.log.records.append(b'{"id": "a"}')
    database.run()
    await asyncio.gather(*waits)
    assert progress._waiting == 0


@scenario
async def test_looks_come_soon_after_a_step_and_ever_later_without_one() -> None:
    database = MemoryDatabase()
    progress = ReadWaiter(database.model, 0.8)
    pauses: list[float] = []
    others = asyncio.sleep

    async def sleep_at_once(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            for txn_id in (b"a", b"b"):
                database.log.records.append(b'{"id": "%b"}' % txn_id)
            database.run()
        await others(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep_at_once)
        assert (await progress.until(lambda now: now.seq >= 2)).seq == 2
    soon = [0.1, 0.2, 0.4, 0.8, 0.8, 0.8]
    assert pauses == pytest.approx([0.1, *soon, 0.8, 0.1]), "it moves before the 1st and the 8th"


@scenario
async def test_a_step_between_the_look_and_the_poll_is_not_missed() -> None:
    database = MemoryDatabase()
    progress = ReadWaiter(database.model, 0.001)
    waiting = asyncio.create_task(progress.until(lambda now: now.seq >= 1))
    await asyncio.sleep(0)  # it has looked; the poller has not begun
    database.log.records.append(b'{"id": "a"}')
    database.run()
    async with asyncio.timeout(5):
        await waiting


@scenario
async def test_a_read_model_that_breaks_wakes_who_waits() -> None:
    database = MemoryDatabase()
    database.resolving = False
    async with connect(database, poll_s=0.001) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        reading = asyncio.create_task(client.request("GET", "/v1/kv/a"))
        await until(lambda: database.log.asks == 1)
        await settle()
        database.model.broken = True
        answer = await reading
        assert (answer.status, answer.problem) == (503, "not-ready")


@scenario
async def test_a_read_without_a_facade_waits_no_longer_than_it_may() -> None:
    """Its client's time is shorter than the wait that the settings allow."""
    database = MemoryDatabase()
    changes, settings = MemoryChanges(database.changes), FacadeSettings(read_timeout_s=3600)
    transport = DirectTransport(database.model, database.log, changes, settings)
    beyond = Freshness(consistency="session", min_version=1)
    for request in (Read(("a",), beyond, -MARGIN_S), Scan(ALL_KEYS, 1, None, beyond, -MARGIN_S)):
        with pytest.raises(ReadModelBehindError):
            await transport.send(request)
    database.resolving = False
    database.log.records.append(b'{"id": "a"}')
    with pytest.raises(ReadModelBehindError):
        await transport.send(Emissions("a.b", None, None, 9, 9 - MARGIN_S))
    await transport.close()


RECORD = b'{"stream":"a.b","seq":1,"index":1,"ts_ms":1,"id":"t","batch":1,"record":1}'


@scenario
async def test_a_page_of_a_stream_without_a_facade_takes_no_longer_than_it_may() -> None:
    asked: list[float] = []

    class Streams(MemoryStreams):
        async def offset_after(
            self, partition: int, seq: int, ts_ms: int, patience_s: float
        ) -> int:
            asked.append(patience_s)
            return await super().offset_after(partition, seq, ts_ms, patience_s)

        async def history(
            self, wanted: StreamSpan, bounds: PageBounds
        ) -> tuple[list[StreamRow], int]:
            asked.append(bounds.patience_s)
            return await super().history(wanted, bounds)

    database = MemoryDatabase()
    changes = MemoryChanges(database.changes)
    changes.streams = Streams()
    changes.streams.put(b"a.b", RECORD)
    settings = FacadeSettings(read_timeout_s=60)
    transport = DirectTransport(database.model, database.log, changes, settings)
    cursor = encode_cursor(StreamPosition("a.b"))
    await transport._connected()
    await transport.send(Emissions("a.b", cursor, None, 5, 5 + 2))
    await transport.send(Emissions("a.b", cursor, None, 5, 5 + 99))
    assert asked == [2 + MARGIN_S, 2 + MARGIN_S, 60, 60]
    await transport.close()


@pytest.mark.parametrize("limit", [3, 500])
@scenario
async def test_a_long_scan_does_not_hold_up_other_requests(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on in a thread when too many deleted keys lie before what it looks for."""
    database = MemoryDatabase()
    whole, others = MemorySnapshot.scan_json, threading.Event()
    in_loop: list[bool] = []

    def scan(
        self: MemorySnapshot, keys: ScanRange, *, at_once: bool = False, **given: Any
    ) -> JsonPage:
        in_loop.append(at_once)
        if at_once:
            return JsonPage(b"", None, whole=False)
        assert others.wait(30)
        return whole(self, keys, **given)

    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        monkeypatch.setattr(MemorySnapshot, "scan_json", scan)
        listing = asyncio.create_task(client.request("GET", f"/v1/kv?prefix=a&limit={limit}"))
        await until(lambda: bool(in_loop) and not in_loop[-1])
        assert (await client.request("GET", "/v1/kv/a")).body == b"1"
        assert not listing.done()
        others.set()
        found = (await listing).json()
    assert [entry["key"] for entry in found["entries"]] == ["a"]
    assert in_loop == ([True, False] if limit == 3 else [False])


@scenario
async def test_a_long_scan_straight_over_kafka_holds_up_nobody_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = MemoryDatabase()
    whole, others = MemorySnapshot.scan, threading.Event()

    def scan(self: MemorySnapshot, *given: Any, **named: Any) -> list[MemoryEntry]:
        assert others.wait(30)
        return whole(self, *given, **named)

    monkeypatch.setattr(MemorySnapshot, "scan", scan)
    direct = DirectTransport(database.model, database.log, database.changes)
    asked = Scan(ALL_KEYS, 200, None, Freshness(None, "snapshot", None), 30)
    scanning = asyncio.create_task(direct.send(asked))
    await settle()
    others.set()
    assert (await scanning).entries == []
    await direct.close()


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("which", ["request", "all"])
@scenario
async def test_a_thread_is_waited_for_however_often_its_request_is_cancelled(
    times: int, which: str
) -> None:
    """Else the snapshot that it reads would be closed meanwhile: so ends a loop, task by task."""
    begun, go_on, ended, closed = (threading.Event() for _ in range(4))

    def read() -> None:
        begun.set()
        assert go_on.wait(30)
        assert not closed.is_set()
        ended.set()

    async def request() -> None:
        try:
            await in_thread(read)
        finally:
            closed.set()

    before = asyncio.all_tasks()
    task = asyncio.create_task(request())
    await asyncio.to_thread(begun.wait, 30)
    for _ in range(times):
        for each in asyncio.all_tasks() - before if which == "all" else {task}:
            each.cancel()
        await settle()
        assert not closed.is_set()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()

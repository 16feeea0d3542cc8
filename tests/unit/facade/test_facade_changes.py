"""The facade's event streams: order, resuming, heartbeats, slow readers, merged partitions."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.feed import Feed, Merger
from streamydb.facade.ports import ChangeBatch, ChangeEvent
from streamydb.facade.problems import ProblemError
from streamydb.records import Resolved, decode_change, encode_resolved
from streamydb.testing.in_process import InProcess, scenario
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryChanges
from streamydb.verify.oracle.core import Oracle

Event = dict[str, Any]
Record = tuple[bytes | None, bytes | None]


def connect(database: MemoryDatabase, **limits: Any) -> InProcess:
    settings = FacadeSettings(**limits)
    return InProcess(create_app(database.model, database.log, database.changes, settings))


def parse(data: bytes) -> list[Event]:
    """The events of a stream, comments left out, as a browser would give them."""
    events, last = [], None
    for block in data.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line[1:])
        last = fields.get("id", last)
        if "data" in fields:
            data_field = json.loads(fields["data"])
            events.append({"event": fields["event"], "last": last, **data_field})
    return events


def pair(txn_id: str, *keys: str) -> bytes:
    updates = [{"op": "put", "key": key, "value": txn_id} for key in keys]
    return json.dumps({"id": txn_id, "updates": updates}).encode()


@scenario
async def test_old_changes_begin_after_the_seq_that_was_asked_for() -> None:
    source = MemoryChanges()
    for resolved in (3, 5, 6):
        source.put(ChangeBatch(resolved, tuple(ChangeEvent(seq, 1, "a", b"{}") for seq in
                                         range(resolved - 1, resolved + 1))))  # fmt: skip
    feed = Feed(source, bytes_max=1, catch_ups_max=1)
    await feed.start()
    old = feed.batches(2, 1)
    seqs = [[event.seq for event in batch.changes] for _ in range(2) if (batch := await anext(old))]
    await old.aclose()
    assert seqs == [[3], [4, 5]]


@scenario
async def test_changes_come_in_order_with_the_seq_as_id() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await client.request("POST", "/v1/transactions", pair("t1", "a", "b"))
        stream = await client.stream("/v1/changes?since=0")
        await client.request("DELETE", "/v1/kv/a")
        events = parse(await stream.until(b"event: change", 3))
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert stream.headers["cache-control"] == "no-store"
        assert [(e["key"], e["op"], e["last"]) for e in events] == [
            ("a", "c", None), ("b", "c", "1"), ("a", "d", "2"),
        ]  # fmt: skip
        assert events[0]["after"] == "t1"
        assert events[2]["before"] == "t1"
        assert events[1]["transaction"] == {
            "id": "t1", "total_order": 2, "data_collection_order": 2,
        }  # fmt: skip


@scenario
async def test_a_stream_without_since_begins_now() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/old", b"1")
        stream = await client.stream("/v1/changes")
        await stream.until(b"retry")
        await client.request("PUT", "/v1/kv/new", b"1")
        events = parse(await stream.until(b"event: change"))
        assert [e["key"] for e in events] == ["new"]


@scenario
async def test_last_event_id_goes_on_and_goes_before_since() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        for key in "abc":
            await client.request("PUT", f"/v1/kv/{key}", b"1")
        stream = await client.stream("/v1/changes?since=0", {"Last-Event-ID": "2"})
        await client.request("PUT", "/v1/kv/d", b"1")
        events = parse(await stream.until(b"event: change", 2))
        assert [(e["key"], e["last"]) for e in events] == [("c", "3"), ("d", "4")]


@pytest.mark.parametrize(
    ("query", "headers"), [("?since=3", {}), ("", {"Last-Event-ID": "3"})]
)  # fmt: skip
@scenario
async def test_a_stream_does_not_go_on_after_what_another_database_had(
    query: str, headers: dict[str, str]
) -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        database.executing = False
        database.log.records.append(pair("t2", "b"))
        answer = await client.request("GET", f"/v1/changes{query}", headers=headers)
        assert (answer.status, answer.problem) == (400, "invalid-parameter")
        assert answer.json()["latest"] == 1
        database.log.records.append(pair("t3", "c"))
        stream = await client.stream(f"/v1/changes{query}", headers)  # that may become the third
        await stream.until(b"retry")
        database.log.records.append(pair("t4", "d"))
        database.executing = True
        database.run()
        events = parse(await stream.until(b"event: change"))
        assert [e["key"] for e in events] == ["d"]


@scenario
async def test_a_torn_transaction_is_given_again_as_a_whole() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/x", b"1")
        await client.request("POST", "/v1/transactions", pair("t", "a", "b", "c"))
        stream = await client.stream("/v1/changes?since=0")
        data = await stream.until(b"event: change", 4)
        torn = parse(data[: data.rindex(b"id: 2")])
        assert torn[-1]["last"] == "1"  # what a client that saw a and b comes back with
        again = await client.stream("/v1/changes", {"Last-Event-ID": str(torn[-1]["last"])})
        events = parse(await again.until(b"event: change", 3))
        assert [e["key"] for e in events] == ["a", "b", "c"]


@scenario
async def test_a_prefix_filters_and_progress_is_still_told() -> None:
    database = MemoryDatabase()
    async with connect(database, heartbeat_s=0.01) as client:
        stream = await client.stream("/v1/changes?since=0&prefix=acct/")
        await client.request("POST", "/v1/transactions", pair("t1", "acct/1", "zzz"))
        await stream.until(b"id: 1\nevent: change")
        await client.request("PUT", "/v1/kv/other", b"1")
        await stream.until(b"id: 2\nevent: resolved")
        events = parse(stream.data)
        assert [e["key"] for e in events if e["event"] == "change"] == ["acct/1"]
        assert {"event": "resolved", "last": "2", "resolved": 2} in events


@scenario
async def test_progress_is_told_past_what_a_filter_leaves_out_of_a_batch() -> None:
    database = MemoryDatabase()
    async with connect(database, heartbeat_s=0.01) as client:
        stream = await client.stream("/v1/changes?since=0&prefix=acct/")
        await stream.until(b"retry")
        changes = (ChangeEvent(1, 1, "acct/1", b'{"key":"acct/1"}'), ChangeEvent(2, 1, "z", b"{}"))
        database.changes.put(ChangeBatch(2, changes))
        data = await stream.until(b": heartbeat")
        assert data.count(b"id: 1\nevent: change") == data.count(b"id: 2\nevent: resolved") == 1


@scenario
async def test_an_idle_stream_has_heartbeats() -> None:
    async with connect(MemoryDatabase(), heartbeat_s=0.01) as client:
        stream = await client.stream("/v1/changes")
        data = await stream.until(b": heartbeat\n\n", 3)
        assert parse(data) == []


@scenario
async def test_only_a_resolved_change_is_shown() -> None:
    database = MemoryDatabase()
    async with connect(database, heartbeat_s=0.01) as client:
        stream = await client.stream("/v1/changes?since=0")
        database.resolving = False
        await client.request("PUT", "/v1/kv/a", b"1")
        await stream.until(b": heartbeat\n\n", 2)
        assert b"event: change" not in stream.data
        database.resolve()
        await stream.until(b"event: change")


@scenario
async def test_a_source_that_ends_is_told_and_begun_again_and_nothing_is_missed() -> None:
    database = MemoryDatabase()
    async with connect(database, heartbeat_s=0.01) as client:
        stream = await client.stream("/v1/changes?since=0")
        await client.request("PUT", "/v1/kv/a", b"1")
        await stream.until(b"event: change")
        database.changes.end("the changes cannot be followed (KafkaException)")
        error = parse(await stream.end())[-1]
        assert (error["event"], error["type"]) == ("error", "/problems/not-ready")
        assert error["detail"].startswith("the changes cannot be followed (KafkaException). ")
        await client.request("PUT", "/v1/kv/b", b"1")
        again = await client.stream("/v1/changes", {"Last-Event-ID": "1"})
        await client.request("PUT", "/v1/kv/c", b"1")
        events = parse(await again.until(b"event: change", 2))
        assert [(e["key"], e["last"]) for e in events if e["event"] == "change"] == [
            ("b", "2"), ("c", "3"),
        ]  # fmt: skip


@scenario
async def test_a_stream_has_no_head_however_it_is_spelt() -> None:
    async with connect(MemoryDatabase()) as client:
        for target in ("/v1/changes", "/v1/changes/", "/v1/chang%65s"):
            assert (await client.request("HEAD", target)).status == 405, target
        assert (await client.request("HEAD", "//v1//changes")).status == 404


@scenario
async def test_a_stream_of_before_the_source_was_begun_again_is_cut_off() -> None:
    database = MemoryDatabase()
    async with connect(database) as client:
        waiting = await client.stream("/v1/changes?since=0")
        await client.request("PUT", "/v1/kv/a", b"1")
        await waiting.until(b"event: change")
        database.changes.end("it ended")
        await client.request("PUT", "/v1/kv/missed", b"1")
        await client.stream("/v1/changes")  # begins the source again
        await client.request("PUT", "/v1/kv/c", b"1")
        events = parse(await waiting.end())
        assert [e.get("key", e.get("type")) for e in events] == ["a", "/problems/slow-reader"]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "99999999999999999999", "1,2"])
@scenario
async def test_a_last_event_id_that_is_none(value: str) -> None:
    async with connect(MemoryDatabase()) as client:
        answer = await client.request("GET", "/v1/changes", headers={"Last-Event-ID": value})
        assert (answer.status, answer.problem) == (400, "invalid-parameter")


@scenario
async def test_a_slow_reader_is_cut_off_and_can_come_back() -> None:
    database = MemoryDatabase()
    async with connect(database, stream_bytes_max=4_000) as client:
        stream = await client.stream("/v1/changes?since=0")
        await client.request("PUT", "/v1/kv/k", b"0")
        await stream.until(b"event: change")
        stream.reading.clear()
        for number in range(1, 60):
            await client.request("PUT", "/v1/kv/k", b"%d" % number)
        stream.reading.set()
        events = parse(await stream.end())
        assert (events[-1]["event"], events[-1]["type"]) == ("error", "/problems/slow-reader")
        seen = [e["after"] for e in events if e["event"] == "change"]
        assert len(seen) < 60
        again = await client.stream("/v1/changes", {"Last-Event-ID": events[-1]["last"]})
        await again.until(b"event: change", 60 - len(seen))
        assert seen + [e["after"] for e in parse(again.data)] == list(range(60))


@scenario
async def test_a_reader_that_takes_nothing_for_too_long_is_cut_off() -> None:
    database = MemoryDatabase()
    async with connect(database, send_timeout_s=0.05) as client:
        stream = await client.stream("/v1/changes?since=0")
        await stream.until(b"retry")
        stream.reading.clear()
        await client.request("PUT", "/v1/kv/k", b"0")
        await stream.end()
        metrics = (await client.request("GET", "/metrics")).body
        assert b"streamydb_facade_slow_readers_total 1.0" in metrics
        assert b"streamydb_facade_streams 0.0" in metrics


@scenario
async def test_a_stream_that_is_left_leaves_nothing_behind() -> None:
    async with connect(MemoryDatabase(), heartbeat_s=0.01) as client:
        stream = await client.stream("/v1/changes")
        await stream.until(b"retry")
        assert b"facade_streams 1.0" in (await client.request("GET", "/metrics")).body
        stream.leave()
        await stream.end()
        assert b"facade_streams 0.0" in (await client.request("GET", "/metrics")).body


@scenario
async def test_streams_are_bounded() -> None:
    async with connect(MemoryDatabase(), streams_max=3, client_streams_max=2) as client:
        for _ in range(2):
            assert (await client.stream("/v1/changes")).status == 200
        answer = await client.request("GET", "/v1/changes")
        assert (answer.status, answer.problem) == (429, "too-many-requests")
        assert answer.headers["retry-after"] == "1"


@scenario
async def test_streams_of_all_clients_are_bounded() -> None:
    async with connect(MemoryDatabase(), streams_max=1) as client:
        stream = await client.stream("/v1/changes")
        answer = await client.request("GET", "/v1/changes")
        assert (answer.status, answer.problem) == (503, "overloaded")
        stream.leave()
        await stream.end()
        assert (await client.stream("/v1/changes")).status == 200


def event(seq: int, number: int = 1, key: str = "k") -> ChangeEvent:
    return ChangeEvent(seq, number, key, b'{"seq":%d}' % seq)


async def collect(feed: Feed, since: int, upto: int) -> list[int]:
    """The seqs of a stream up to one of them."""
    seqs: list[int] = []
    batches = feed.batches(since, 0.01)
    async with asyncio.timeout(10):
        async for batch in batches:
            seqs += [change.seq for change in batch.changes] if batch else []
            if batch and batch.resolved >= upto:
                break
    await batches.aclose()
    return seqs


@scenario
async def test_history_and_feed_meet_without_a_gap_or_a_repetition() -> None:
    source = MemoryChanges()
    for first in range(1, 30, 3):  # the history's batches end elsewhere than the feed's
        source.all.append(ChangeBatch(first + 2, tuple(event(first + n) for n in range(3))))
    feed = Feed(source, bytes_max=1_500, catch_ups_max=2)
    await feed.start()
    assert feed.latest == 30
    feed.publish(ChangeBatch(35, tuple(event(seq) for seq in range(29, 36))))
    assert await collect(feed, 0, 35) == list(range(1, 36))
    assert await collect(feed, 31, 35) == [32, 33, 34, 35]


@scenario
async def test_streams_that_catch_up_are_bounded() -> None:
    source = MemoryChanges()
    source.all.append(ChangeBatch(9, (event(9),)))
    feed = Feed(source, bytes_max=1_000, catch_ups_max=1)
    await feed.start()
    first = feed.batches(0, 0.01)
    assert await anext(first) == ChangeBatch(9, (event(9),))
    with pytest.raises(ProblemError, match="overloaded"):
        feed.admit(0)
    feed.admit(9)
    await first.aclose()
    feed.admit(0)


@scenario
async def test_the_feed_is_bounded_in_bytes() -> None:
    feed = Feed(MemoryChanges(), bytes_max=10_000, catch_ups_max=1)
    for seq in range(1, 1_000):
        feed.publish(ChangeBatch(seq, (event(seq),)))
    assert feed._bytes <= 10_000
    assert feed.latest == 999
    feed.publish(ChangeBatch(1_000, tuple(event(1_000, n) for n in range(1_000))))
    assert len(feed._batches) == 1


def partitions_of(count: int, seed: int) -> tuple[list[list[Record]], int]:
    """The changes of random transactions in partitions by key, repeated and resolved at random."""
    chance = random.Random(seed)
    oracle = Oracle("db")
    partitions: list[list[Record]] = [[] for _ in range(count)]
    total = 0
    for plan in range(chance.randrange(1, 6)):
        outputs = []
        for offset in range(chance.randrange(1, 5)):
            keys = chance.sample("abcdefgh", chance.randrange(1, 4))
            raw = pair(f"{plan}.{offset}", *keys)
            total += len(keys)
            outputs += oracle.apply(raw, 0, plan * 10 + offset, 1)
        changes = [(o.key, o.value) for o in outputs if o.topic == "changes"]
        for key, value in changes + chance.sample(changes, chance.randrange(len(changes))):
            partitions[(key or b"")[0] % count].append((key, value))
        resolved = encode_resolved(Resolved(oracle.next_seq - 1, 1, {"0": 1}))
        for partition in partitions:
            partition.append((None, resolved))
            partition.append((b"a", None))
    return partitions, total


@given(st.integers(1, 4), st.integers(0, 10_000), st.integers(0, 5))
def test_the_merge_is_the_order_whatever_comes_first(count: int, seed: int, since: int) -> None:
    partitions, _ = partitions_of(count, seed)
    merger = Merger(count, since)
    chance = random.Random(seed)
    batches: list[ChangeBatch] = []
    while any(partitions):
        number = chance.choice([n for n, partition in enumerate(partitions) if partition])
        key, value = partitions[number].pop(0)
        batch = None if value is None else merger.take(number, key, decode_change(value))
        batches += [batch] if batch else []
    places = [(e.seq, e.number) for batch in batches for e in batch.changes]
    complete, total = partitions_of(count, seed)
    assert places == sorted(set(places))
    assert all(seq > since for seq, _ in places)
    if since == 0:
        assert len(places) == total
    assert [batch.resolved for batch in batches] == sorted({b.resolved for b in batches})
    assert all(e.seq <= batch.resolved for batch in batches for e in batch.changes)
    assert merger._held == [0] * count
    assert complete


def test_the_merge_says_which_partition_is_ahead() -> None:
    partitions, _ = partitions_of(2, 7)
    merger = Merger(2, 0)
    for key, value in partitions[0]:
        assert value is None or merger.take(0, key, decode_change(value)) is None
    assert merger.is_ahead(0, 100)
    assert not merger.is_ahead(0, 1_000_000)
    assert not merger.is_ahead(1, 0)


def test_a_stream_from_the_future_begins_there_and_counts_on() -> None:
    async def follow() -> None:
        feed = Feed(MemoryDatabase().changes, 1_000_000, 1)
        publish = [ChangeBatch(seq, (ChangeEvent(seq, 1, "k", b"{}"),)) for seq in range(1, 8)]
        await feed.start()
        for batch in publish[:2]:
            feed.publish(batch)
        early, late = feed.batches(1, 20), feed.batches(5, 20)
        assert (await anext(early)) == publish[1]
        waiting = asyncio.ensure_future(anext(late))
        for batch in publish[2:]:
            feed.publish(batch)
            await asyncio.sleep(0)
        assert (await waiting) == publish[5]
        assert [await anext(late)] + [await anext(early) for _ in range(5)] == [
            publish[6], *publish[2:]
        ]  # fmt: skip

    asyncio.run(follow())

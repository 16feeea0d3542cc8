"""Streams on a real broker: old records, new ones, repetitions, the partitions of keys."""

from __future__ import annotations

import asyncio
import json
import time

import confluent_kafka
import pytest

from streamydb.facade import FacadeSettings
from streamydb.facade.kafka_changes import KafkaStreams
from streamydb.facade.ports import PageBounds, StreamSpan
from streamydb.facade.stream_pages import StreamFeed, StreamPosition
from streamydb.kafka import TopicNames, create
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario
from tests.support.strange import STRANGE

PAGE = PageBounds(40, 1_000_000)
STREAMS = ["voter.votes", "voter.counted", "m.s", "shop.orders", "shop.é"]


def write(settings: Settings, seqs: range) -> None:
    """Emit a record to each stream with each seq, and some of the last once more.

    Something else writes there, too.
    """
    own = {"partitioner": "murmur2_random", "linger.ms": 5}  # as Java's, which Spark uses
    producer = confluent_kafka.Producer({**settings.client_config(), **own})
    for seq in [*seqs, *seqs[-3:]]:
        for stream in STREAMS:
            head = {"stream": stream, "seq": seq, "index": 1, "ts_ms": seq, "id": "t", "batch": 1}
            value = json.dumps({**head, "record": seq}).encode()
            for each in (value, STRANGE[seq % len(STRANGE)]):
                producer.produce(TopicNames(settings.database).streams, each, key=stream.encode())
        producer.poll(0)
    assert producer.flush(60) == 0


async def rest(feed: StreamFeed, place: StreamPosition) -> tuple[list[int], StreamPosition]:
    """The seqs after a place that can be read now, and the place after them."""
    found: list[int] = []
    more = True
    while more:
        page = await feed.page(place, PAGE, 0)
        found += [json.loads(value)["seq"] for value in page.values]
        place, more = page.place, page.more
    return found, place


@scenario
async def test_old_and_new_records_each_once(bootstrap: str, database: str) -> None:
    settings = Settings(database=database, bootstrap=bootstrap)
    create(settings.client_config(), database)
    write(settings, range(1, 101))
    source = KafkaStreams(settings, FacadeSettings())
    feed = StreamFeed(source, 40_000, 4)
    places = {}
    for stream in STREAMS:
        found, places[stream] = await rest(feed, StreamPosition(stream))
        assert found == [*range(1, 101)], stream
    write(settings, range(101, 151))
    for stream in STREAMS:  # what is kept is less than that
        found = []
        while len(found) < 50:
            page = await feed.page(places[stream], PAGE, 10)
            assert page.values or page.more
            found += [json.loads(value)["seq"] for value in page.values]
            places[stream] = page.place
        assert found == [*range(101, 151)], stream
    now = round(time.time() * 1000)
    for ts_ms in (0, now - 300_000, now, now + 300_000, now + 3_600_000):  # a clock that jumped
        for seq in (1, 99, 120, 149):
            page = await feed.page(StreamPosition(STREAMS[0], seq, 1), PageBounds(1, 1), 0, ts_ms)
            assert page.place.seq == seq + 1, (ts_ms, seq)
    assert source.fault() is None
    await source.stop()


@scenario
async def test_a_follower_that_has_failed_is_replaced(bootstrap: str, database: str) -> None:
    settings = Settings(database=database, bootstrap=bootstrap)
    create(settings.client_config(), database)
    source = KafkaStreams(settings, FacadeSettings())
    feed = StreamFeed(source, 40_000, 4)
    _, place = await rest(feed, StreamPosition(STREAMS[0]))
    failed = source._tail
    assert failed is not None
    failed._taker.failed = MemoryError()
    write(settings, range(1, 4))
    found, place = await rest(feed, place)
    assert found == [1, 2, 3]
    assert not failed._thread.is_alive()
    write(settings, range(4, 5))
    page = await feed.page(place, PAGE, 30)
    assert [json.loads(value)["seq"] for value in page.values] == [4]
    assert source.fault() is None
    await source.stop()


@scenario
async def test_a_read_ends_when_its_patience_does(bootstrap: str, database: str) -> None:
    """It has no end of its own: what it waits for never comes."""
    settings = Settings(database=database, bootstrap=bootstrap)
    create(settings.client_config(), database)
    write(settings, range(1, 4))
    source = KafkaStreams(settings, FacadeSettings(read_timeout_s=3600))
    beyond = StreamSpan(STREAMS[0].encode(), 0, 0, 1_000_000, (0, 0))
    async with asyncio.timeout(60):
        rows, at = await source.history(beyond, PageBounds(40, 1_000_000, 3))
    assert [json.loads(row.value)["seq"] for row in rows] in ([1, 2, 3], [])
    assert at < beyond.end
    await source.stop()


@scenario
async def test_a_database_without_streams(bootstrap: str, database: str) -> None:
    source = KafkaStreams(Settings(database=database, bootstrap=bootstrap), FacadeSettings())
    with pytest.raises(KafkaUnavailableError, match="streams"):
        await StreamFeed(source, 1, 1).page(StreamPosition("a.b"), PAGE, 0)
    await source.stop()

"""Results that are given more partitions while a facade runs."""

from __future__ import annotations

import asyncio

import confluent_kafka
import pytest
from confluent_kafka.admin import NewPartitions

from streamydb.facade import FacadeSettings
from streamydb.facade.kafka import KafkaLog
from streamydb.facade.ports import LogPosition
from streamydb.kafka import TopicNames, create, follower
from streamydb.kafka.admin import cluster, count_partitions
from streamydb.kafka.clients import administrator
from streamydb.records import Result, encode_result
from streamydb.records.result import Source
from streamydb.settings import Settings
from streamydb.testing.database import wait_for
from streamydb.testing.in_process import scenario


def result(seq: int) -> Result:
    """A commit whose record is the log's only one of that number."""
    return Result(
        id=f"t{seq}", seq=seq, ts_ms=seq, status="committed", reads={}, failed=[], code=None,
        source=Source(0, seq),
    )  # fmt: skip


def answer(settings: Settings, topic: str, partition: int, seq: int) -> None:
    """Append the result of a seq."""
    producer = confluent_kafka.Producer(dict(settings.client_config()))
    producer.produce(topic, encode_result(result(seq)), f"t{seq}".encode(), partition=partition)
    assert producer.flush(60) == 0


@pytest.mark.timeout(120)
@scenario
async def test_a_facade_reads_results_in_partitions_that_came_later(
    bootstrap: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both those that a write waits for, and those that strong reads have to show."""
    monkeypatch.setattr(follower, "_GROWTH_S", 0.1)
    settings = Settings(database=database, bootstrap=bootstrap)
    connection = settings.client_config()
    create(connection, database)
    topic = TopicNames(database).results
    log = KafkaLog(settings, FacadeSettings())
    await log.start()
    try:
        await asyncio.to_thread(answer, settings, topic, 0, 1)
        assert (await log.result("t1", LogPosition(0, 1))).seq == 1
        present = await log.published()
        new = len(log._results.partitions())
        admin = administrator(connection)
        grown = admin.create_partitions([NewPartitions(topic, new + 1)])
        await asyncio.to_thread(grown[topic].result, 30)
        known = f"{new + 1} partitions of the results"
        await asyncio.to_thread(
            wait_for, lambda: count_partitions(cluster(admin).topics[topic]) > new, known
        )
        await asyncio.to_thread(answer, settings, topic, new, 2)
        async with asyncio.timeout(60):
            assert (await log.result("t2", LogPosition(0, 2))).seq == 2
        assert (present, await log.published()) == (1, 2)
        await asyncio.to_thread(answer, settings, topic, new, 3)
        assert await log.published() == 3  # the index may take them in a moment later
        assert (await log.result("t3", LogPosition(0, 3))).seq == 3
        assert log.counts() == {("committed", ""): 3}
    finally:
        await log.stop()

"""A result that this release cannot read: nothing is answered as if it were not there."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streamydb.facade import FacadeSettings, create_app, kafka_search
from streamydb.facade.kafka import KafkaLog
from streamydb.facade.result_batch import result_in
from streamydb.kafka.errors import LogFaultError
from streamydb.kafka.names import TopicNames
from streamydb.settings import Settings
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase
from tests.support.memory_kafka import MemoryKafka

NAMES = TopicNames("bank")
SETTINGS = Settings(database="bank", bootstrap="memory:9092")
RESULT: dict[str, Any] = {
    "id": "t", "seq": 9, "ts_ms": 1, "status": "committed", "reads": {}, "failed": [],
    "code": None, "source": {"partition": 0, "offset": 0},
}  # fmt: skip
LATER = [
    json.dumps({"format": 2, **RESULT}).encode(),
    json.dumps({"format": 2, "sequence": 9}).encode(),
    json.dumps({**RESULT, "unknown": 1}).encode(),
    json.dumps({**RESULT, "status": "postponed"}).encode(),
]
STRANGE = [b"", b"{", b"[1]", b'{"seq":"9"}', b"\xff", b"[" * 5_000]


def kafka(monkeypatch: pytest.MonkeyPatch) -> MemoryKafka:
    found = MemoryKafka(random.Random("unread"))
    found.install(monkeypatch)
    for topic in (NAMES.transactions, NAMES.results):
        found.create(topic)
    found.append(NAMES.results, 0, json.dumps(RESULT).encode(), b"t")
    return found


@asynccontextmanager
async def facade() -> AsyncGenerator[tuple[InProcess, KafkaLog]]:
    """A facade whose read model shows the empty database, whatever comes."""
    settings = FacadeSettings(read_timeout_s=0.3, verdict_timeout_s=0.3)
    database, log = MemoryDatabase(), KafkaLog(SETTINGS, settings)
    async with InProcess(create_app(database.model, log, database.changes, settings)) as client:
        yield client, log


@pytest.mark.parametrize("value", LATER)
@scenario
async def test_nothing_of_the_present_is_answered_with_a_result_of_a_later_release(
    monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    topics = kafka(monkeypatch)
    topics.topics[NAMES.results][0].records.clear()
    topics.append(NAMES.results, 0, value, b"t")
    async with facade() as (client, log):
        await until(lambda: log.fault() is not None or bool(log.counts()))
        answer = await client.request("GET", "/v1/kv/a")
        assert (answer.status, answer.json()["type"]) == (503, "/problems/log-unavailable")
        assert "upgrade the facade" in answer.json()["detail"]
        write = await client.request("PUT", "/v1/kv/a", b"1")
        assert (write.status, write.json()["type"]) == (503, "/problems/log-unavailable")
        assert "upgrade the facade" in write.json()["detail"]
        assert "nothing was appended" in write.json()["detail"]
        assert topics.topics[NAMES.transactions][0].records == []
        shown = (await client.request("GET", "/health/ready")).json()
        assert (shown["reads"], shown["strong"], shown["writes"]) == (True, False, False)
        assert any("upgrade the facade" in why for why in shown["why"])
        verdict = await client.request("GET", "/v1/transactions/t")
        assert (verdict.status, verdict.json()["type"]) == (503, "/problems/log-unavailable")
        stale = await client.request("GET", "/v1/kv/a?consistency=snapshot")
        assert stale.status == 404


@scenario
async def test_what_is_no_result_of_any_release_is_passed_over_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics = kafka(monkeypatch)
    for value in (*STRANGE, None):
        topics.append(NAMES.results, 0, value, b"never")
    topics.append(NAMES.results, 0, json.dumps({**RESULT, "seq": 10}).encode(), b"t")
    async with facade() as (client, log):
        with caplog.at_level(logging.WARNING):
            assert await log.published() == 10
        assert log.fault() is None
        assert log.counts()["unreadable", ""] == len(STRANGE) + 1
        metrics = (await client.request("GET", "/metrics")).body.decode()
        assert 'status="unreadable"} 7' in metrics.replace('code="",', "")
    told = [each for each in caplog.messages if "records that are no results" in each]
    assert len(told) == 1


@pytest.mark.parametrize("value", LATER)
def test_a_search_that_meets_a_verdict_of_a_later_release_does_not_say_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    topics = kafka(monkeypatch)
    topics.append(NAMES.results, 0, value, b"own")
    with pytest.raises(LogFaultError, match="upgrade the facade"):
        kafka_search.search_result(SETTINGS, "own", None)


@pytest.mark.parametrize("value", STRANGE)
def test_what_is_no_result(value: bytes) -> None:
    assert result_in(value) is None


@scenario
async def test_a_log_ends_its_producer_whatever_fails_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka(monkeypatch)
    log = KafkaLog(SETTINGS, FacadeSettings())
    await log.start()
    assert log._results._tail is not None
    assert log._appends is not None

    def fail() -> None:
        raise OSError("a tail does not end")

    tail, producer = log._results._tail, log._appends._producer
    monkeypatch.setattr(tail, "close", fail)
    with pytest.raises(OSError, match="a tail does not end"):
        await log.stop()
    assert producer._stop.is_set()
    monkeypatch.undo()
    tail.close()

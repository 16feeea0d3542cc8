"""The clock of a real broker, as a facade learns it from the stamps of its own records."""

from __future__ import annotations

import time

import pytest

from streamydb.facade import FacadeSettings
from streamydb.facade.kafka import KafkaLog
from streamydb.kafka import TopicNames, create
from streamydb.kafka.clients import administrator
from streamydb.kafka.clock import log_time
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario

HOUR_MS = 3_600_000
AHEAD_MS = 120_000
"""Far more than any request takes."""


@pytest.fixture
def settings(bootstrap: str, database: str) -> Settings:
    """A database of its own."""
    found = Settings(database=database, bootstrap=bootstrap)
    create(found.client_config(), database)
    return found


@scenario
async def test_the_stamp_of_an_append_tells_the_brokers_clock(settings: Settings) -> None:
    log = KafkaLog(settings, FacadeSettings())
    await log.start()
    try:
        assert log.clocks().broker_ms is None
        before_ms = time.time_ns() // 1_000_000
        await log.append("t", b'{"id":"t"}', {})
        clocks = log.clocks()
        assert clocks.broker_ms is not None
        assert before_ms - AHEAD_MS <= clocks.broker_ms <= clocks.local_ms + AHEAD_MS
        assert clocks.still_ms == 0
    finally:
        await log.stop()
    topic = TopicNames(settings.database).transactions
    found = log_time(administrator(settings.client_config()), topic, [0])
    assert abs(found.ahead_ms) <= AHEAD_MS
    assert found.warning() is None
    late = found._replace(clock_ms=found.clock_ms - HOUR_MS)
    assert "ahead of this machine" in str(late.warning())

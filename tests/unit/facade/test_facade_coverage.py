"""Strong reads of a log that ends with records of Kafka's own, which nobody ever covers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamydb.facade import FacadeSettings, create_app
from streamydb.facade.reads import Coverage
from streamydb.kafka.next_records import NextRecord
from streamydb.testing.in_process import InProcess, scenario, until
from streamydb.testing.memory import MemoryDatabase


def connect(database: MemoryDatabase, **limits: Any) -> InProcess:
    settings = FacadeSettings(poll_s=0.001, **limits)
    return InProcess(create_app(database.model, database.log, database.changes, settings))


@pytest.mark.fault(
    39, "the ends of Kafka transactions after, between and before records", "reads answer"
)
@scenario
async def test_strong_reads_answer_while_the_log_ends_with_control_records() -> None:
    database = MemoryDatabase()
    log = database.log
    log.end_transaction()  # before the first record, too
    for value in (b"1", b"2", b"3"):
        async with connect(database) as client:  # each facade passes the log when it begins
            await client.request("PUT", "/v1/kv/a", value)
            log.end_transaction()
            log.end_transaction()
            answer = await client.request("GET", "/v1/kv/a")
            assert (answer.status, answer.body) == (200, value)
    assert log.gaps >= 3


@scenario
async def test_a_gap_is_looked_at_once_however_many_read() -> None:
    database = MemoryDatabase()
    log = database.log
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        for _ in range(5):
            assert (await client.request("GET", "/v1/kv/a")).status == 200
        assert log.gaps == 0  # what is covered needs no look
    log.end_transaction()
    async with connect(database) as client:
        reads = [client.request("GET", "/v1/kv/a") for _ in range(20)]
        assert {answer.status for answer in await asyncio.gather(*reads)} == {200}
        for _ in range(5):
            assert (await client.request("GET", "/v1/kv/a")).status == 200
        assert log.gaps == 1


@scenario
async def test_a_record_behind_a_gap_is_waited_for_and_looked_at_once() -> None:
    database = MemoryDatabase()
    log = database.log
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
        log.end_transaction()
        database.resolving = False
        await client.request("PUT", "/v1/kv/a", b"2")
        log.end_transaction()
    async with connect(database) as client:
        reading = asyncio.create_task(client.request("GET", "/v1/kv/a"))
        await until(lambda: log.gaps == 1)
        for _ in range(300):  # further polls of the read model, while it stands still
            await asyncio.sleep(0.001)
        assert not reading.done()
        assert log.gaps == 1
        database.resolve()
        assert (await reading).body == b"2"
        assert log.gaps == 2


@scenario
async def test_a_look_that_fails_is_made_again() -> None:
    database = MemoryDatabase()
    log = database.log
    async with connect(database) as client:
        await client.request("PUT", "/v1/kv/a", b"1")
    log.end_transaction()
    async with connect(database) as client:
        reading = asyncio.create_task(client.request("GET", "/v1/kv/a"))
        await until(lambda: log.looks == 2)
        log.refusing = True
        await until(lambda: log.gaps >= 2)
        assert not reading.done()
        log.refusing = False
        assert (await reading).body == b"1"


class Partitions:
    """A log of several partitions; `records` are the offsets of its records."""

    def __init__(self, records: dict[int, set[int]], ends: dict[int, int]) -> None:
        self.records, self.ends = records, ends
        self.asked: list[dict[int, int]] = []

    async def next_records(self, places: dict[int, int]) -> dict[int, NextRecord]:
        self.asked.append(dict(places))
        found = {}
        for number, at in places.items():
            offset = min((o for o in self.records[number] if o >= at), default=None)
            end = self.ends[number]
            found[number] = NextRecord(end if offset is None else offset, offset is not None)
        return found


@scenario
async def test_each_partition_is_passed_for_itself() -> None:
    database = MemoryDatabase()
    log: Any = Partitions({0: {0, 1}, 1: set(), 2: {0, 4}}, {0: 2, 1: 3, 2: 6})
    coverage = Coverage(database.model, log)
    now: Any = database.model.latest()
    coverage.note(log.ends)
    assert coverage.behind(now, log.ends) == {0: 0, 1: 0, 2: 0}
    assert await (coverage.look() or pytest.fail("nothing is looked at"))
    assert coverage.behind(now, log.ends) == {0: 0, 2: 0}
    assert coverage.look() is None  # records come next in both that are left
    for covered, left in (({2: 1}, {0: 0, 2: 1}), ({0: 2, 2: 5}, {2: 5})):
        database.model._resolved = type(now)(0, 0, covered)
        now = database.model.latest()
        assert coverage.behind(now, log.ends) == left
        await (coverage.look() or pytest.fail("nothing is looked at"))
    assert coverage.behind(now, log.ends) == {}
    assert coverage.look() is None


@scenario
async def test_a_gap_beyond_the_end_of_the_log_is_forgotten() -> None:
    """The tail of a log may be lost in a power cut; what comes instead is no gap."""
    database = MemoryDatabase()
    log: Any = Partitions({0: set()}, {0: 5})
    coverage = Coverage(database.model, log)
    coverage.note({0: 5})
    await (coverage.look() or pytest.fail("nothing is looked at"))
    now = database.model.latest()
    assert coverage.behind(now, {0: 5}) == {}
    coverage.note({0: 3})
    assert coverage.behind(now, {0: 3}) == {0: 0}

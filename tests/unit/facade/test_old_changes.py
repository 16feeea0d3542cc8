"""Event streams that begin with old changes: those that the facade does not keep any more."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from streamydb.errors import RecordError, StreamyError
from streamydb.facade.feed import Feed
from streamydb.facade.ports import ChangeBatch, ChangeEvent
from streamydb.kafka.errors import KafkaUnavailableError
from streamydb.testing.in_process import scenario
from streamydb.testing.memory import MemoryDatabase
from streamydb.testing.memory_feed import MemoryChanges
from tests.unit.facade.test_facade_changes import connect, parse

AGAIN = "Connect again with the header Last-Event-ID."
FAULT = "bank.changes, partition 0, offset 7: format 9"


class Overtaken(MemoryChanges):
    """Changes of which more come while a reader of old ones is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.more: list[ChangeBatch] = []

    async def history(self, since: int) -> AsyncGenerator[ChangeBatch, None]:
        async with aclosing(super().history(since)) as old:
            try:
                async for batch in old:
                    yield batch
            finally:
                while self.more:
                    self.put(self.more.pop(0))


@scenario
async def test_a_stream_that_has_caught_up_is_not_cut_off_for_what_came_meanwhile() -> None:
    batches = [ChangeBatch(seq, (ChangeEvent(seq, 1, "a", b"{}"),)) for seq in range(1, 6)]
    source = Overtaken()
    for batch in batches[:2]:
        source.put(batch)
    feed = Feed(source, bytes_max=1, catch_ups_max=1)
    await feed.start()
    source.more = batches[2:]
    async with aclosing(feed.batches(0, 20)) as stream:
        assert [await anext(stream) for _ in batches] == batches


class Unreadable(MemoryChanges):
    """Changes of which the old ones cannot be read."""

    def __init__(self, fault: StreamyError) -> None:
        super().__init__()
        self.fault_of_old = fault

    async def history(self, since: int) -> AsyncGenerator[ChangeBatch, None]:
        async with aclosing(super().history(since)) as old:
            yield await anext(old)
            raise self.fault_of_old


@pytest.mark.parametrize(
    ("fault", "slug", "detail"),
    [
        (KafkaUnavailableError("broker 10.0.0.1"), "log-unavailable", "Kafka does not answer."),
        (
            RecordError(FAULT), "not-ready",
            f"The changes cannot be followed: {FAULT}. {AGAIN}",
        ),
    ],
)  # fmt: skip
@scenario
async def test_a_stream_says_why_old_changes_cannot_be_read(
    fault: StreamyError, slug: str, detail: str
) -> None:
    database = MemoryDatabase()
    database.changes = Unreadable(fault)
    async with connect(database) as client:
        for key in "ab":
            await client.request("PUT", f"/v1/kv/{key}", b"1")
        stream = await client.stream("/v1/changes?since=0")
        change, error = parse(await stream.end())
        assert (change["event"], change["key"]) == ("change", "a")
        assert (error["event"], error["type"]) == ("error", f"/problems/{slug}")
        assert error["detail"] == detail

"""Topics that end with what Kafka transactions leave: records that no consumer is ever given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest

from streamydb.backup.kafka import BackupLog as BackedUpLog
from streamydb.facade import FacadeSettings
from streamydb.facade.kafka import KafkaLog
from streamydb.facade.kafka_changes import KafkaStreams
from streamydb.facade.kafka_search import search_result
from streamydb.facade.ports import NoResult, PageBounds, StreamSpan
from streamydb.facade.problems import ProblemError
from streamydb.facade.reads import Reader
from streamydb.kafka import TopicNames, create
from streamydb.kafka.changes import KafkaSource
from streamydb.kafka.connection import watermarks
from streamydb.kafka.receiving import NextRecord
from streamydb.kafka.shared_topics import DigestRecord, SharedTopics
from streamydb.settings import Settings
from streamydb.testing.database import wait_for
from streamydb.testing.in_process import scenario, until
from streamydb.testing.memory_model import MemoryModel, MemoryResolved
from streamydb.verify.check import Log

Leave = Callable[..., None]


@pytest.fixture
def settings(bootstrap: str, database: str) -> Settings:
    """A database of its own."""
    found = Settings(database=database, bootstrap=bootstrap)
    create(found.client_config(), database)
    return found


@pytest.fixture
def leave(settings: Settings) -> Iterator[Leave]:
    """A Kafka transaction with some records, committed or aborted: `leave(topic, *values)`."""
    config = {**settings.client_config(), "transactional.id": settings.database, "linger.ms": 0}
    producer = confluent_kafka.Producer(config)
    producer.init_transactions(60)

    reader = confluent_kafka.Consumer({**settings.client_config(), "group.id": "t"})

    def end_of(topic: str) -> int:
        return watermarks(reader, topic, 0, 60)[1]

    def transact(topic: str, *values: bytes, commit: bool = True) -> None:
        end = end_of(topic) + len(values) + 1
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
        wait_for(lambda: end_of(topic) == end, "the end of a transaction", 60)

    yield transact
    reader.close()


def append(settings: Settings, topic: str, *values: bytes) -> None:
    producer = confluent_kafka.Producer(dict(settings.client_config()))
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


@pytest.mark.fault(
    39, "committed and aborted Kafka transactions at the end of the log", "strong reads answer"
)
@pytest.mark.parametrize("commit", [True, False])
@scenario
async def test_strong_reads_answer(settings: Settings, leave: Leave, *, commit: bool) -> None:
    """An aborted record is a record: the pipeline executes it, so whoever begins waits for it."""
    topic = TopicNames(settings.database).transactions
    model = MemoryModel()
    log = KafkaLog(settings, FacadeSettings())
    await log.start()
    readers: list[Reader] = []

    def begun(timeout_s: float) -> Reader:
        """A reader that has yet to pass the log."""
        readers.append(Reader(model, log, FacadeSettings(read_timeout_s=timeout_s)))
        return readers[-1]

    try:
        await asyncio.to_thread(leave, topic, b'{"id": "a"}', b'{"id": "b"}', commit=commit)
        assert await log.ends() == {0: 3}
        found = (await log.next_records({0: 1}))[0]
        assert found[:2] == (1, True)
        assert found.ts_ms > 0
        assert found.value == b'{"id": "b"}'
        with pytest.raises(ProblemError):
            await begun(0.5).snapshot()
        waiting = asyncio.create_task(begun(20).snapshot())
        model.apply([], MemoryResolved(2, 2, {0: 2}))  # both records are executed
        (await waiting).__exit__(None, None, None)
        assert await log.next_records({0: 2}) == {0: NextRecord(3, found=False)}
        await asyncio.to_thread(leave, topic, b'{"id": "c"}', commit=commit)
        await asyncio.to_thread(append, settings, topic, b'{"id": "d"}')
        assert await log.ends() == {0: 6}
        model.apply([], MemoryResolved(3, 3, {0: 4}))
        with pytest.raises(ProblemError):
            await begun(0.5).snapshot()
        waiting = asyncio.create_task(begun(20).snapshot())
        await until(lambda: readers[-1].waiters.total == 1)
        model.apply([], MemoryResolved(4, 4, {0: 6}))
        (await waiting).__exit__(None, None, None)
    finally:
        for reader in readers:
            await reader.stop()
        await log.stop()


@pytest.mark.parametrize("commit", [True, False])
@scenario
async def test_results_that_end_so_are_passed(
    settings: Settings, leave: Leave, *, commit: bool
) -> None:
    """Every strong read waits until the facade has taken all results."""
    results = TopicNames(settings.database).results
    log = KafkaLog(settings, FacadeSettings())
    await log.start()
    try:
        for _ in range(3):
            await asyncio.to_thread(leave, results, b"{}", commit=commit)
            async with asyncio.timeout(20):
                assert await log.published() == 0
    finally:
        await log.stop()


@pytest.mark.fault(39, "results that end with a control record", "a search comes to its end")
def test_a_search_comes_to_the_end(settings: Settings, leave: Leave) -> None:
    names = TopicNames(settings.database)
    leave(names.results, b"{}")
    begun = time.monotonic()
    missing = search_result(settings, "never", None)
    assert isinstance(missing, NoResult)
    assert missing.complete
    assert time.monotonic() - begun < 7  # it gives up after eight seconds


@pytest.mark.fault(39, "a stream that ends with a control record", "a page comes at once")
@scenario
async def test_a_page_of_a_stream_comes_to_the_end(settings: Settings, leave: Leave) -> None:
    topic = TopicNames(settings.database).streams
    await asyncio.to_thread(leave, topic, b'{"seq": 1, "index": 1}')
    streams = KafkaStreams(settings, FacadeSettings(read_timeout_s=60))
    try:
        async with asyncio.timeout(20):
            wanted = StreamSpan(b"s", 0, 0, 2, (0, 0))
            assert await streams.history(wanted, PageBounds(10, 1_000)) == ([], 2)
    finally:
        await streams.stop()


@pytest.mark.fault(39, "a control topic that ends with a control record", "pipelines read it all")
def test_pipelines_come_to_the_end_of_what_they_share(settings: Settings, leave: Leave) -> None:
    names = TopicNames(settings.database)
    for name in names.shared():
        leave(name, b"{}", commit=False)
    with closing(SharedTopics(settings.client_config(), settings.database)) as topics:
        end = topics.ends()[0]
        assert end == 2
        deadline = time.monotonic() + 20
        while topics.position() < end and time.monotonic() < deadline:
            topics.poll(0.1)
        assert topics.position() == end
        topics.read_digests(1)
        append(settings, names.digests, b"{}")
        found: list[DigestRecord] = []

        def is_read() -> bool:
            found.extend(topics.digests())
            return bool(found)

        wait_for(is_read, "a digest", 20)
        assert found == [DigestRecord(None, b"{}", 2, found[0].told_ms)]
        assert found[0].told_ms > 0


@pytest.mark.fault(39, "a log that ends with control records", "check and backup read it whole")
def test_check_and_backup_read_it_whole(settings: Settings, leave: Leave) -> None:
    connection: Any = settings.client_config()
    topic = TopicNames(settings.database).transactions
    leave(topic, b'{"id": "a"}', commit=False)
    leave(topic, b'{"id": "b"}')
    log = Log(connection, settings.database, None, None)
    found = [txn for batch in log.ordered() for txn in batch]
    assert len(found) == 2  # no control record, and both records: Kafka's verdict means nothing
    backed = BackedUpLog(connection, settings.database)
    spans = backed.spans()
    assert spans[0].high == 4
    pieces = list(backed.pieces(0, 0, spans[0].high))
    assert [offset for piece in pieces for offset in piece.offsets] == [0, 2]


@pytest.mark.fault(
    29, "a stranger's Kafka transaction that hangs open", "read models and pipelines read on"
)
def test_nobody_waits_for_a_transaction_that_is_open(settings: Settings) -> None:
    """A reader of committed records would stop before the first one that is open."""
    names = TopicNames(settings.database)
    producer = confluent_kafka.Producer({**settings.client_config(), "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for name in (names.changes, names.control):
        producer.produce(name, b"{}", partition=0)
    assert producer.flush(60) == 0
    with closing(KafkaSource(settings.client_config(), names.changes)) as source:
        append(settings, names.changes, b"1")
        source.assign({0: 0})
        found: list[bytes | None] = []

        def is_read() -> bool:
            found.extend(record.value() for record in source.fetch(0.1).records)
            return len(found) == 2

        wait_for(is_read, "reading on in the changes", 20)
    with closing(SharedTopics(settings.client_config(), settings.database)) as topics:
        append(settings, names.control, b"{}")
        wait_for(
            lambda: topics.poll(0.1) == [] and topics.position() == 2,
            "what pipelines tell one another", 20,
        )  # fmt: skip
        assert topics.ends()[0] == 2
    producer.abort_transaction(60)

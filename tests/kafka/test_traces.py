"""The trace of a transaction lies beside its record's value, on a real broker."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from streamydb.facade import FacadeSettings
from streamydb.facade.kafka import KafkaLog
from streamydb.kafka import TopicNames, create
from streamydb.kafka.clients import FOLLOWING, reader
from streamydb.settings import Settings
from streamydb.testing.in_process import scenario

TRACE = {"traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
VALUE = b'{"id":"a","updates":[]}'


def test_headers_go_into_the_record(bootstrap: str, database: str) -> None:
    settings = Settings(bootstrap=bootstrap, database=database)
    create(settings.client_config(), database)

    @scenario
    async def append() -> None:
        log = KafkaLog(settings, FacadeSettings())
        await log.start()
        try:
            assert (await log.append("a", VALUE, TRACE)).offset == 0
            assert (await log.append("a", VALUE)).offset == 1
        finally:
            await log.stop()

    append()
    consumer = reader(settings.client_config(), FOLLOWING)
    consumer.assign([TopicPartition(TopicNames(database).transactions, 0, 0)])
    records = consumer.consume(2, timeout=30)
    consumer.close()
    assert [record.value() for record in records] == [VALUE, VALUE]
    assert records[0].headers() == list(TRACE.items())
    assert not records[1].headers()

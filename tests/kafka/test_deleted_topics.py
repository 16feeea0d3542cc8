"""Topics that somebody deletes, and that are made anew: a start, and who reads them, tell so."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from streamydb.facade import FacadeSettings
from streamydb.facade.kafka import KafkaLog
from streamydb.kafka import TopicNames, create
from streamydb.kafka.admin import cluster
from streamydb.kafka.clients import MESSAGES, administrator, appender
from streamydb.kafka.errors import LogFaultError
from streamydb.kafka.shared_topics import DigestRecord, SharedTopics
from streamydb.pipeline import main
from streamydb.pipeline.config import PipelineConfig
from streamydb.settings import Settings
from streamydb.testing.database import wait_for
from streamydb.testing.in_process import scenario, until
from tests.support.strange import STRANGE

pytestmark = pytest.mark.timeout(120)


def delete(config: PipelineConfig, *topics: str) -> None:
    admin = administrator(config.settings.client_config())
    for future in admin.delete_topics([*topics]).values():
        future.result(30)
    wait_for(lambda: not {*topics} & {*cluster(admin).topics}, "the topics to be gone")


def append(config: PipelineConfig, topic: str, *values: bytes | None) -> None:
    producer = appender(config.settings.client_config(), MESSAGES, topic)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


@pytest.fixture
def config(bootstrap: str, database: str, tmp_path: Path) -> PipelineConfig:
    settings = Settings(database=database, bootstrap=bootstrap)
    create(settings.client_config(), database)
    return PipelineConfig(settings, tmp_path / "checkpoint", None, tmp_path)


def test_a_start_tells_which_topics_were_deleted(
    config: PipelineConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = TopicNames(config.settings.database)
    main._find(config)
    named = replace(config, name="second", checkpoint=tmp_path / "second")
    main._find(named)
    assert "somebody deleted" not in caplog.text
    deleted = [names.digests, names.rulings, names.streams]
    delete(config, *deleted)
    main._find(config)
    assert f"{', '.join(deleted)}: somebody deleted what was there" in caplog.text
    caplog.clear()
    main._find(config)
    assert "somebody deleted" not in caplog.text
    delete(config, names.founding)
    main._find(config)
    assert f"{names.founding}: somebody deleted what was there" in caplog.text
    caplog.clear()
    delete(config, names.founding, names.rulings)  # as if a release without them had been here
    main._find(config)
    assert "somebody deleted" not in caplog.text


def test_a_start_reads_past_what_something_else_has_written(config: PipelineConfig) -> None:
    names = TopicNames(config.settings.database)
    found = main._find(config)
    for topic in (
        names.changes, names.results, names.deadletters, names.streams, names.feedback,
        *names.shared(), names.founding, names.rulings,
    ):  # fmt: skip
        append(config, topic, *STRANGE)
    assert main._find(config).begins == found.begins
    rulings, _ = main._rulings(found)
    assert rulings.refresh() == 0


def test_digests_are_read_on_where_they_were_made_anew(config: PipelineConfig) -> None:
    """Offsets that go back are how a pipeline knows."""
    client, name = config.settings.client_config(), config.settings.database
    topic = TopicNames(name).digests
    append(config, topic, b"1", b"2", b"3")
    with closing(SharedTopics(client, name)) as topics:
        came: list[DigestRecord] = []

        def comes(value: bytes) -> bool:
            came.extend(topics.digests())
            return any(each.value == value for each in came)

        topics.read_digests(0)
        wait_for(lambda: comes(b"3"), "the digests")
        delete(config, topic)
        create(client, name)
        append(config, topic, b"4")
        wait_for(lambda: comes(b"4"), "the digest of the new topic", 60)
    assert [each.offset for each in came if each.value == b"4"] == [0]


@scenario
async def test_a_facade_does_not_take_results_that_were_made_anew_for_more(
    config: PipelineConfig,
) -> None:
    """Its read model may be that of the earlier database, whose seqs are higher."""
    topic = TopicNames(config.settings.database).results
    append(config, topic, b"1", b"2", b"3")
    log = KafkaLog(config.settings, FacadeSettings())
    await log.start()
    await log.published()
    await asyncio.to_thread(delete, config, topic)
    await asyncio.to_thread(create, config.settings.client_config(), config.settings.database)
    async with asyncio.timeout(60):
        await until(lambda: "was made anew, or has lost its end" in str(log.fault()))
    with pytest.raises(LogFaultError):
        await log.published()
    await log.stop()

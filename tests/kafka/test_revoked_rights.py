"""Rights that are taken away while somebody uses them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from streamydb.errors import SnapshotError
from streamydb.kafka import create
from streamydb.kafka.admin import answers
from streamydb.kafka.appender import TopicAppender
from streamydb.kafka.clients import administrator
from streamydb.kafka.columns import RecordColumns
from streamydb.kafka.errors import LogFaultError
from streamydb.kafka.follower import TopicFollower
from streamydb.kafka.reader import ReadingError, TopicReader
from streamydb.kafka.roles import apply
from streamydb.testing.in_process import scenario, until
from tests.support.secured import ADMIN, Secured

pytestmark = pytest.mark.timeout(180)


def append(connection: dict[str, str], topic: str) -> None:
    """Append a record."""
    with TopicAppender(connection, topic, SnapshotError) as appending:
        appending.append(b"{}")


def read_on(reader: TopicReader) -> None:
    """Follow a topic for half a minute."""
    for _ in range(300):
        reader.batch()


def revoke(admin: dict[str, str], topic: str, principal: str) -> None:
    """Take all rights to a topic from a user."""
    client = administrator(admin)
    every = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        principal,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert answers(client.delete_acls([every]), "revoke")[every]


@scenario
async def test_a_right_that_is_taken_away_while_a_topic_is_followed(
    tmp_path: Path, database: str
) -> None:
    """A facade's fault, until it is granted again; the end of a command that follows."""
    secured = Secured(tmp_path, acls=True)
    with secured.broker:
        await follow(secured, database)


async def follow(secured: Secured, database: str) -> None:
    """Follow results of a new database with and without the right to."""
    admin = secured.settings(ADMIN, database=database).client_config()
    topic = create(admin, database).results
    secured.add_scram(["its-facade"])
    apply(admin, database, "facade", "User:its-facade")
    settings = secured.settings("its-facade", "SCRAM-SHA-512", database=database)
    found: list[int] = []

    def prepare(records: RecordColumns) -> list[int]:
        return [*records.offsets.tolist()]

    tail = TopicFollower(settings, topic, {0: 0}, prepare, found.extend)
    reader = TopicReader(settings.client_config(), topic)
    with reader:
        reader.assign({0: 0})
        await asyncio.to_thread(append, admin, topic)
        await tail.passed({0: 1})
        await asyncio.to_thread(revoke, admin, topic, "User:its-facade")
        async with asyncio.timeout(60):
            await until(lambda: tail.fault is not None)
        assert "streamydb acls" in (tail.fault or "")
        with pytest.raises(LogFaultError, match="streamydb acls"):
            await tail.passed({0: 2})
        with pytest.raises(ReadingError, match="may not read"):
            await asyncio.to_thread(read_on, reader)
    apply(admin, settings.database, "facade", "User:its-facade")
    async with asyncio.timeout(60):
        await until(lambda: tail.fault is None)
        await asyncio.to_thread(append, admin, topic)
        await until(lambda: found == [0, 1])
    await asyncio.to_thread(tail.close)

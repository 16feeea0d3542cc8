"""The copy for Kafka Connect on a real broker: begun, gone on with, taken over, refused."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from confluent_kafka.admin import NewTopic

from streamydb.kafka import (
    TopicDescription,
    TopicNames,
    TopicProblem,
    TopicsError,
    add_connect,
    check,
    create,
    creation,
    delete,
    mend,
)
from streamydb.kafka.admin import answers, change_settings, describe_topics
from streamydb.kafka.changes import KafkaSource
from streamydb.kafka.clients import BULK, KafkaAdministrator, administrator, appender
from streamydb.kafka.connect import Copier
from streamydb.kafka.connect.copier import KafkaCopy, last_copied
from streamydb.kafka.connect.core import ConnectError
from streamydb.kafka.reader import TopicReader
from streamydb.records import Resolved, encode_resolved
from streamydb.records.connect import connect_key
from streamydb.testing.database import wait_for
from tests.support.read_model import change

PARTITIONS = 2
Connection = dict[str, str]
Contents = dict[int, list[tuple[bytes | None, bool]]]


class Bed:
    """A database without a pipeline: its changes are written here."""

    def __init__(self, connection: Connection, database: str) -> None:
        self.connection = connection
        self.database = database
        self.names = create(connection, database, changes_partitions=PARTITIONS)

    def write(self, seq: int, *values: tuple[str, str | None], twice: bool = False) -> None:
        """Write the changes of a transaction and resolve it."""
        producer = appender(self.connection, BULK)
        topic = self.names.changes
        for _ in range(2 if twice else 1):
            for key, value in values:
                data = change(seq, value, db=self.database)
                producer.produce(topic, data, key, ord(key) % PARTITIONS)
        for number in range(PARTITIONS):
            producer.produce(topic, encode_resolved(Resolved(seq, seq, {"0": seq})), None, number)
        assert producer.flush(30) == 0

    def copier(self) -> Copier:
        source = KafkaSource(self.connection, self.names.changes)
        return Copier(self.database, source, KafkaCopy(self.connection, self.database))

    def contents(self) -> Contents:
        """Per partition, key and whether there is a value, of what is committed."""
        found: Contents = {number: [] for number in range(PARTITIONS)}
        committed = {**self.connection, "isolation.level": "read_committed"}
        with TopicReader(committed, self.names.connect) as reader:
            for message in reader.whole():
                place = message.key(), message.value() is not None
                found[message.partition() or 0].append(place)
        return found


@pytest.fixture
def bed(bootstrap: str, database: str) -> Bed:
    return Bed({"bootstrap.servers": bootstrap}, database)


def copied(copier: Copier, count: int) -> None:
    """Step until so many records have been copied."""
    done = 0

    def enough() -> bool:
        nonlocal done
        done += copier.step(0.1)
        return done >= count

    wait_for(enough, f"{count} records")
    assert done == count


def test_a_copy_goes_on_where_the_last_one_ended(bed: Bed) -> None:
    assert last_copied(bed.connection, bed.database) is None
    add_connect(bed.connection, bed.database)
    assert add_connect(bed.connection, bed.database) == bed.names.connect, "repeatable"
    assert last_copied(bed.connection, bed.database) == 0
    bed.write(1, ("a", "1"), ("b", "2"), twice=True)
    first = bed.copier()
    copied(first, 2)
    bed.write(2, ("a", None), twice=True)
    second = bed.copier()
    copied(second, 2)
    assert last_copied(bed.connection, bed.database) == 2
    a, b = connect_key("a"), connect_key("b")
    wanted = {ord("a") % 2: [(a, True), (a, True), (a, False)], ord("b") % 2: [(b, True)]}
    assert bed.contents() == wanted
    bed.write(3, ("b", "3"))
    with pytest.raises(ConnectError, match="another `streamydb connect` writes"):
        wait_for(lambda: first.step(0.1) > 0, "what cannot be written")
    copied(second, 1)
    wanted[ord("b") % 2].append((b, True))
    assert bed.contents() == wanted
    first.close()
    second.close()


def test_values_of_the_largest_size_fit(bed: Bed) -> None:
    add_connect(bed.connection, bed.database)
    worst = '"' + '\\"' * 131_071 + '"'
    bed.write(1, ("a", worst))
    copier = bed.copier()
    copied(copier, 1)
    copier.close()


def test_without_the_topic_the_command_to_make_it_is_named(bed: Bed) -> None:
    with pytest.raises(ConnectError, match="streamydb create --connect"):
        bed.copier().step(0.1)


def test_a_record_of_somebody_else_is_refused(bed: Bed) -> None:
    producer = appender(bed.connection, BULK)
    producer.produce(add_connect(bed.connection, bed.database), b"{}", b"k", 0)
    assert producer.flush(30) == 0
    with pytest.raises(ConnectError, match="has no header streamydb"):
        bed.copier().step(0.1)


@pytest.mark.parametrize("made", ["before", "meanwhile"])
def test_a_topic_with_other_settings_is_refused(
    made: str, bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = administrator(bed.connection)
    answers(admin.create_topics([NewTopic(bed.names.connect, PARTITIONS, 1)]), "create")
    wait_for(lambda: bool(describe_topics(admin, [bed.names.connect])), "the topic")
    hidden = {bed.names.connect} if made == "meanwhile" else set[str]()

    def seen(asked: KafkaAdministrator, names: Iterable[str]) -> dict[str, TopicDescription]:
        found = describe_topics(asked, [name for name in names if name not in hidden])
        hidden.clear()
        return found

    monkeypatch.setattr(creation, "describe_topics", seen)
    with pytest.raises(TopicsError, match=r"cleanup\.policy: delete, asked"):
        add_connect(bed.connection, bed.database)


def test_it_is_deleted_with_the_database(bed: Bed) -> None:
    add_connect(bed.connection, bed.database)
    assert TopicNames(bed.database).connect in delete(bed.connection, bed.database)


def problems(bed: Bed) -> list[TopicProblem]:
    """What doctor says of the copy."""
    found = check(bed.connection, bed.database)
    return [problem for problem in found if problem.topic == bed.names.connect]


def test_doctor_knows_what_the_topic_must_be(bed: Bed) -> None:
    topic = add_connect(bed.connection, bed.database)
    assert problems(bed) == []
    wrong = {"cleanup.policy": "delete", "max.message.bytes": "1000000"}
    change_settings(administrator(bed.connection), {topic: wrong})
    mended = {("cleanup.policy", "compact"), ("max.message.bytes", "1200000")}
    assert {each.setting for each in problems(bed)} == mended
    assert mend(bed.connection, problems(bed)) == []
    assert problems(bed) == []

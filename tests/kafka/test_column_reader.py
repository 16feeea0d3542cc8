"""The reader in columns gives what confluent-kafka's gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import confluent_kafka
import pytest

from streamydb.kafka import TopicNames, create
from streamydb.kafka.clients import CHANGES, column_reader
from streamydb.kafka.errors import PARTITION_EOF
from streamydb.kafka.librdkafka import ColumnReader
from streamydb.kafka.reader import TopicReader
from streamydb.settings import Settings
from streamydb.testing.database import wait_for

PARTITIONS = 3
Told = tuple[int, bytes | None, bytes | None]


@pytest.fixture
def settings(bootstrap: str, database: str) -> Settings:
    """A database with some partitions of changes."""
    found = Settings(database=database, bootstrap=bootstrap)
    create(found.client_config(), database, changes_partitions=PARTITIONS)
    return found


@pytest.fixture
def columns(settings: Settings) -> Iterator[ColumnReader]:
    """A reader of its changes."""
    with closing(column_reader(settings.client_config(), CHANGES, eof=True)) as reader:
        yield reader


def append(settings: Settings, dice: random.Random, count: int) -> None:
    """Append random records to random partitions."""
    topic = TopicNames(settings.database).changes
    producer = confluent_kafka.Producer({**settings.client_config(), "linger.ms": 5})

    def text() -> bytes | None:
        return dice.choice([None, b"", dice.randbytes(dice.choice([3, 40, 3_000]))])

    for _ in range(count):
        producer.produce(topic, text(), text(), dice.randrange(PARTITIONS))
    assert producer.flush(60) == 0


def by_confluent(settings: Settings) -> dict[int, list[Told]]:
    """All that is there, as another reader gives it."""
    found: dict[int, list[Told]] = {number: [] for number in range(PARTITIONS)}
    with TopicReader(settings.client_config(), TopicNames(settings.database).changes) as reader:
        for message in reader.whole():
            number, offset = message.partition(), message.offset()
            assert number is not None
            assert offset is not None
            found[number].append((offset, message.key(), message.value()))
    return found


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(3))
def test_it_gives_what_the_other_reader_gives(
    settings: Settings, columns: ColumnReader, seed: int
) -> None:
    dice = random.Random(f"column reader {seed}")
    append(settings, dice, 2_000)
    wanted = by_confluent(settings)
    for _ in range(3):  # it may be assigned anew, while records of before are under way
        starts = {n: dice.randrange(len(wanted[n])) for n in range(PARTITIONS)}
        columns.assign(TopicNames(settings.database).changes, starts)
        found: dict[int, list[Told]] = {number: [] for number in range(PARTITIONS)}
        ends: dict[int, int] = {}

        def read(found: dict[int, list[Told]] = found, ends: dict[int, int] = ends) -> bool:
            records, failures = columns.take(dice.choice([1, 7, 5_000]), 0.1)
            for record in records:
                told = record.offset(), record.key(), record.value()
                found[record.partition()].append(told)
            for error, partition, offset in failures:
                assert error.code() == PARTITION_EOF
                ends[partition] = offset
            return len(ends) == PARTITIONS

        wait_for(read, "the ends of all partitions", 30)
        assert found == {number: wanted[number][at:] for number, at in starts.items()}
        assert ends == {number: len(wanted[number]) for number in starts}


def test_what_comes_later_is_waited_for(settings: Settings, columns: ColumnReader) -> None:
    dice = random.Random("later")
    columns.assign(TopicNames(settings.database).changes, dict.fromkeys(range(PARTITIONS), 0))
    read = 0

    def has(count: int) -> bool:
        nonlocal read
        read += len(columns.take(100, 0.1).records)
        return read == count

    for count in (10, 20):
        append(settings, dice, 10)
        wait_for(partial(has, count), "what was appended", 30)


def test_records_of_several_topics_have_their_numbers(
    settings: Settings, columns: ColumnReader
) -> None:
    dice, names = random.Random("several topics"), TopicNames(settings.database)
    append(settings, dice, 50)
    producer = confluent_kafka.Producer(settings.client_config())
    for number in range(20):
        producer.produce(names.results, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    columns.add(names.changes, 4, dict.fromkeys(range(PARTITIONS), 0))
    found: Counter[int] = Counter()

    def has(**counts: int) -> bool:
        found.update(columns.take(7, 0.1).records.topics.tolist())
        return found == Counter({int(name[1:]): count for name, count in counts.items()})

    wait_for(partial(has, _4=50), "the first topic", 30)
    columns.add(names.results, 9, {0: 5})
    wait_for(partial(has, _4=50, _9=15), "the second topic, beside it", 30)
    append(settings, dice, 10)
    wait_for(partial(has, _4=60, _9=15), "more of the first one", 30)


def test_a_position_that_is_not_there_is_a_failure(
    settings: Settings, columns: ColumnReader
) -> None:
    columns.assign(TopicNames(settings.database).changes, {1: 7})
    codes: list[int] = []

    def failed() -> bool:
        codes.extend(failure.error.code() for failure in columns.take(10, 0.1).failures)
        return bool(codes)

    wait_for(failed, "a failure", 30)
    assert codes[0] == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


def test_a_closed_reader_is_not_read(settings: Settings, columns: ColumnReader) -> None:
    columns.assign(TopicNames(settings.database).changes, {0: 0})
    columns.close()
    columns.close()
    with pytest.raises(ValueError, match="closed"):
        columns.take(1, 0)


def test_its_contact_hears_why_there_is_no_connection(settings: Settings) -> None:
    connection = {**settings.client_config(), "bootstrap.servers": "127.0.0.1:1"}
    with closing(column_reader(connection, CHANGES)) as reader:
        reader.assign("nowhere", {0: 0})

        def heard() -> bool:
            reader.take(10, 0.1)
            return reader.connections.last is not None

        wait_for(heard, "the reason", 30)

"""Packed batches, with every codec: what a log takes, and what its readers open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streamydb.backup.kafka import BackupLog
from streamydb.backup.pieces import Row
from streamydb.backup.restore import append_log, close_log, lines
from streamydb.backup.stand_in import fitting
from streamydb.kafka import TopicNames, check, create, mend
from streamydb.kafka.admin import change_settings
from streamydb.kafka.clients import (
    BULK,
    LOG,
    WHOLE_TOPICS,
    Kind,
    administrator,
    appender,
    column_reader,
)
from streamydb.kafka.reader import ReadingError, TopicReader
from streamydb.kafka.topic_plans import COMPRESSION, RECORD_BYTES_MAX, UNPACKED
from streamydb.limits import TRANSACTION_BYTES_MAX
from streamydb.pipeline.large_records import LargeRecord, largest
from streamydb.sorter.state import PartitionState
from streamydb.testing.database import wait_for
from streamydb.verify.check import Log
from streamydb.verify.oracle.core import Oracle, run

Client = dict[str, str]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PACKED = CODECS[1:]
LARGE_BYTES = 8_000_000
BEYOND_DEFAULT_BYTES = 120_000_000
"""More than librdkafka unpacks of zstd by default, less than Java's client does."""


@pytest.fixture
def client(bootstrap: str) -> Client:
    return {"bootstrap.servers": bootstrap}


def append(client: Client, topic: str, values: list[bytes], **kind: str | int) -> set[int]:
    """Append records in one batch, as a foreign producer may; return the codes of the errors."""
    large: Kind = {
        **BULK, "message.max.bytes": 1_000_000_000, "batch.size": 100_000_000, "linger.ms": 500,
        "queue.buffering.max.kbytes": 2_097_151, **kind,
    }  # fmt: skip
    producer = appender(client, large, topic)
    codes: set[int] = set()

    def told(error: KafkaError | None, _: object) -> None:
        codes.add(0 if error is None else error.code())

    for value in values:
        producer.produce(topic, value, on_delivery=told)
    assert producer.flush(120) == 0
    return codes


def as_before(client: Client, database: str) -> str:
    """Create a database as earlier releases did: its log takes batches as they are packed."""
    log = create(client, database).transactions
    change_settings(administrator(client), {log: {COMPRESSION: "producer"}})
    return log


def packed_with_all(client: Client, topic: str) -> list[bytes]:
    """Append a large record with each codec, small ones between them; return them all."""
    values = [b"begin"]
    for codec in PACKED:
        values += [f'{{"id":"{codec}"}}'.encode().ljust(LARGE_BYTES), codec.encode()]
        for value in values[-2:]:
            assert append(client, topic, [value], **{"compression.type": codec}) == {0}
    assert append(client, topic, values[:1]) == {0}
    return [*values[1:], values[0]]


@pytest.mark.fault(
    49, "records and batches that are larger unpacked than the log may hold, with every codec",
    "refused by the broker, which says so to their producer; what fits is taken",
)  # fmt: skip
@pytest.mark.parametrize("codec", CODECS)
def test_a_log_takes_no_batch_that_is_too_large_unpacked(
    client: Client, database: str, codec: str
) -> None:
    log = create(client, database).transactions
    kind = {"compression.type": codec}
    refused = {KafkaError.MSG_SIZE_TOO_LARGE}
    assert append(client, log, [b"v" * (RECORD_BYTES_MAX + 1)], **kind) == refused
    assert append(client, log, [b"v" * LARGE_BYTES], **kind) == refused
    assert append(client, log, [b"v" * 100_000] * 20, **kind) == refused
    assert append(client, log, [b"v" * TRANSACTION_BYTES_MAX], **kind) == {0}
    assert append(client, log, [b"v" * 100] * 9_000, **kind) == {0}
    with TopicReader(client, log) as reader:
        assert reader.spans()[0].high == 9_001


def test_our_own_appenders_stay_within(client: Client, database: str) -> None:
    """Also those with the codec of earlier releases, whose clients may still append."""
    log = create(client, database).transactions
    errors: list[Any] = []
    for codec in ("none", "lz4"):
        producer = appender(client, {**LOG, "linger.ms": 50, "compression.type": codec}, log)
        for _ in range(50):
            producer.produce(log, b"v" * 100_000, on_delivery=lambda error, _: errors.append(error))
        producer.flush(60)
    assert errors == [None] * 100


@pytest.mark.fault(
    49, "a log of an earlier release with batches of every codec that unpack to 8 MB, and one of "
    "zstd that unpacks to 120 MB, more than librdkafka takes by default",
    "every reader of the log opens all of them, and reads the same",
)  # fmt: skip
def test_all_readers_open_the_same_batches(client: Client, database: str) -> None:
    log = as_before(client, database)
    values = packed_with_all(client, log)
    values.append(b"z" * BEYOND_DEFAULT_BYTES)
    assert append(client, log, values[-1:], **{"compression.type": "zstd"}) == {0}
    with TopicReader(client, log) as reader:
        assert [record.value() for record in reader.whole()] == values
    backup: list[Row] = []
    for piece in BackupLog(client, database).pieces(0, 0, len(values)):
        backup += piece.rows()
    assert [value for *_, value in backup] == values
    ordered = [each for batch in Log(client, database, 1, None).ordered() for each in batch]
    assert [each.value for each in ordered] == values
    columns, taken = column_reader(client, WHOLE_TOPICS), list[bytes]()
    columns.assign(log, {0: 0})

    def all_taken() -> bool:
        records, failures = columns.take(100, 0.1)
        taken.extend(records.values.tolist())
        return bool(failures) or len(taken) == len(values)

    wait_for(all_taken, "all records")
    columns.close()
    assert taken == values


def test_the_largest_record_ahead_is_found(client: Client, database: str) -> None:
    log = as_before(client, database)
    assert largest(client, log, {}) is None
    packed_with_all(client, log)
    assert append(client, log, [b"v" * 2 * LARGE_BYTES], **{"compression.type": "zstd"}) == {0}
    assert largest(client, log, {}) == LargeRecord(0, 9, 2 * LARGE_BYTES)
    assert largest(client, log, {0: 10}) is None


@pytest.mark.fault(
    49, "a batch that a client of Kafka cannot unpack",
    "it names offset, codec and the command that helps; it does not ask if the broker is up",
)  # fmt: skip
def test_a_batch_that_cannot_be_unpacked_is_named(client: Client, database: str) -> None:
    log = as_before(client, database)
    assert append(client, log, [b"v"], **{"compression.type": "none"}) == {0}
    assert append(client, log, [b"v" * LARGE_BYTES], **{"compression.type": "zstd"}) == {0}
    narrow = {
        **client, "message.max.bytes": "1000000", "fetch.max.bytes": "1000000",
        "max.partition.fetch.bytes": "1000000", "receive.message.max.bytes": "1000512",
    }  # fmt: skip
    with TopicReader(narrow, log) as reader, pytest.raises(ReadingError) as caught:
        list(reader.whole())
    said = str(caught.value)
    assert f"{log}, partition 0, offset 1: the batch that begins there cannot be unpacked" in said
    assert "codec 0x4" in said
    assert "streamydb doctor" in said
    assert "is the broker up" not in said


def test_a_log_of_an_earlier_release_goes_on_and_is_told_its_fix(
    client: Client, database: str
) -> None:
    log = as_before(client, database)
    create(client, database)
    change_settings(administrator(client), {log: {"max.message.bytes": "10000000"}})
    wait_for(lambda: len(check(client, database)) == 2, "a broker to know both")
    problems = check(client, database)
    assert {problem.severity for problem in problems} == {"warning"}
    assert [problem.fix.rpartition(" ")[2] for problem in problems] == [
        f"{COMPRESSION}={UNPACKED}", f"max.message.bytes={RECORD_BYTES_MAX}"
    ]  # fmt: skip
    assert mend(client, problems) == []
    wait_for(lambda: check(client, database) == [], "a broker to know it")


def test_a_log_with_large_records_is_restored_with_their_verdicts(
    client: Client, database: str
) -> None:
    values = packed_with_all(client, as_before(client, database))
    new, manifest = f"{database[:40]}-new", SimpleNamespace(ends={0: len(values)})
    create(client, new, loading=True)
    close_log(client, new)
    places = {0: PartitionState(position=len(values))}
    old = list(lines(BackupLog(client, database), manifest, 0, places))  # type: ignore[arg-type]
    assert append_log(client, new, {0: iter(old)}, lambda _: None) == len(values)
    with TopicReader(client, TopicNames(new).transactions) as reader:
        restored = [record.value() for record in reader.whole()]
    assert restored == [fitting(None, value) for value in values]
    assert outputs(client, database) == outputs(client, new)


def outputs(client: Client, database: str) -> list[Any]:
    """Return what a serial replay of a log gives, as if both databases had one name."""
    ordered = Log(client, database, 1, None).ordered()
    return list(run(Oracle("bank"), (record for batch in ordered for record in batch)))

"""The log that a check reads: whole, and trimmed behind what somebody has kept of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import numpy as np
import pytest

from streamydb.backup.pieces import Piece, Row
from streamydb.kafka import TopicNames, create
from streamydb.kafka.clients import administrator
from streamydb.records import Marker, encode_marker
from streamydb.records.rulings import NO_RULINGS, Rulings
from streamydb.settings import Settings
from streamydb.verify.check import CheckError, Log

COUNT = 40
MARKED = 5


class Kept:
    """What lay in the log before it was trimmed, a few records at a time."""

    def __init__(self, connection: dict[str, str], topic: str, partitions: int) -> None:
        self.rows: dict[int, list[Row]] = {number: [] for number in range(partitions)}
        consumer = confluent_kafka.Consumer({**connection, "group.id": "t"})
        consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in self.rows])
        while sum(map(len, self.rows.values())) < COUNT + COUNT // MARKED * partitions:
            for each in consumer.consume(100, 0.1):
                row = each.offset() or 0, each.timestamp()[1], each.key(), each.value()
                self.rows[each.partition() or 0].append(row)
        consumer.close()

    def rulings(self) -> Rulings:
        return NO_RULINGS

    def pieces(self, partition: int, start: int, end: int) -> Iterator[Piece]:
        rows = [row for row in self.rows[partition] if start <= row[0] < end]
        for at in range(0, len(rows), 7):
            offsets, times, keys, values = zip(*rows[at : at + 7], strict=True)
            yield Piece(partition, np.array(offsets), np.array(times), list(keys), list(values))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_what_was_trimmed_is_read_where_it_is_kept(
    bootstrap: str, database: str, partitions: int, share: float
) -> None:
    settings = Settings(database=database, bootstrap=bootstrap)
    connection = settings.client_config()
    create(connection, database, partitions=partitions)
    topic = TopicNames(database).transactions
    producer = confluent_kafka.Producer(connection)
    later = time.time_ns() // 1_000_000 + 60_000
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
        if number % MARKED == MARKED - 1:
            for partition in range(partitions):
                mark = encode_marker(Marker(later + number, partitions, "t"))
                producer.produce(topic, mark, partition=partition)
    assert producer.flush(60) == 0
    kept = Kept(connection, topic, partitions)
    whole = [txn for batch in Log(connection, database, None, None).ordered() for txn in batch]
    assert len(whole) >= COUNT - partitions - MARKED

    ends = {n: int(len(rows) * share) for n, rows in kept.rows.items()}
    places = [confluent_kafka.TopicPartition(topic, n, end) for n, end in ends.items()]
    admin = administrator(connection)
    for done in admin.delete_records(places).values():
        done.result(60)
    with pytest.raises(CheckError, match=r"--backup FOLDER"):
        Log(connection, database, None, None)
    log = Log(connection, database, None, kept)
    assert [txn for batch in log.ordered() for txn in batch] == whole
    assert len(list(log.trimmed())) == sum(ends.values())

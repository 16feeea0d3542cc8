"""A backup's reading of a log that is trimmed meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import Producer, TopicPartition

from streamydb.backup.kafka import BackupLog
from streamydb.backup.manifest import BackupError
from streamydb.kafka import create
from streamydb.kafka.clients import administrator
from streamydb.kafka.reader import TopicReader


def append(client: dict[str, str], topic: str, count: int) -> None:
    """Append records to partition 0."""
    producer = Producer(client)
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0


def trim(client: dict[str, str], topic: str, before: int) -> None:
    """Delete the records before an offset."""
    place = TopicPartition(topic, 0, before)
    admin = administrator(client)
    assert admin.delete_records([place])[place].result(30).low_watermark == before


@pytest.mark.parametrize(("start", "low"), [(0, 20), (10, 20), (0, 50)])
def test_records_that_go_while_they_are_read_are_missed(
    bootstrap: str, database: str, monkeypatch: pytest.MonkeyPatch, start: int, low: int
) -> None:
    client = {"bootstrap.servers": bootstrap}
    create(client, database)
    log = BackupLog(client, database)
    append(client, log.topic, 50)
    assert sum(len(piece.values) for piece in log.pieces(0, start, 50)) == 50 - start

    class Late(TopicReader):
        def assign(self, offsets: Mapping[int, int]) -> None:
            trim(client, log.topic, low)
            super().assign(offsets)

    monkeypatch.setattr("streamydb.backup.kafka.TopicReader", Late)
    said = f"from {start} on are needed .* before {low} were trimmed"
    with pytest.raises(BackupError, match=said):
        list(log.pieces(0, start, 50))

"""What a consumer gives is parted: records move a cursor, and so do ends; errors are judged."""

from __future__ import annotations

import random
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streamydb.kafka.errors import PARTITION_EOF, ReadFailure
from streamydb.kafka.receiving import SpanReader, TopicCursor
from tests.support.memory_kafka import Record
from tests.support.seeds import seeds

REFUSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
PARTITIONS = 3


class Consumer:
    """Gives messages as a client of confluent-kafka does: one, or those that are there."""

    def __init__(self, messages: list[Record]) -> None:
        self.messages = messages
        self.assigned: dict[int, int] = {}

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = {each.partition: each.offset for each in partitions}

    def poll(self, _: float) -> Record | None:
        return self.messages.pop(0) if self.messages else None

    def consume(self, count: int, timeout: float) -> list[Record]:
        assert timeout == 0, "a real one waits out the time unless it has them all"
        taken, self.messages[:] = self.messages[:count], self.messages[count:]
        return taken


class Judge(TopicCursor):
    """A cursor that keeps the failures."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__(consumer, "t")
        self.failures: list[ReadFailure] = []

    def _fail(self, failure: ReadFailure) -> None:
        self.failures.append(failure)


def drawn(dice: random.Random) -> list[Record]:
    """Records with gaps between them, ends, and errors that are about no partition."""
    at = [0] * PARTITIONS
    messages = []
    for _ in range(dice.randint(0, 60)):
        number = dice.randrange(PARTITIONS)
        at[number] += dice.choice([0, 0, 0, 2])
        kind = dice.choice(["record", "record", "record", "end", "error"])
        if kind == "error":
            messages.append(Record(-1, -1001, 0, None, None, REFUSED))
        elif kind == "end":
            fault = KafkaError(PARTITION_EOF)
            messages.append(Record(number, at[number], 0, None, None, fault))
        else:
            messages.append(Record(number, at[number], 0, None, b"%d" % at[number]))
            at[number] += 1
    return messages


@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_a_cursor_moves_over_records_and_ends(seed: int) -> None:
    dice = random.Random(seed)
    messages = drawn(dice)
    consumer = Consumer(list(messages))
    cursor = Judge(consumer)
    cursor.assign({0: -1, **dict.fromkeys(range(1, PARTITIONS), 0)})
    assert consumer.assigned == dict.fromkeys(range(PARTITIONS), 0), "as a number, never a name"
    found: list[Any] = []
    while consumer.messages:
        count_max = dice.randint(1, 9)
        batch = cursor.batch(0, count_max)
        assert len(batch) <= count_max
        found += batch
    assert found == [each for each in messages if each.error() is None]
    errors = [each for each in messages if each.fault is REFUSED]
    assert cursor.failures == [ReadFailure(REFUSED, -1, -1001)] * len(errors)
    reached = dict.fromkeys(range(PARTITIONS), 0)
    for each in messages:
        if each.fault is not REFUSED:
            reached[each.number] = each.at + (each.error() is None)
    assert cursor.positions == reached


@pytest.mark.parametrize("seed", range(seeds(60, 15)))
def test_a_span_ends_where_it_ends(seed: int) -> None:
    """Whatever lies there: a record, an end, or a record behind a gap."""
    dice = random.Random(seed)
    messages = drawn(dice)
    last = {n: max((m.at + (m.fault is None) for m in messages if m.number == n), default=0)
            for n in range(PARTITIONS)}  # fmt: skip
    spans = {n: (0, dice.randint(0, end)) for n, end in last.items()}
    consumer = Consumer(list(messages))
    reading = SpanReader(consumer, "t", spans)
    assert consumer.assigned == {n: 0 for n, (_, end) in spans.items() if end}
    found = [*reading.records(lambda: bool(consumer.messages))]
    assert found == [m for m in messages if m.fault is None and m.at < spans[m.number][1]]
    assert not reading.unread

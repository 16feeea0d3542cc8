"""Outputs are read back from a broker: each group is confirmed, and none before it is written."""

from __future__ import annotations

import random
import threading
from functools import partial

import pytest
from confluent_kafka import Producer

from streamydb.frames.table import Ragged
from streamydb.kafka import TopicNames, create
from streamydb.pipeline.realtime.confirmations import ResolvedGroups, group_hashes
from streamydb.pipeline.realtime.life import output_topics
from streamydb.pipeline.realtime.messages import Executed
from streamydb.pipeline.realtime.output_tables import Hashes
from streamydb.pipeline.realtime.readback import OutputReader
from streamydb.records.names import FOLLOW_UP_MARK
from streamydb.txn_processor import outputs as o
from streamydb.txn_processor.outputs import OutputRecords

pytestmark = pytest.mark.timeout(120)


class Driver:
    """Counts confirmations as the driver of the gear does, and waits for them."""

    def __init__(self, connection: dict[str, str], names: TopicNames) -> None:
        self.groups = ResolvedGroups()
        self.confirmed = threading.Condition()
        self.reader = OutputReader(connection, output_topics(names), names.transactions, self.see)
        self.reader.start()

    def see(self, hashes: Hashes) -> float:
        with self.confirmed:
            self.groups.see(hashes)
            self.confirmed.notify_all()
        return 0.05

    def add(self, said: Executed) -> None:
        if said.follow_ups:
            self.reader.read_log(said.position)
        with self.confirmed:
            self.groups.add(said)

    def last(self) -> int:
        with self.confirmed:
            return 0 if self.groups.last is None else self.groups.last.seq

    def wait(self, seq: int) -> bool:
        with self.confirmed:
            return self.confirmed.wait_for(partial(self._has, seq), 60)

    def _has(self, seq: int) -> bool:
        return self.groups.last is not None and self.groups.last.seq >= seq


def _outputs(dice: random.Random, number: int, *, follow_ups: bool) -> list[OutputRecords]:
    topics = [o.RESULTS, o.CHANGES, o.DEAD_LETTERS, *([o.FOLLOW_UPS] if follow_ups else [])]
    drawn = dice.sample(topics[:3], dice.randint(1, 3)) + topics[3:]
    mark = FOLLOW_UP_MARK
    return [
        OutputRecords(
            topic,
            Ragged.of([b"k%d-%d" % (number, row) for row in range(rows)]),
            Ragged.of(
                [(mark if topic == o.FOLLOW_UPS else b"") + b"%d" % number for _ in range(rows)]
            ),
            0,
            0,
        )
        for topic in drawn
        for rows in [dice.randint(1, 4)]
    ]


@pytest.mark.randomized
@pytest.mark.parametrize("seed", range(4))
def test_groups_are_confirmed_as_their_outputs_come(
    seed: int, bootstrap: str, database: str
) -> None:
    dice, connection = random.Random(seed), {"bootstrap.servers": bootstrap}
    names = TopicNames(database)
    create(connection, database)
    producer = Producer(connection)
    topics = {number: topic for topic, number in output_topics(names).items()}
    position = 0  # of the log, as far as this test appends to it

    def transactions() -> None:
        nonlocal position
        for _ in range(dice.randint(0, 5)):
            producer.produce(names.transactions, b'{"id":"%d"}' % position, partition=0)
            position += 1
        producer.flush()

    transactions()
    driver = Driver(connection, names)
    try:
        for number in range(1, 31):
            transactions()
            outputs = _outputs(dice, number, follow_ups=dice.random() < 0.3 and seed > 0)
            follow_ups = any(records.topic == o.FOLLOW_UPS for records in outputs)
            said = Executed(
                number, position, 0, group_hashes(outputs).tobytes(), b"all", 0, follow_ups
            )
            driver.add(said)
            written = [
                (topics[records.topic], key, value)
                for records in outputs
                for key, value in zip(records.keys.tolist(), records.values.tolist(), strict=True)
            ]
            for topic, key, value in written[:-1]:
                producer.produce(topic, value, key, partition=0)
            producer.flush()
            assert driver.last() < number, "the last output is not there yet"
            topic, key, value = written[-1]
            producer.produce(topic, value, key, partition=0)
            producer.flush()
            position += sum(topic == names.transactions for topic, _, _ in written)
            assert driver.wait(number)
    finally:
        driver.reader.stop()

"""The copy for Kafka Connect: each change once, in order, whatever is written again, and wherever
a writer ends.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from streamydb.connect import Copier
from streamydb.connect.errors import ConnectError
from streamydb.records import Change, decode_change
from streamydb.records.connect import ConnectPlace, connect_key, connect_value
from tests.support.memory_copy import FailingError, MemoryCopy
from tests.support.memory_topic import MemorySource, MemoryTopic
from tests.support.read_model import change, resolve, write

PARTITIONS = 2
SEEDS = range(150)


def copied(copy: MemoryCopy) -> dict[int, list[tuple[bytes, bytes | None]]]:
    return {n: [(each.key, each.value) for each in some] for n, some in copy.records.items()}


def expected(key: str, seq: int, value: str | None) -> list[tuple[bytes, bytes | None]]:
    """What a change must become."""
    record = decode_change(change(seq, value))
    name = connect_key(key)
    assert isinstance(record, Change)
    made: list[tuple[bytes, bytes | None]] = [(name, connect_value(key, record))]
    return [*made, (name, None)] if value is None else made


class History:
    """Changes as pipelines may write them: again after a crash, and late by one that hung."""

    def __init__(self, rng: random.Random) -> None:
        self.topic = MemoryTopic(PARTITIONS)
        self.truth: dict[int, list[tuple[bytes, bytes | None]]] = {
            n: [] for n in range(PARTITIONS)
        }
        plans: list[list[tuple[int, int, str, str | None]]] = []
        last = self.last = 0
        for _ in range(rng.randint(1, 6)):
            plan = []
            first, last = last + 1, last + rng.randint(1, 4)
            for seq in range(first, last + 1):
                key = rng.choice("abc")
                value = rng.choice([None, str(seq)])
                partition = ord(key) % PARTITIONS
                plan.append((partition, seq, key, value))
                self.truth[partition] += expected(key, seq, value)
            plans.append(plan)
        self.last = last
        for number, plan in enumerate(plans):
            if rng.random() < 0.4:
                self._put(plan[: rng.randint(0, len(plan))])
            if number + 1 < len(plans) and rng.random() < 0.2:
                self._put(plan)
                self._put(plans[number + 1])
            self._put(plan)
            for partition in range(PARTITIONS):
                resolve(self.topic, plan[-1][1], [partition])
                if rng.random() < 0.3:
                    self.topic.skip(partition)
            if rng.random() < 0.3:
                old = rng.choice(plans[: number + 1])
                self._put(old[rng.randint(0, len(old)) :])
            if rng.random() < 0.2:
                resolve(self.topic, rng.choice(plans[: number + 1])[-1][1])

    def _put(self, plan: list[tuple[int, int, str, str | None]]) -> None:
        for partition, seq, key, value in plan:
            write(self.topic, partition, seq, key, value)


@pytest.mark.randomized
@pytest.mark.parametrize("seed", SEEDS)
def test_each_change_is_copied_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    history = History(rng)
    copy = MemoryCopy(PARTITIONS, rng)
    copier = None
    for _ in range(400):
        if copier is None or rng.random() < 0.1:  # another process goes on
            source = MemorySource(history.topic, lambda _n, left: min(left, rng.randint(0, 3)))
            copier = Copier("bank", source, copy)
        with suppress(FailingError):
            copier.step(0)
    assert copied(copy) == history.truth
    another = Copier("bank", MemorySource(history.topic), copy)
    assert another.step(0) == 0
    assert another.seq == history.last


def test_nothing_is_copied_before_it_is_resolved() -> None:
    topic, copy = MemoryTopic(1), MemoryCopy(1)
    copier = Copier("bank", MemorySource(topic), copy)
    write(topic, 0, 1, "a", "1")
    assert copier.step(0) == 0
    resolve(topic, 1)
    assert copier.step(0) == 1
    assert copy.records[0][-1].place == ConnectPlace("memory", 1, 1)


def test_a_deletion_has_a_tombstone_behind_it() -> None:
    topic, copy = MemoryTopic(1), MemoryCopy(1)
    write(topic, 0, 1, "a", None)
    resolve(topic, 1)
    Copier("bank", MemorySource(topic), copy).step(0)
    change_, tombstone = copy.records[0]
    assert tombstone.value is None
    assert tombstone.key == change_.key
    assert json.loads(change_.value or b"")["payload"]["op"] == "d"


def begun(topic: MemoryTopic) -> MemoryCopy:
    """A copy of a topic with one change."""
    copy = MemoryCopy(len(topic.spans))
    write(topic, 0, 1, "a", "1")
    resolve(topic, 1)
    Copier("bank", MemorySource(topic), copy).step(0)
    return copy


def test_changes_of_a_database_that_was_made_anew_are_refused() -> None:
    copy = begun(MemoryTopic(1))
    with pytest.raises(ConnectError, match="a copy of other changes"):
        Copier("bank", MemorySource(MemoryTopic(1, "other")), copy).step(0)


def test_changes_that_are_gone_are_an_error() -> None:
    topic = MemoryTopic(1)
    copy = begun(topic)
    write(topic, 0, 2, "a", "2")
    topic.expire(0, 3)
    with pytest.raises(ConnectError, match=r"offsets 3 to 3, and the copy goes on at 1"):
        Copier("bank", MemorySource(topic), copy).step(0)


def test_a_topic_with_other_partitions_is_refused() -> None:
    with pytest.raises(ConnectError, match=r"has 1 partitions and bank\.changes has 2"):
        Copier("bank", MemorySource(MemoryTopic(2)), MemoryCopy(1)).step(0)
